//! Pulling from Google's own in-memory Pub/Sub: the whole service in this
//! process, on a simulated cluster that can be held up at its writes.

#![expect(clippy::unwrap_used, reason = "a test reports what is wrong by ending")]

mod delivery;
mod stopping;
mod trouble;
mod world;

use std::sync::Arc;

use anyhow::ensure;
use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::{Cloud, Cluster};
use drainwell_app::pull::{Pace, PullConfig, Puller};
use drainwell_app::serve::{self, Parts};
use drainwell_core::policy::Policies;
use drainwell_sim::World;
use drainwell_sim::journal::{NodeChange, What};
use drainwell_tests::fixture::ongoing;
use drainwell_tests::pubsub::PubSub;
use drainwell_tests::wait::{eventually, millis, secs};
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::world::{Gate, vm};

const SUBSCRIPTION: &str = "projects/p/subscriptions/drainwell";

/// Far more than anything here takes on a busy machine.
const BOUND: std::time::Duration = secs(60);

/// Waits that a test can wait for.
const PACE: Pace = Pace {
    hold: millis(200),
    denied: millis(300),
    first: millis(100),
    most: millis(1000),
    calm: millis(500),
};

/// A simulated cluster of GPU nodes under maintenance, Pub/Sub with one
/// subscription, and the service that pulls from it.
struct Scene {
    pubsub: PubSub,
    world: World,
    gate: Gate,
    since: Timestamp,
    service: Service,
}

/// The service in this process.
struct Service {
    url: String,
    stop: watch::Sender<bool>,
    running: JoinSet<anyhow::Result<()>>,
}

impl Scene {
    async fn new(nodes: usize) -> Self {
        let pubsub = PubSub::start().await.unwrap();
        pubsub.subscribe(SUBSCRIPTION).await.unwrap();
        Self::on(pubsub, nodes, &[SUBSCRIPTION]).await
    }

    async fn on(pubsub: PubSub, nodes: usize, subscriptions: &[&str]) -> Self {
        let since = Timestamp::now();
        let world = world::of_nodes(nodes, since);
        let gate = Gate::before(&world);
        let service = Service::start(&pubsub, &gate, subscriptions).await;
        Self {
            pubsub,
            world,
            gate,
            since,
            service,
        }
    }

    /// The entry of the maintenance of a node.
    fn entry(&self, node: usize) -> Value {
        ongoing(&vm(node), self.since)
    }

    /// How often a node was marked.
    fn marked(&self, node: usize) -> usize {
        let marked = |what: &What| {
            matches!(what, What::Node { node: name, change: NodeChange::Marked { .. } }
                if *name == vm(node).name)
        };
        let journal = self.world.journal();
        journal.iter().filter(|entry| marked(&entry.what)).count()
    }

    async fn is_marked(&self, node: usize) {
        eventually(BOUND, "the node is marked", async || {
            ensure!(self.marked(node) > 0, "node {node} is not marked");
            Ok(())
        })
        .await;
    }

    async fn are_acknowledged(&self, ids: &[String]) {
        eventually(BOUND, "the messages are acknowledged", async || {
            self.pubsub.all_acknowledged(ids).await
        })
        .await;
    }
}

impl Service {
    async fn start(pubsub: &PubSub, gate: &Gate, subscriptions: &[&str]) -> Self {
        Self::at(PACE, pubsub, gate, subscriptions).await
    }

    async fn at(pace: Pace, pubsub: &PubSub, gate: &Gate, subscriptions: &[&str]) -> Self {
        let cluster: Arc<dyn Cluster> = Arc::new(gate.clone());
        let cloud: Arc<dyn Cloud> = Arc::new(gate.clone());
        let clock: Clock = gate.clock();
        let mut parts = Parts::new(vec![cluster], Some(cloud), Policies::default(), clock);
        let config = PullConfig::of(subscriptions, Some(&pubsub.address));
        let puller = Puller::new(&config).await.unwrap().unwrap();
        parts.pull = Some(puller.with_pace(pace));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, mut stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(serve::run(parts, listener, async move {
            // Dropped without a word, it is aborted with the set.
            if stopped.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Self { url, stop, running }
    }

    /// SIGTERM, so to speak.
    fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has ended, and well.
    async fn ended(&mut self) {
        let ended = tokio::time::timeout(BOUND, self.running.join_next()).await;
        ended.unwrap().unwrap().unwrap().unwrap();
    }

    /// Status and body of `/health/ready`.
    async fn ready(&self) -> anyhow::Result<(u16, String)> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let answer = http
            .get(format!("{}/health/ready", self.url))
            .send()
            .await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}
