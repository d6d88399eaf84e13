//! The simulated cluster, and a gate before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use drainwell_app::clock::Clock;
use drainwell_app::driver::events::KubeEvent;
use drainwell_app::driver::ports::{
    CallError, Changed, Cloud, Cluster, ClusterId, PodList, Watching,
};
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::notice;
use drainwell_core::observed::{Instance, Node, PodRef};
use drainwell_sim::World;
use drainwell_sim::spec::{MaintenanceSpec, NodeSpec};
use drainwell_sim::world::WorldOptions;
use drainwell_tests::compute::Vm;
use drainwell_tests::control_plane::PROJECT;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

const ZONE: &str = "europe-west4-b";

/// The VM of a node.
pub(super) fn vm(node: usize) -> Vm {
    let id = 7_000_000_000_000_000_000 + node as u64;
    Vm::new(&format!("gpu-{node}"), ZONE, id)
}

/// A cluster of so many GPU nodes, all of them under maintenance since `since`.
pub(super) fn of_nodes(nodes: usize, since: Timestamp) -> World {
    let id = ClusterId {
        path: format!("{PROJECT}/europe-west4/c"),
        name: "c".to_owned(),
        location: "europe-west4".to_owned(),
    };
    let world = World::new(WorldOptions {
        id,
        project: PROJECT.to_owned(),
        clock: Clock::scaled(since, 1.0),
        seed: 7,
        latency: SignedDuration::ZERO,
    });
    let maintenance = MaintenanceSpec {
        notice_s: 3600,
        repair_s: 600,
        cleared_s: 60,
        reasons: Vec::new(),
    };
    for node in 0..nodes {
        let Vm { name, id, .. } = vm(node);
        world.add_node(NodeSpec::new(&name, ZONE, id).gpus("nvidia-l4", 4));
        assert!(world.announce(&name, since, maintenance.clone()));
    }
    world
}

/// The cluster and its Compute Engine, behind a gate for the writes and with a
/// switch for Compute.
#[derive(Clone)]
pub(super) struct Gate {
    world: World,
    held: Arc<watch::Sender<bool>>,
    writes: Arc<AtomicUsize>,
    compute_down: Arc<AtomicBool>,
}

impl Gate {
    pub(super) fn before(world: &World) -> Self {
        Self {
            world: world.clone(),
            held: Arc::new(watch::Sender::new(false)),
            writes: Arc::default(),
            compute_down: Arc::default(),
        }
    }

    pub(super) fn clock(&self) -> Clock {
        self.world.clock()
    }

    /// Holds up every write to a Node, until `open`.
    pub(super) fn close(&self) {
        self.held.send_replace(true);
    }

    pub(super) fn open(&self) {
        self.held.send_replace(false);
    }

    /// How many writes to a Node have come to the gate.
    pub(super) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Compute Engine gives no answers, or does again.
    pub(super) fn compute_is_down(&self, down: bool) {
        self.compute_down.store(down, Ordering::SeqCst);
    }
}

#[async_trait]
impl Cluster for Gate {
    fn id(&self) -> &ClusterId {
        self.world.id()
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        self.world.node(name).await
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        self.world.nodes(label, value).await
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        self.world.pods(node).await
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.subscribe();
        drop(held.wait_for(|held| !*held).await);
        self.world.edit_node(edit).await
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        self.world.evict(pod, grace_s).await
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, now: Timestamp) -> Outcome {
        self.world.force(pod, grace_s, now).await
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        self.world.shorten(pod, grace_s).await
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        self.world.post_event(event).await
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        self.world.changed(watching).await
    }
}

#[async_trait]
impl Cloud for Gate {
    async fn instance(&self, vm: &notice::Vm) -> Result<Option<Instance>, CallError> {
        if self.compute_down.load(Ordering::SeqCst) {
            return Err(CallError::unavailable("the test asked for this"));
        }
        self.world.instance(vm).await
    }
}
