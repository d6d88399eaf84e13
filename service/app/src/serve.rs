//! The composition root: the only place that knows everybody, and that owns
//! the tasks. If one of them ends, the process ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use drainwell_core::policy::Policies;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::cloud::compute::Compute;
use crate::cloud::google::Google;
use crate::cluster::kubeconfig;
use crate::config::{Clusters, Config};
use crate::driver::lanes::Laned;
use crate::driver::pass::Driver;
use crate::driver::ports::{Cloud, Cluster};
use crate::driver::wake;
use crate::ingress::auth::{Auth, Guard};
use crate::ingress::{self, Ingress, Limits};
use crate::intake::{Intake, Verify};
use crate::pull::Puller;
use crate::reception::Reception;
use crate::telemetry::metrics::Metrics;
use crate::troubles::Troubles;

/// Requests and the pass under way may take this long to end. Cloud Run kills
/// a container ten seconds after SIGTERM.
const DRAIN: Duration = Duration::from_secs(8);

/// What the service is made of.
pub struct Parts {
    /// The clusters.
    pub clusters: Vec<Arc<dyn Cluster>>,
    /// Compute Engine, unless it is not to be asked.
    pub cloud: Option<Arc<dyn Cloud>>,
    /// The policies.
    pub policies: Policies,
    /// The clock.
    pub clock: Clock,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Where a scraper beside the service finds the metrics, if one does.
    pub scrape: Option<TcpListener>,
    /// What pulls notices, if something does.
    pub pull: Option<Puller>,
    /// All else.
    pub options: Options,
}

/// Settings that are no parts.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who checks senders.
    pub auth: Auth,
    /// Whether Compute must confirm.
    pub verify: Verify,
    /// How long a tick may work.
    pub tick_hold: Duration,
    /// Write nothing.
    pub dry_run: bool,
    /// How much is done at once over HTTP.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            auth: Auth::None,
            verify: Verify::Required,
            tick_hold: Duration::from_secs(170),
            dry_run: false,
            limits: Limits::default(),
        }
    }
}

impl Parts {
    /// Parts with default options.
    #[must_use]
    pub fn new(
        clusters: Vec<Arc<dyn Cluster>>,
        cloud: Option<Arc<dyn Cloud>>,
        policies: Policies,
        clock: Clock,
    ) -> Self {
        Self {
            clusters,
            cloud,
            policies,
            clock,
            metrics: Metrics::default(),
            scrape: None,
            pull: None,
            options: Options::default(),
        }
    }

    /// The real parts, by configuration.
    ///
    /// # Errors
    /// When a part can't be made of it.
    pub async fn from_config(config: &Config) -> anyhow::Result<Self> {
        let metrics = Metrics::default();
        let clusters = match config.clusters {
            Clusters::Kubeconfig => kubeconfig::clusters(&config.contexts, &metrics).await?,
        };
        let cloud: Option<Arc<dyn Cloud>> = match config.verify {
            Verify::Off => None,
            Verify::Required | Verify::Prefer => {
                let google = Google::new(&metrics)?;
                Some(Arc::new(Compute::new(&config.compute_endpoint, google)))
            }
        };
        let options = Options {
            auth: config.auth.clone(),
            verify: config.verify,
            tick_hold: config.tick_hold,
            dry_run: config.dry_run,
            limits: Limits::default(),
        };
        let scrape =
            match config.metrics_listen {
                Some(address) => Some(TcpListener::bind(address).await.with_context(|| {
                    format!("--metrics-listen {address}: can't be listened on")
                })?),
                None => None,
            };
        let policies = config.policies.clone();
        Ok(Self {
            clusters,
            cloud,
            policies,
            clock: Clock::system(),
            metrics,
            scrape,
            pull: Puller::new(&config.pull).await?,
            options,
        })
    }
}

/// Serves until `stop` returns, then lets requests and the pass under way end.
///
/// # Errors
/// When a task ends before that.
pub async fn run(
    parts: Parts,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let (stopping, stopped) = watch::channel(false);
    let mut tasks = start(parts, listener, &stopped)?;
    tracing::info!("listening on http://{address}");
    tokio::select! {
        biased;
        () = stop => {}
        ended = tasks.join_next() => {
            match ended {
                Some(Ok(Ok(()))) | None => bail!("a task of the service ended by itself"),
                Some(Ok(Err(error))) => return Err(error.context("a task of the service failed")),
                Some(Err(panic)) => bail!("a task of the service panicked: {panic}"),
            }
        }
    }
    tracing::info!("stopping");
    stopping.send_replace(true);
    let drained = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!(
            "not everything ended within {} s, aborting",
            DRAIN.as_secs()
        );
        tasks.shutdown().await;
    }
    Ok(())
}

/// Puts the parts together and starts the tasks: HTTP, the loop, and pulling.
fn start(
    parts: Parts,
    listener: TcpListener,
    stopped: &watch::Receiver<bool>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let Parts {
        clusters,
        cloud,
        policies,
        clock,
        metrics,
        scrape,
        pull,
        options,
    } = parts;
    let Options {
        auth,
        verify,
        tick_hold,
        dry_run,
        limits,
    } = options;
    // Intake and driver share each cluster's lanes.
    let laned = clusters
        .into_iter()
        .map(|c| Arc::new(Laned::new(c)) as Arc<dyn Cluster>);
    let clusters: Vec<_> = laned.collect();
    let (wake, ends) = wake::channel(clusters.len());
    let driver = Driver::new(
        clusters.clone(),
        cloud.clone(),
        policies.clone(),
        clock,
        dry_run,
    )
    .counting(metrics.clone());
    let intake = Intake::new(clusters, cloud, policies, clock, verify, dry_run);
    let intake = intake.counting(metrics.clone());
    let reception = Arc::new(Reception::new(intake, wake.clone()));
    let troubles = Troubles::default();
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    if let Some(pull) = pull {
        pull.start(&mut tasks, &reception, &troubles, clock, stopped);
    }
    if let Some(listener) = scrape {
        let address = listener.local_addr().context("no address")?;
        tracing::info!("metrics are on http://{address}/metrics");
        let router = ingress::scrape_router(&wake, &metrics, &limits);
        let (limits, stopped) = (limits.clone(), stopped.clone());
        tasks.spawn(async move {
            ingress::serve(listener, router, &limits, stopped).await;
            Ok(())
        });
    }
    let router = ingress::router(Ingress {
        reception,
        troubles,
        wake,
        clock,
        metrics,
        guard: Guard::new(auth, clock)?,
        tick_hold,
        limits: limits.clone(),
    });
    let (end_http, end_loops) = (stopped.clone(), stopped.clone());
    tasks.spawn(async move {
        ingress::serve(listener, router, &limits, end_http).await;
        Ok(())
    });
    tasks.spawn(async move {
        wake::run(&driver, ends, end_loops).await;
        Ok(())
    });
    Ok(tasks)
}
