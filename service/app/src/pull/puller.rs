//! One task a subscription, which opens its stream again whenever it has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use google_cloud_auth::credentials::{Credentials, anonymous};
use google_cloud_pubsub::client::Subscriber;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::pace::Pace;
use super::settings::PullConfig;
use super::stream::Stream;
use super::tries::{Counted, Tries};
use super::trouble::Trouble;
use crate::clock::Clock;
use crate::reception::Reception;
use crate::troubles::Troubles;

/// Messages of all subscriptions that are worked on at once. Each costs up to
/// three calls, which a cluster's own lanes hold back further.
const HANDS: usize = 128;

/// What Pub/Sub's API asks for.
const SCOPE: &str = "https://www.googleapis.com/auth/pubsub";
/// A client asks its credentials which cloud it is in, by the metadata server.
const MADE_WITHIN: Duration = Duration::from_secs(15);

/// Pulls from subscriptions.
pub struct Puller {
    sources: Vec<Source>,
    pace: Pace,
}

/// A subscription. Its client is its own, so that its tries can be told from
/// those of others.
struct Source {
    subscription: String,
    client: Subscriber,
    tries: Arc<Tries>,
}

/// What the work on all messages of a subscription shares.
pub(super) struct Shared {
    pub(super) reception: Arc<Reception>,
    pub(super) hands: Arc<Semaphore>,
    pub(super) clock: Clock,
    pub(super) pace: Pace,
    pub(super) tries: Arc<Tries>,
    subscription: String,
    troubles: Troubles,
}

impl Puller {
    /// A puller, if there is something to pull from. Whether Pub/Sub lets us
    /// shows only later.
    ///
    /// # Errors
    /// When a setting can't be right.
    pub async fn new(config: &PullConfig) -> anyhow::Result<Option<Self>> {
        let subscriptions = config.subscriptions().await?;
        if subscriptions.is_empty() {
            return Ok(None);
        }
        // One for all, so that they share the token.
        let credentials = match config.emulator() {
            Some(_) => anonymous::Builder::new().build(),
            None => google_cloud_auth::credentials::Builder::default()
                .with_scopes([SCOPE])
                .build()
                .context("--pull: no credentials")?,
        };
        if let Some(host) = config.emulator() {
            tracing::warn!("Pulling from the Pub/Sub emulator at {host}, without credentials.");
        }
        let mut sources = Vec::new();
        for subscription in subscriptions {
            let tries = Arc::new(Tries::default());
            let credentials = Credentials::from(Counted {
                credentials: credentials.clone(),
                tries: Arc::clone(&tries),
            });
            let mut client = Subscriber::builder().with_credentials(credentials);
            if let Some(host) = config.emulator() {
                client = client.with_endpoint(format!("http://{host}"));
            }
            let client = tokio::time::timeout(MADE_WITHIN, client.build())
                .await
                .with_context(|| format!("--pull {subscription}: the credentials say nothing"))?
                .with_context(|| format!("--pull {subscription}: no client can be made"))?;
            sources.push(Source {
                subscription,
                client,
                tries,
            });
        }
        let pace = Pace::default();
        Ok(Some(Self { sources, pace }))
    }

    /// The same at another pace.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Starts pulling, until `stop` shows true.
    pub fn start(
        self,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        reception: &Arc<Reception>,
        troubles: &Troubles,
        clock: Clock,
        stop: &watch::Receiver<bool>,
    ) {
        let hands = Arc::new(Semaphore::new(HANDS));
        for source in self.sources {
            let Source {
                subscription,
                client,
                tries,
            } = source;
            let shared = Arc::new(Shared {
                reception: Arc::clone(reception),
                hands: Arc::clone(&hands),
                clock,
                pace: self.pace,
                tries,
                subscription,
                troubles: troubles.clone(),
            });
            let stop = stop.clone();
            tasks.spawn(async move {
                run(&client, &shared, stop).await;
                Ok(())
            });
        }
    }
}

impl Shared {
    /// The stream works.
    pub(super) fn calm(&self) {
        if self.troubles.over(&self.subscription) {
            tracing::info!("Messages can be pulled from {} again.", self.subscription);
        }
    }

    fn trouble(&self, trouble: &Trouble) {
        let new = self
            .troubles
            .begin(&self.subscription, trouble.what.clone());
        if new || trouble.denied {
            trouble.tell();
        }
    }

    /// The stream works when it goes on without an error, and isn't opened over
    /// and over.
    async fn watch_over(&self) -> Infallible {
        loop {
            tokio::time::sleep(self.pace.calm).await;
            match self.tries.in_vain() {
                Some(why) => self.trouble(&Trouble::in_vain(&self.subscription, &why)),
                None => self.calm(),
            }
        }
    }
}

async fn run(client: &Subscriber, shared: &Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut failures = 0;
    tracing::info!("Pulling from {}.", shared.subscription);
    loop {
        let opened = Instant::now();
        let mut stream = Stream::new(client, &shared.subscription);
        let reading = stop.clone();
        let ended = tokio::select! {
            biased;
            // An error means that the sender is gone: stop as well.
            _ = stop.wait_for(|stop| *stop) => None,
            ended = stream.read(shared, &reading) => Some(ended),
            never = shared.watch_over() => match never {},
        };
        let Some(error) = ended else {
            return stream.end().await;
        };
        shared.tries.answered();
        let was_good = opened.elapsed() > shared.pace.calm;
        failures = if was_good { 1 } else { failures + 1 };
        let trouble = Trouble::of(error.as_ref(), &shared.subscription);
        shared.trouble(&trouble);
        stream.end().await;
        let pause = shared.pace.pause(trouble.denied, failures);
        // Over at once when the service stops.
        drop(tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await);
    }
}
