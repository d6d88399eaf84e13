//! A cluster of which only one node is to be seen, and in which no pod is told
//! to stop any more once the drain has been stopped.

use std::sync::Arc;

use async_trait::async_trait;
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::keys;
use drainwell_core::observed::{Node, PodRef};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::driver::events::KubeEvent;
use crate::driver::ports::{CallError, Changed, Cluster, ClusterId, PodList, Watching};

pub(super) struct OneNode {
    inner: Arc<dyn Cluster>,
    name: String,
    stopped: watch::Receiver<bool>,
}

impl OneNode {
    pub(super) fn new(inner: Arc<dyn Cluster>, name: &str, stopped: watch::Receiver<bool>) -> Self {
        Self {
            inner,
            name: name.to_owned(),
            stopped,
        }
    }

    /// A call that has waited for its turn until after the stop isn't made.
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}

#[async_trait]
impl Cluster for OneNode {
    fn id(&self) -> &ClusterId {
        self.inner.id()
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        self.inner.node(name).await
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        if label != keys::MANAGED_LABEL {
            return self.inner.nodes(label, value).await;
        }
        let node = self.inner.node(&self.name).await?;
        let node = node.filter(|node| node.labels.get(label).is_some_and(|v| v == value));
        Ok(node.into_iter().collect())
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        self.inner.pods(node).await
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        self.inner.edit_node(edit).await
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        if self.is_stopped() {
            return Outcome::Stale;
        }
        self.inner.evict(pod, grace_s).await
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, now: Timestamp) -> Outcome {
        if self.is_stopped() {
            return Outcome::Stale;
        }
        self.inner.force(pod, grace_s, now).await
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        if self.is_stopped() {
            return Outcome::Stale;
        }
        self.inner.shorten(pod, grace_s).await
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        self.inner.post_event(event).await
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        self.inner.changed(watching).await
    }
}
