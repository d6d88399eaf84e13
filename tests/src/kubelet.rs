//! Stands in for the kubelets of all nodes: starts pods, stops them in the time
//! that they take, and reports how nodes are. It remembers with which grace and
//! under which condition each pod went.

use std::sync::Arc;

use drainwell_app::clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::watch::follow;
use worker::{Shared, Worker};

mod worker;

/// Pod annotation: how many milliseconds its containers take to end after
/// SIGTERM. Without it they end at once; a longer time than the pod's grace is
/// cut off by SIGKILL.
pub const SHUTDOWN_MS: &str = "test.drainwell.dev/shutdown-ms";
/// Pod annotation: `never` leaves the pod Pending, `unready` starts it without
/// ever making it Ready.
pub const START: &str = "test.drainwell.dev/start";

/// How a pod went.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The grace that it was given in the end.
    pub grace_s: i64,
    /// Whether SIGKILL ended it before its own shutdown was through.
    pub killed: bool,
    /// The condition `DisruptionTarget` that it had, if any.
    pub disruption_target: Option<PodCondition>,
    /// When its containers had ended.
    pub at: Timestamp,
}

/// All kubelets of the cluster, while this lives.
pub struct Kubelet {
    client: Client,
    shared: Arc<Shared>,
    clock: Clock,
    _tasks: JoinSet<()>,
}

impl Kubelet {
    /// Takes care of every pod that is or will be bound to a node, and gives it
    /// its time to end by this clock.
    pub async fn start(client: Client, clock: Clock) -> anyhow::Result<Self> {
        let mut tasks = JoinSet::new();
        let shared = Arc::new(Shared::default());
        let events = follow(Api::<Pod>::all(client.clone()), &mut tasks).await?;
        let worker = Worker {
            client: client.clone(),
            shared: shared.clone(),
            clock,
        };
        tasks.spawn(worker.run(events));
        Ok(Self {
            client,
            shared,
            clock,
            _tasks: tasks,
        })
    }

    /// How the pod with this uid went, once it has.
    pub fn departure(&self, uid: &str) -> Option<Departure> {
        self.shared.lock().departures.get(uid).cloned()
    }

    /// When the next pod's containers end, as far as kubelets are at work.
    pub fn next_end(&self) -> Option<Timestamp> {
        self.shared.lock().next_end()
    }

    /// How all pods went so far.
    pub fn departures(&self) -> Vec<Departure> {
        self.shared.lock().departures.values().cloned().collect()
    }

    /// The node's kubelet does nothing from now on, as when its host is down:
    /// no pod starts, and none that was told to leave does.
    pub fn halt(&self, node: &str) {
        self.shared.lock().halted.insert(node.into());
    }

    /// The node's kubelet works again.
    pub fn resume(&self, node: &str) {
        self.shared.lock().halted.remove(node);
        self.shared.changed.notify_one();
    }

    /// Ends a pod's containers by themselves: with exit code 0 or another one.
    pub async fn finish(&self, pod: &Pod, success: bool) -> anyhow::Result<Pod> {
        let phase = if success { "Succeeded" } else { "Failed" };
        self.patch_pod(
            pod,
            json!({ "phase": phase, "conditions": readiness(false) }),
        )
        .await
    }

    /// Makes a running pod Ready or not.
    pub async fn set_pod_ready(&self, pod: &Pod, ready: bool) -> anyhow::Result<Pod> {
        self.patch_pod(pod, json!({ "conditions": readiness(ready) }))
            .await
    }

    async fn patch_pod(&self, pod: &Pod, status: Value) -> anyhow::Result<Pod> {
        Ok(patch_status(&self.client, pod, status).await?)
    }

    /// Turns the node's condition Ready to True or, as when its kubelet no
    /// longer reports, to Unknown. The transition is now.
    pub async fn set_node_ready(&self, node: &str, ready: bool) -> anyhow::Result<Node> {
        let now = self.clock.now().to_string();
        let status = if ready { "True" } else { "Unknown" };
        let condition = json!({
            "type": "Ready", "status": status, "reason": "SetByTest",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        self.patch_node(node, json!({ "conditions": [condition] }))
            .await
    }

    /// Gives the node another boot id, as a reboot does.
    pub async fn set_boot_id(&self, node: &str, boot_id: &str) -> anyhow::Result<Node> {
        self.patch_node(node, json!({ "nodeInfo": { "bootID": boot_id } }))
            .await
    }

    /// Sets how much of a resource (`nvidia.com/gpu`, `google.com/tpu`) there is.
    pub async fn set_capacity(&self, node: &str, name: &str, n: u32) -> anyhow::Result<Node> {
        let amount = json!({ name: n.to_string() });
        self.patch_node(node, json!({ "capacity": amount, "allocatable": amount }))
            .await
    }

    async fn patch_node(&self, name: &str, status: Value) -> anyhow::Result<Node> {
        let nodes = Api::<Node>::all(self.client.clone());
        let patch = Patch::Strategic(json!({ "status": status }));
        Ok(nodes
            .patch_status(name, &PatchParams::default(), &patch)
            .await?)
    }
}

/// The conditions of a pod that is (not) ready.
fn readiness(ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    let now = Timestamp::now().to_string();
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": now });
    json!([
        condition("Initialized", "True"),
        condition("PodScheduled", "True"),
        condition("ContainersReady", status),
        condition("Ready", status),
    ])
}

async fn patch_status(client: &Client, pod: &Pod, status: Value) -> kube::Result<Pod> {
    let namespace = pod.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    // The uid makes the API server refuse to touch a successor of that name.
    let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
        .await
}
