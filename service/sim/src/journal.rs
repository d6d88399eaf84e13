//! What really happened in the world, in order: the demo prints it and tests
//! check it. Never what the service says about itself.

use drainwell_core::observed::PodRef;
use jiff::Timestamp;
use serde::Serialize;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum What {
    /// To a node, its VM, or its host.
    Node {
        /// Name of node and VM.
        node: String,
        /// What.
        change: NodeChange,
    },
    /// To a pod.
    Pod {
        /// Which.
        pod: PodRef,
        /// What.
        change: PodChange,
    },
    /// A disruption budget that allowed no eviction allows one now, or is gone.
    BudgetFreed {
        /// Its namespace.
        namespace: String,
        /// Its name.
        budget: String,
    },
}

/// What can happen to a node, its VM, or its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeChange {
    /// Compute shows a maintenance that lies ahead.
    MaintenanceAnnounced {
        /// When it begins.
        starts_at: Timestamp,
    },
    /// Compute shows it as ongoing.
    MaintenanceBegan {
        /// When the host stops.
        stops_at: Timestamp,
    },
    /// Compute shows it no more, though it never began.
    MaintenanceCancelled,
    /// Compute shows it no more.
    MaintenanceEnded,
    /// The Node has both marks now: the maintenance label and the termination
    /// taint.
    Marked {
        /// The deadline in the annotation, if it has a readable one.
        deadline: Option<Timestamp>,
    },
    /// It has neither of them any more.
    Unmarked,
    /// The host stopped, and the VM with it.
    HostStopped,
    /// The host is back, the VM boots.
    HostStarted,
    /// The Node became Ready.
    Ready,
    /// The Node is no longer Ready.
    NotReady,
}

/// What can happen to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PodChange {
    /// It was told to stop.
    Told {
        /// By which way.
        way: Way,
        /// With how much grace.
        grace_s: u32,
    },
    /// A budget of its namespace stood against its eviction.
    Blocked {
        /// Name of the budget.
        budget: String,
    },
    /// It stopped by itself, within its grace.
    Stopped {
        /// Seconds since it was first told to.
        after_s: u32,
    },
    /// It was killed at the end of its grace.
    Killed {
        /// Seconds since it was first told to stop.
        after_s: u32,
    },
    /// Its containers went down with the host, without a signal.
    Lost {
        /// Whether it had been told to stop before.
        told: bool,
    },
    /// Its containers run again after its node has booted.
    Restarted,
    /// A controller made it.
    Created {
        /// Where it was bound at once; `None`: it waits for a node.
        node: Option<String>,
    },
    /// It waited for a node and has one now.
    Bound {
        /// Which.
        node: String,
    },
}

/// By which way a pod was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Through the Eviction API.
    Evicted,
    /// Condition `DisruptionTarget`, then a DELETE, whatever its budget says.
    Forced,
    /// A DELETE of a pod that was terminating already, with a shorter grace.
    Shortened,
    /// By the cluster itself, because its node has been away for long.
    Platform,
}
