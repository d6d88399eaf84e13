//! The demo: the real service, over HTTP, on a simulated world in which two
//! maintenances play out before the user's eyes.
//!
//! Needs nothing but the binary: no cloud, no cluster, no network but loopback.

pub(crate) mod audit;
mod narrate;
mod play;
mod pubsub;
mod scene;
mod scheduler;
mod screen;
mod story;
mod summary;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::{Cloud, Cluster};
use drainwell_app::serve::{self, Parts};
use drainwell_core::policy::Policies;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub use screen::Screen;
pub use story::{ActStory, End, Fate, NodeStory, PodStory, Story};

use self::play::Stage;

/// Settings of the demo.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Where the service listens. By default port 8080 on loopback, or the
    /// next one that is free; an address given here has to be free.
    pub listen: Option<SocketAddr>,
    /// Simulated seconds in one real second.
    pub speed: f64,
    /// The same seed gives the same story.
    pub seed: u64,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            listen: None,
            speed: 60.0,
            seed: 1,
        }
    }
}

/// How the demo went.
#[derive(Debug, Clone)]
pub struct DemoResult {
    /// What happened, act by act.
    pub story: Story,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

impl DemoResult {
    /// Whether it came to its end, and all is as it should be.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        !self.stopped && self.story.faults().is_empty()
    }
}

/// The first default port, and how many after it are tried.
const PORT: u16 = 8080;
const PORTS: u16 = 100;
/// Simulated time begins here: a story has the same times each time it is told.
const BEGIN_S: i64 = 1_767_945_600;
/// What an open connection may delay the end by.
const LINGER: Duration = Duration::from_millis(500);

/// Runs the demo in the terminal, until its end or until `stop` returns.
///
/// # Errors
/// When the service can't listen, or fails.
pub async fn run(
    options: DemoOptions,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<DemoResult> {
    run_on(options, Screen::terminal(), stop).await
}

/// The same with other places to write to.
///
/// # Errors
/// When the service can't listen, or fails, or nothing can be written.
pub async fn run_on(
    options: DemoOptions,
    screen: Screen,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<DemoResult> {
    if !(options.speed > 0.0 && options.speed.is_finite()) {
        bail!("the speed {} is not a number above zero", options.speed);
    }
    let listener = listen(options.listen).await?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let base = format!("http://{address}");
    screen.open(&base, options.speed)?;

    let begin = Timestamp::from_second(BEGIN_S).context("the begin of simulated time")?;
    let clock = Clock::scaled(begin, options.speed);
    let world = scene::build(clock, options.seed);
    let clusters: Vec<Arc<dyn Cluster>> = vec![Arc::new(world.clone())];
    let cloud: Arc<dyn Cloud> = Arc::new(world.clone());
    let parts = Parts::new(clusters, Some(cloud), Policies::default(), clock);
    let (end_service, ended) = oneshot::channel::<()>();
    let mut service: JoinSet<anyhow::Result<()>> = JoinSet::new();
    service.spawn(serve::run(parts, listener, async {
        // An error means that the demo itself is gone: stop as well.
        drop(ended.await);
    }));
    let mut senders: JoinSet<anyhow::Result<()>> = JoinSet::new();
    senders.spawn(pubsub::run(
        world.clone(),
        base.clone(),
        options.seed,
        screen.clone(),
    ));
    senders.spawn(scheduler::run(clock, base.clone()));

    let mut stage = Stage::new(&world, &screen);
    let end = tokio::select! {
        biased;
        () = stop => Ok(true),
        failed = service.join_next() => Err(fault_of(failed, "the service")),
        failed = senders.join_next() => Err(fault_of(failed, "a simulated sender")),
        played = stage.play(&base) => played.map(|()| false),
    };
    senders.shutdown().await;
    // An error means that it has ended already.
    end_service.send(()).ok();
    if tokio::time::timeout(LINGER, service.join_next())
        .await
        .is_err()
    {
        service.shutdown().await;
    }
    let stopped = end?;
    let story = stage.story();
    screen.close(&story, stopped)?;
    Ok(DemoResult { story, stopped })
}

/// What `join_next` says when a task ends that should not.
fn fault_of(
    ended: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>,
    who: &str,
) -> anyhow::Error {
    match ended {
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("{who} ended by itself"),
        Some(Ok(Err(error))) => error.context(format!("{who} failed")),
        Some(Err(panic)) => anyhow::Error::new(panic).context(format!("{who} failed")),
    }
}

async fn listen(asked: Option<SocketAddr>) -> anyhow::Result<TcpListener> {
    if let Some(address) = asked {
        return TcpListener::bind(address)
            .await
            .with_context(|| format!("--listen {address}: can't listen there"));
    }
    for port in PORT..PORT + PORTS {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).context("can't listen on 127.0.0.1"),
        }
    }
    bail!(
        "the ports {PORT} to {} are all taken: give one with --listen",
        PORT + PORTS - 1
    )
}
