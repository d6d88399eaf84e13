//! The service against a real API server: notices in over HTTP, Kubernetes
//! objects out. One binary, so that one control plane serves all of it.

#![expect(
    clippy::large_futures,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test reports what is wrong by ending, and need not be small"
)]

mod budgets;
mod clusters;
mod companions;
mod compute_answers;
mod draining;
mod ending;
mod ending_in_time;
mod faults;
mod input;
mod manual;
mod many;
mod marking;
mod pace;
mod property;
mod pulling;
mod refusals;
mod report;
mod scripts;
mod settings;
mod slices;
mod telling;
mod ticks;

use anyhow::ensure;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::NodeSpec;
use drainwell_tests::service::{Answer, Service};
use drainwell_tests::wait::{eventually, secs};
use drainwell_tests::{Lease, lease};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::Value;

const LABEL: &str = "cloud.google.com/active-node-maintenance";
const TAINT: &str = "cloud.google.com/impending-node-termination";
const MANAGED: &str = "drainwell.dev/managed";
const INTENT: &str = "drainwell.dev/maintenance";

/// Long enough that no deadline comes into play.
const UNHURRIED: &str = "windows: { gpu: 10m, tpu: 10m, other: 10m }";

/// A tick that answers after one pass.
const SHORT_TICKS: &[&str] = &["--tick-hold", "0"];

/// A cluster with one GPU node, whose VM Compute shows under maintenance since
/// now, and the service.
struct Scene {
    service: Service,
    node: NodeSpec,
    since: Timestamp,
    cluster: Lease,
}

impl Scene {
    async fn new(policy: &str) -> Self {
        Self::with(policy, NodeSpec::gpu("gke-train-a3-0001")).await
    }

    async fn with(policy: &str, node: NodeSpec) -> Self {
        let cluster = lease().await;
        cluster.add_node(&node).await.unwrap();
        let since = Timestamp::now();
        cluster
            .compute
            .set_maintenance(&node.name, Maintenance::ongoing(since));
        let service = cluster
            .service()
            .policy(policy)
            .arguments(SHORT_TICKS)
            .start()
            .await
            .unwrap();
        Self {
            service,
            node,
            since,
            cluster,
        }
    }

    /// Pushes an ongoing notice as of the scene's beginning.
    async fn begin(&self) -> Answer {
        self.push(&drainwell_tests::fixture::ongoing(
            &self.node.vm(),
            self.since,
        ))
        .await
    }

    async fn push(&self, entry: &Value) -> Answer {
        self.service.push_wrapped(entry).await.unwrap()
    }

    async fn node(&self) -> Node {
        self.cluster.nodes().get(&self.node.name).await.unwrap()
    }

    async fn is_unmarked(&self, bound: u64) {
        eventually(secs(bound), "the node is unmarked", async || {
            let node = self.cluster.nodes().get(&self.node.name).await?;
            ensure!(unmarked(&node), "{:?} {:?}", node.labels(), taints(&node));
            Ok(())
        })
        .await;
    }

    async fn is_gone(&self, pod: &Pod, bound: u64) {
        let (pods, uid) = (self.cluster.pods(&pod.namespace().unwrap()), pod.uid());
        eventually(secs(bound), "the pod is gone", async || {
            let there = pods.get_opt(&pod.name_any()).await?;
            ensure!(
                there.and_then(|p| p.uid()) != uid,
                "{} is still there",
                pod.name_any()
            );
            Ok(())
        })
        .await;
    }

    /// The intent on the node, for those who look at its fields.
    async fn intent(&self) -> Value {
        intent(&self.node().await)
    }
}

/// `outcome` and `reason` of an answer with status 200.
fn outcome(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let text = |key: &str| answer.body[key].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("reason"))
}

fn ignored(answer: &Answer) -> String {
    let (outcome, reason) = outcome(answer);
    assert_eq!(outcome, "ignored", "{}", answer.body);
    reason
}

fn intent(node: &Node) -> Value {
    let text = node
        .annotations()
        .get(INTENT)
        .expect("the node has an intent");
    serde_json::from_str(text).unwrap()
}

fn taints(node: &Node) -> Vec<(String, String)> {
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    taints.map(|t| (t.key.clone(), t.effect.clone())).collect()
}

fn tainted(node: &Node) -> bool {
    taints(node).contains(&(TAINT.to_owned(), "NoSchedule".to_owned()))
}

fn marked(node: &Node) -> bool {
    node.labels().contains_key(LABEL) && tainted(node) && node.annotations().contains_key(INTENT)
}

fn unmarked(node: &Node) -> bool {
    let labels = node.labels();
    !labels.contains_key(LABEL)
        && !labels.contains_key(MANAGED)
        && !tainted(node)
        && !node.annotations().contains_key(INTENT)
}

fn uids(pods: &[&Pod]) -> Vec<String> {
    pods.iter().map(|p| p.uid().unwrap()).collect()
}
