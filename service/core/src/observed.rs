//! What was seen of the world, as plain values: nodes, pods, VMs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::keys;

/// A Node object, as far as decisions depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`, the VM's name.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, the precondition of every write.
    pub resource_version: String,
    /// `spec.providerID`, on GKE `gce://PROJECT/ZONE/NAME`.
    pub provider_id: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`, in order: a JSON patch removes by index.
    pub taints: Vec<Taint>,
    /// Whether condition Ready is True.
    pub ready: bool,
    /// When condition Ready last changed.
    pub ready_since: Option<Timestamp>,
    /// `status.nodeInfo.bootID`: another one means that the VM has booted.
    pub boot_id: Option<String>,
    /// `status.capacity`, of resources that are counted in whole numbers.
    pub capacity: BTreeMap<String, u64>,
}

/// One of `spec.taints`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What a node computes on; it decides how long its notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// GPU: an hour's notice.
    Gpu,
    /// TPU: five minutes' notice.
    Tpu,
    /// Anything else.
    #[serde(other)]
    Other,
}

impl Node {
    /// The node's kind: by GKE's label, else by the resource it offers.
    #[must_use]
    pub fn kind(&self) -> Kind {
        let has = |label: &str, resource: &str| {
            self.labels.contains_key(label) || self.capacity.get(resource).is_some_and(|n| *n > 0)
        };
        if has(keys::TPU_LABEL, keys::TPU_RESOURCE) {
            Kind::Tpu
        } else if has(keys::GPU_LABEL, keys::GPU_RESOURCE) {
            Kind::Gpu
        } else {
            Kind::Other
        }
    }

    /// Whether people asked us to leave this node alone.
    #[must_use]
    pub fn skipped(&self) -> bool {
        self.annotations
            .get(keys::SKIP_ANNOTATION)
            .is_some_and(|v| v == "true")
    }

    /// The VM's numeric id, where GKE has written it.
    #[must_use]
    pub fn instance_id(&self) -> Option<u64> {
        self.annotations
            .get(keys::INSTANCE_ID_ANNOTATION)?
            .parse()
            .ok()
    }

    /// Index of the termination taint, whoever put it there.
    #[must_use]
    pub fn termination_taint(&self) -> Option<usize> {
        self.taints
            .iter()
            .position(|t| t.key == keys::TERMINATION_TAINT && t.effect == keys::NO_SCHEDULE)
    }
}

/// Which pod, exactly: a successor of the same name has another UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID, the precondition of every eviction and deletion.
    pub uid: String,
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Pod object, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Identity.
    pub id: PodRef,
    /// Kind of the controlling owner, such as `DaemonSet` or `Job`.
    pub owner_kind: Option<String>,
    /// Whether `status.phase` is Succeeded or Failed.
    pub finished: bool,
    /// `spec.priorityClassName`.
    pub priority_class: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_s: u32,
    /// `metadata.creationTimestamp`, in whole seconds.
    pub created: Timestamp,
    /// `metadata.deletionTimestamp`: when its grace is over.
    pub deletion_at: Option<Timestamp>,
    /// `metadata.deletionGracePeriodSeconds`: the grace it was told to stop
    /// with, counted from the first time it was told.
    pub deletion_grace_s: Option<u32>,
}

/// One of `spec.tolerations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toleration {
    /// Empty with `exists` means every key.
    pub key: String,
    /// Operator `Exists`; otherwise `Equal`.
    pub exists: bool,
    /// Value for `Equal`.
    pub value: String,
    /// Empty means every effect.
    pub effect: String,
}

/// A VM, as Compute Engine shows it (`instances.get`, API v1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// Numeric id; a VM rebuilt under the same name has another.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Whether `status` is RUNNING.
    pub running: bool,
    /// `scheduling.onHostMaintenance` is TERMINATE: the VM stops.
    pub terminates: bool,
    /// `labels`.
    pub labels: BTreeMap<String, String>,
    /// `creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `lastStartTimestamp`.
    pub last_start: Option<Timestamp>,
    /// `resourceStatus.upcomingMaintenance`, when there is any.
    pub maintenance: Option<Maintenance>,
}

/// Compute's `upcomingMaintenance`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// `maintenanceStatus` is ONGOING; else it lies ahead.
    pub ongoing: bool,
    /// `windowStartTime`.
    pub start: Option<Timestamp>,
    /// `windowEndTime`: not a deadline, repairs overrun it.
    pub end: Option<Timestamp>,
    /// `maintenanceReasons`.
    pub reasons: Vec<String>,
}

/// What we last learned from Compute about a node's VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// The newest answer and when it came.
    pub answer: Option<(Timestamp, Answer)>,
    /// When we last tried to ask, with or without an answer.
    pub tried_at: Option<Timestamp>,
    /// Compute is not to be asked at all (`--verify off`).
    pub off: bool,
}

/// An answer of Compute about a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It exists.
    Instance(Instance),
    /// There is no such VM.
    NoInstance,
}

/// One node with an intent, with all that a plan depends on.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The Node.
    pub node: Node,
    /// Every pod bound to it.
    pub pods: Vec<Pod>,
    /// What Compute says of its VM.
    pub look: Look,
    /// What this process tried on the pods still there, by UID. Only paces
    /// repeats: a plan without it is the same but for tries made too early.
    pub attempts: BTreeMap<String, crate::action::Attempt>,
    /// How far its slice is marked, for a node of a multi-host TPU slice.
    pub slice: Option<(crate::slice::Slice, crate::slice::Marked)>,
    /// Gangs that have lost a member on another node of this cluster.
    pub broken_gangs: BTreeSet<String>,
}
