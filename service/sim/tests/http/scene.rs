//! The service on a simulated world, over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::{Cloud, Cluster, ClusterId};
use drainwell_app::ingress::Limits;
use drainwell_app::ingress::auth::Auth;
use drainwell_app::serve::{self, Options, Parts};
use drainwell_core::policy::Policies;
use drainwell_core::time::shift;
use drainwell_sim::World;
use drainwell_sim::spec::{MaintenanceSpec, NodeSpec};
use drainwell_sim::world::WorldOptions;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::SOON;
use super::client::Client;

const PROJECT: &str = "p";
const ZONE: &str = "us-central1-a";
/// The service on a world; it ends when this is dropped.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    service: JoinSet<anyhow::Result<()>>,
}

/// How it is set up.
pub(crate) struct Setup {
    pub(crate) nodes: usize,
    /// How long each call to the cluster or to Compute takes.
    latency: SignedDuration,
    pub(crate) speed: f64,
    limits: Limits,
    auth: Auth,
}

impl Setup {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            nodes: 1,
            latency: SignedDuration::ZERO,
            speed: 1.0,
            limits,
            auth: Auth::None,
        }
    }

    pub(crate) fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    pub(crate) fn latency_ms(mut self, latency: i64) -> Self {
        self.latency = SignedDuration::from_millis(latency);
        self
    }

    /// Starts it on nodes that have a maintenance since now.
    pub(crate) async fn start(self) -> Scene {
        let begin = shift(Timestamp::UNIX_EPOCH, 1_800_000_000);
        let clock = Clock::scaled(begin, self.speed);
        let world = World::new(WorldOptions {
            id: ClusterId {
                path: format!("{PROJECT}/us-central1/c"),
                name: "c".to_owned(),
                location: "us-central1".to_owned(),
            },
            project: PROJECT.to_owned(),
            clock,
            seed: 7,
            latency: self.latency,
        });
        for id in 0..self.nodes {
            let node = NodeSpec::new(&node(id), ZONE, 1000 + id as u64);
            world.add_node(node.gpus("nvidia-l4", 4));
        }
        let clusters: Vec<Arc<dyn Cluster>> = vec![Arc::new(world.clone())];
        let cloud: Arc<dyn Cloud> = Arc::new(world.clone());
        let parts = Parts {
            options: Options {
                tick_hold: Duration::ZERO,
                limits: self.limits,
                auth: self.auth,
                ..Options::default()
            },
            ..Parts::new(clusters, Some(cloud), Policies::default(), clock)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let mut service = JoinSet::new();
        service.spawn(serve::run(parts, listener, async {
            drop(stopped.await);
        }));
        Scene {
            world,
            address,
            stop: Some(stop),
            service,
        }
    }
}

pub(crate) fn node(id: usize) -> String {
    format!("gpu-{id}")
}

impl Scene {
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Compute shows a maintenance of this node since now.
    pub(crate) fn announce(&self, id: usize) {
        let spec = MaintenanceSpec {
            notice_s: 3600,
            repair_s: 600,
            cleared_s: 90,
            reasons: Vec::new(),
        };
        let now = self.world.clock().now();
        assert!(self.world.announce(&node(id), now, spec));
    }

    /// The entry that a maintenance of a node's VM is ongoing since now.
    pub(crate) fn ongoing(&self, id: usize) -> Value {
        entry(&node(id), 1000 + id as u64, self.world.clock().now())
    }

    /// Asks it to stop, and waits for its end.
    pub(crate) async fn end(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        let ended = tokio::time::timeout(SOON, self.service.join_next()).await;
        ended.unwrap().unwrap().unwrap().unwrap();
    }
}

pub(crate) fn entry(vm: &str, id: u64, at: Timestamp) -> Value {
    json!({
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "methodName": "compute.instances.upcomingMaintenance",
            "resourceName": format!("projects/{PROJECT}/zones/{ZONE}/instances/{vm}"),
            "serviceName": "compute.googleapis.com",
            "status": {"message": "Maintenance is ongoing for this instance."},
            "metadata": {"maintenanceStatus": "ONGOING", "windowStartTime": at},
        },
        "insertId": format!("-{vm}"),
        "resource": {
            "type": "gce_instance",
            "labels": {"instance_id": id.to_string(), "project_id": PROJECT, "zone": ZONE},
        },
        "timestamp": at,
    })
}
