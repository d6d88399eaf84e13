//! One task a subscription, which opens its stream again whenever it has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::Subscriber;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::settings::PullConfig;
use super::stream::Stream;
use super::trouble::Trouble;
use crate::clock::Clock;
use crate::reception::Reception;
use crate::troubles::Troubles;

/// Messages of all subscriptions that are worked on at once. Each costs up to
/// three calls, which a cluster's own lanes hold back further.
const HANDS: usize = 128;

/// How long to wait, in real time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// A message that has to come again is kept so long before it goes back: as
    /// long as a sender that pushes is told to wait.
    pub hold: Duration,
    /// Between tries when somebody has to grant something first.
    pub denied: Duration,
    /// Between tries after another error: at first, and at most.
    pub first: Duration,
    /// The most.
    pub most: Duration,
    /// A stream without an error for so long is a good one. Idle streams don't
    /// tell: the first that a server says may be a message.
    pub calm: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(10),
            denied: Duration::from_secs(30),
            first: Duration::from_secs(1),
            most: Duration::from_secs(60),
            calm: Duration::from_secs(10),
        }
    }
}

impl Pace {
    /// Three quarters to five quarters of it, so that what began together
    /// doesn't come back together.
    pub(super) fn jittered(&self, pause: Duration) -> Duration {
        pause.mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    fn pause(&self, denied: bool, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let pause = match denied {
            true => self.denied,
            false => self.first.saturating_mul(doubled).min(self.most),
        };
        self.jittered(pause)
    }
}

/// Pulls from subscriptions.
pub struct Puller {
    client: Subscriber,
    subscriptions: Vec<String>,
    pace: Pace,
}

/// What the work on all messages of a subscription shares.
pub(super) struct Shared {
    pub(super) reception: Arc<Reception>,
    pub(super) hands: Arc<Semaphore>,
    pub(super) clock: Clock,
    pub(super) pace: Pace,
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
        let Some(first) = subscriptions.first() else {
            return Ok(None);
        };
        // One client, so that the subscriptions share credentials and connections.
        let mut client = Subscriber::builder();
        if let Some(host) = config.emulator() {
            tracing::warn!("Pulling from the Pub/Sub emulator at {host}, without credentials.");
            let endpoint = format!("http://{host}");
            let nobody = anonymous::Builder::new().build();
            client = client.with_endpoint(endpoint).with_credentials(nobody);
        }
        let client = client.build().await;
        let client =
            client.with_context(|| format!("--pull {first}: no client of Pub/Sub can be made"))?;
        Ok(Some(Self {
            client,
            subscriptions,
            pace: Pace::default(),
        }))
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
        for subscription in self.subscriptions {
            let shared = Shared {
                reception: Arc::clone(reception),
                hands: Arc::clone(&hands),
                clock,
                pace: self.pace,
                subscription,
                troubles: troubles.clone(),
            };
            let (client, stop) = (self.client.clone(), stop.clone());
            tasks.spawn(async move {
                run(&client, &Arc::new(shared), stop).await;
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

    /// The stream works when it goes on without an error.
    async fn calm_later(&self) -> Infallible {
        tokio::time::sleep(self.pace.calm).await;
        self.calm();
        std::future::pending().await
    }
}

async fn run(client: &Subscriber, shared: &Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut failures = 0;
    tracing::info!("Pulling from {}.", shared.subscription);
    while !*stop.borrow() {
        let opened = Instant::now();
        let mut stream = Stream::new(client, &shared.subscription);
        let reading = stop.clone();
        let ended = tokio::select! {
            biased;
            // An error means that the sender is gone: stop as well.
            _ = stop.wait_for(|stop| *stop) => None,
            ended = stream.read(shared, &reading) => Some(ended),
            never = shared.calm_later() => match never {},
        };
        if let Some(error) = ended {
            let was_good = opened.elapsed() > shared.pace.calm;
            failures = if was_good { 1 } else { failures + 1 };
            let trouble = Trouble::of(error.as_ref(), &shared.subscription);
            trouble.tell();
            shared
                .troubles
                .begin(&shared.subscription, trouble.what.clone());
            stream.end().await;
            let pause = shared.pace.pause(trouble.denied, failures);
            // Over at once when the service stops.
            drop(tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await);
        } else {
            stream.end().await;
        }
    }
}
