//! The service on a simulated world, over HTTP.

use std::sync::Arc;

use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::{Cloud, Cluster, ClusterId};
use drainwell_app::serve::{self, Parts};
use drainwell_core::policy::Policies;
use drainwell_sim::World;
use drainwell_sim::spec::{MaintenanceSpec, NodeSpec};
use drainwell_sim::world::WorldOptions;
use jiff::SignedDuration;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::forms::{NOW, Sent, time};
use super::log::Log;

pub(crate) const PROJECT: &str = "helios-ml";
pub(crate) const ZONE: &str = "europe-west4-b";

/// A service that serves one cluster; its node `NAME-n` has instance id
/// `1000 + n`. All but the last are under maintenance.
pub(crate) struct Service {
    pub(crate) log: Log,
    pub(crate) world: World,
    pub(crate) url: String,
    http: reqwest::Client,
    _service: JoinSet<anyhow::Result<()>>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Service {
    pub(crate) async fn start(nodes: u64) -> Self {
        Self::with(nodes, SignedDuration::ZERO, true).await
    }

    /// One that doesn't ask Compute.
    pub(crate) async fn alone(nodes: u64) -> Self {
        Self::with(nodes, SignedDuration::ZERO, false).await
    }

    /// One whose calls take so long.
    pub(crate) async fn slow(nodes: u64, latency: SignedDuration) -> Self {
        Self::with(nodes, latency, true).await
    }

    async fn with(nodes: u64, latency: SignedDuration, asks: bool) -> Self {
        let log = Log::capture();
        let clock = Clock::scaled(time(NOW), 1.0);
        let world = World::new(WorldOptions {
            id: ClusterId {
                path: format!("{PROJECT}/europe-west4/burst"),
                name: "burst".to_owned(),
                location: "europe-west4".to_owned(),
            },
            project: PROJECT.to_owned(),
            clock,
            seed: 3,
            latency,
        });
        for n in 0..nodes {
            let name = node(n);
            world.add_node(NodeSpec::new(&name, ZONE, 1000 + n).gpus("nvidia-h100-80gb", 8));
            let maintenance = MaintenanceSpec {
                notice_s: 3600,
                repair_s: 600,
                cleared_s: 90,
                reasons: vec!["PLANNED_UPDATE".to_owned()],
            };
            if n + 1 < nodes {
                assert!(world.announce(&name, clock.now(), maintenance));
            }
        }
        let clusters: Vec<Arc<dyn Cluster>> = vec![Arc::new(world.clone())];
        let cloud = asks.then(|| Arc::new(world.clone()) as Arc<dyn Cloud>);
        let parts = Parts::new(clusters, cloud, Policies::default(), clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut service = JoinSet::new();
        service.spawn(serve::run(parts, listener, std::future::pending()));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            log,
            world,
            url,
            http,
            _service: service,
        }
    }

    pub(crate) async fn post_to(&self, path: &str, sent: Sent) -> Answer {
        let request = self.http.post(format!("{}{path}", self.url));
        let response = request
            .headers(sent.headers)
            .body(sent.body)
            .send()
            .await
            .unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Answer {
            status,
            headers,
            text,
            body,
        }
    }

    pub(crate) async fn post(&self, sent: Sent) -> Answer {
        self.post_to("/", sent).await
    }
}

pub(crate) fn node(n: u64) -> String {
    format!("gke-burst-a3-{n}")
}
