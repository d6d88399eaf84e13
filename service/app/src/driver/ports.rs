//! The two ports of the driver: a Kubernetes cluster, and Compute Engine.
//! Each has two implementations, the real adapter and the simulated world.
//!
//! No implementation retries: the next pass does. Each call has a bound of its
//! own and returns within it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::notice::Vm;
use drainwell_core::observed::{Instance, Node, Pod, PodRef};
use jiff::Timestamp;

use super::events::KubeEvent;

/// Which cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterId {
    /// As reports name it: `PROJECT/LOCATION/NAME`, or a kubeconfig context.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Its region or zone; empty if unknown.
    pub location: String,
}

/// Why a call on a cluster or on Compute had no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// We lack a permission; someone has to grant it.
    #[error("permission missing: {what}")]
    Denied {
        /// Verb and resource.
        what: String,
    },
    /// It is refused however often we ask.
    #[error("refused: {why}")]
    Refused {
        /// In the server's words.
        why: String,
    },
    /// The object has changed since it was read.
    #[error("changed since it was read")]
    Stale,
    /// Down, slow, or throttling.
    #[error("{why}")]
    Unavailable {
        /// What went wrong.
        why: String,
        /// How long the server asked us to wait.
        after: Option<Duration>,
    },
}

impl CallError {
    /// An error that another try may not have.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable {
            why: why.into(),
            after: None,
        }
    }
}

/// The pods of one node, at one moment.
#[derive(Debug, Clone, Default)]
pub struct PodList {
    /// All of them.
    pub pods: Vec<Pod>,
    /// The list's resourceVersion: a watch from here misses nothing.
    pub version: String,
}

/// What to wake for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watching {
    /// Nodes whose pods are waited for.
    pub nodes: BTreeMap<String, Awaited>,
    /// Namespaces in which a budget blocks a pod.
    pub budgets: BTreeSet<String>,
}

/// The pods of a node that are waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The version at which they were listed: a watch from here misses nothing.
    pub version: String,
    /// Their UIDs.
    pub uids: BTreeSet<String>,
}

/// Why a watch woke us. Says where to look; the pass sees for itself what is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changed {
    /// A pod is gone, finished, or new: on this node, or nobody knows where.
    Pods(Option<String>),
    /// A budget in this namespace allows disruptions (or is gone).
    Budget(String),
    /// All of these, told at about the same time.
    Several(Vec<Self>),
}

/// The right to make one call on a pod, until it is dropped.
#[derive(Default)]
pub struct Turn {
    _held: Option<Box<dyn Send>>,
}

impl Turn {
    /// Lets go of `held` when the call is over.
    pub fn holding(held: impl Send + 'static) -> Self {
        Self {
            _held: Some(Box::new(held)),
        }
    }
}

/// A Kubernetes cluster.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Which one.
    fn id(&self) -> &ClusterId;

    /// One Node, by a consistent read.
    async fn node(&self, name: &str) -> Result<Option<Node>, CallError>;

    /// The Nodes with this label, by a consistent read.
    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError>;

    /// The pods bound to a node, by a consistent read.
    async fn pods(&self, node: &str) -> Result<PodList, CallError>;

    /// Applies a patch to a Node; returns the Node as it is then.
    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError>;

    /// Waits until a call on a pod of a node that stops at `deadline` may be
    /// made. Where calls have to queue, the earliest deadline is first.
    async fn turn(&self, _deadline: Timestamp) -> Turn {
        Turn::default()
    }

    /// Asks for a pod's eviction, with its own grace or a shorter one.
    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome;

    /// Sets condition DisruptionTarget (at `now`) and deletes the pod.
    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, now: Timestamp) -> Outcome;

    /// Deletes a pod that is terminating already, with a shorter grace.
    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome;

    /// Writes an Event; that it is there already is no error.
    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError>;

    /// Returns when something that is watched has changed, or the watch was
    /// lost. Dropping it ends the watch.
    async fn changed(&self, watching: &Watching) -> Changed;
}

/// Compute Engine.
#[async_trait]
pub trait Cloud: Send + Sync {
    /// A VM, or `None` when there is no such VM.
    async fn instance(&self, vm: &Vm) -> Result<Option<Instance>, CallError>;
}
