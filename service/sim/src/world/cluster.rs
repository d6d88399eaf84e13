//! The world as the service's port to a Kubernetes cluster.

use async_trait::async_trait;
use drainwell_app::driver::events::KubeEvent;
use drainwell_app::driver::ports::{CallError, Changed, Cluster, ClusterId, PodList, Watching};
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::observed::{Node, PodRef};
use jiff::Timestamp;

use super::World;
use crate::journal::Way;

#[async_trait]
impl Cluster for World {
    fn id(&self) -> &ClusterId {
        &self.0.id
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        self.wait_for_call().await;
        Ok(self.find_node(name))
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        self.wait_for_call().await;
        Ok(self.list_nodes(label, value))
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        self.wait_for_call().await;
        Ok(self.list_pods(node))
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        self.wait_for_call().await;
        self.edit_now(edit)
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        self.wait_for_call().await;
        self.evict_now(pod, grace_s)
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, _now: Timestamp) -> Outcome {
        // Two calls: the status patch, then the DELETE.
        self.wait_for_call().await;
        self.wait_for_call().await;
        self.delete_now(pod, grace_s, Way::Forced)
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        self.wait_for_call().await;
        self.delete_now(pod, Some(grace_s), Way::Shortened)
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        self.wait_for_call().await;
        self.note_event(event);
        Ok(())
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        let mut since = None;
        self.until(|state| {
            let since = *since.get_or_insert(state.revision);
            let changed = watching.nodes.iter().find(|(node, awaited)| {
                // A version that can't be read is a watch that is lost.
                let Ok(listed_at) = awaited.version.parse::<u64>() else {
                    return true;
                };
                state
                    .nodes
                    .get(*node)
                    .is_none_or(|n| n.pods_changed > listed_at)
            });
            if let Some((node, _)) = changed {
                return Some(Changed::Pods(Some(node.clone())));
            }
            let freed = watching
                .budgets
                .iter()
                .find(|ns| state.budgets_freed(ns) > since);
            freed.map(|namespace| Changed::Budget(namespace.clone()))
        })
        .await
    }
}
