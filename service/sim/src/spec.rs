//! What a world is made of, as values: nodes, pods, budgets, maintenances.

use std::collections::BTreeMap;

use drainwell_core::keys;
use drainwell_core::observed::{Taint, Toleration};

/// A node and the VM beneath it.
#[derive(Debug, Clone, Default)]
pub struct NodeSpec {
    /// Name of both.
    pub name: String,
    /// The VM's zone.
    pub zone: String,
    /// The VM's numeric id.
    pub instance_id: u64,
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Node, besides GKE's own.
    pub annotations: BTreeMap<String, String>,
    /// Taints that others have put there.
    pub taints: Vec<Taint>,
    /// Resource and number of its accelerators.
    pub accelerators: Option<(String, u32)>,
    /// Whether its VM live-migrates instead of stopping.
    pub migrates: bool,
}

impl NodeSpec {
    /// A node without accelerators.
    #[must_use]
    pub fn new(name: &str, zone: &str, instance_id: u64) -> Self {
        let zone_label = ("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
        Self {
            name: name.to_owned(),
            zone: zone.to_owned(),
            instance_id,
            labels: BTreeMap::from([zone_label]),
            ..Self::default()
        }
    }

    /// With GPUs.
    #[must_use]
    pub fn gpus(self, model: &str, number: u32) -> Self {
        let mut node = self.label(keys::GPU_LABEL, model);
        node.accelerators = Some((keys::GPU_RESOURCE.to_owned(), number));
        node
    }

    /// With TPU chips, in a slice of this topology.
    #[must_use]
    pub fn tpus(self, model: &str, topology: &str, chips: u32) -> Self {
        let mut node = self
            .label(keys::TPU_LABEL, model)
            .label("cloud.google.com/gke-tpu-topology", topology);
        node.accelerators = Some((keys::TPU_RESOURCE.to_owned(), chips));
        node
    }

    /// With one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With one more taint of somebody else.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        });
        self
    }
}

/// Who makes a pod anew when it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody.
    Nobody,
    /// A `ReplicaSet`: at once, when a pod is told to stop.
    ReplicaSet,
    /// A `StatefulSet`: under the same name, when the pod is gone.
    StatefulSet,
    /// A Job: ten seconds after the pod is gone.
    Job,
    /// A `DaemonSet`: on the same node, when the pod is gone and its taints are
    /// tolerated.
    DaemonSet,
    /// The kubelet: the API has only the image of a static pod.
    Static,
}

impl Owner {
    /// The kind in `metadata.ownerReferences`.
    #[must_use]
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Self::Nobody => None,
            Self::ReplicaSet => Some("ReplicaSet"),
            Self::StatefulSet => Some("StatefulSet"),
            Self::Job => Some("Job"),
            Self::DaemonSet => Some("DaemonSet"),
            Self::Static => Some("Node"),
        }
    }

    /// Whether its pods have a made-up end to their names.
    pub(crate) fn makes_names(self) -> bool {
        match self {
            Self::ReplicaSet | Self::Job | Self::DaemonSet => true,
            Self::Nobody | Self::StatefulSet | Self::Static => false,
        }
    }
}

/// A pod, and how its successors are made.
#[derive(Debug, Clone)]
pub struct PodSpec {
    /// Namespace.
    pub namespace: String,
    /// Its name, or what the controller's names begin with.
    pub name: String,
    /// Who makes it anew.
    pub owner: Owner,
    /// `terminationGracePeriodSeconds`.
    pub grace_s: u32,
    /// How long it takes to stop, give or take a twentieth.
    pub takes_s: u32,
    /// How long it takes to become ready once bound.
    pub starts_in_s: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// `priorityClassName`.
    pub priority_class: Option<String>,
    /// How many accelerators it needs.
    pub accelerators: u32,
    /// Nodes that the scheduler may choose for it, the best first.
    pub places: Vec<String>,
    /// Whether it has run to its end already.
    pub finished: bool,
}

impl PodSpec {
    /// A pod with Kubernetes's default grace that stops within two seconds.
    #[must_use]
    pub fn new(namespace: &str, name: &str, owner: Owner) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owner,
            grace_s: 30,
            takes_s: 2,
            starts_in_s: 5,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class: None,
            accelerators: 0,
            places: Vec::new(),
            finished: false,
        }
    }

    /// With this grace, and this time to stop.
    #[must_use]
    pub fn stops(mut self, grace_s: u32, takes_s: u32) -> Self {
        (self.grace_s, self.takes_s) = (grace_s, takes_s);
        self
    }

    /// With one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With one more annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Tolerates every taint with this key; an empty key means all taints.
    #[must_use]
    pub fn tolerates(mut self, key: &str) -> Self {
        let toleration = Toleration {
            key: key.to_owned(),
            exists: true,
            ..Toleration::default()
        };
        self.tolerations.push(toleration);
        self
    }

    /// Of this priority class.
    #[must_use]
    pub fn priority(mut self, class: &str) -> Self {
        self.priority_class = Some(class.to_owned());
        self
    }

    /// Needs accelerators, and may run on these nodes.
    #[must_use]
    pub fn needs(mut self, accelerators: u32, places: &[&str]) -> Self {
        self.accelerators = accelerators;
        self.places = places.iter().map(ToString::to_string).collect();
        self
    }

    /// Has run to its end.
    #[must_use]
    pub fn finished(mut self) -> Self {
        self.finished = true;
        self
    }
}

/// A `PodDisruptionBudget` with `minAvailable`.
#[derive(Debug, Clone)]
pub struct BudgetSpec {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels of the pods that it protects.
    pub selector: BTreeMap<String, String>,
    /// How many of them must stay ready.
    pub min_available: u32,
}

/// How a host's maintenance goes.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceSpec {
    /// Seconds from its begin to the stop of the host.
    pub notice_s: u32,
    /// Seconds that the host is down.
    pub repair_s: u32,
    /// Seconds from the host's return until Compute shows it no more.
    pub cleared_s: u32,
    /// Why.
    pub reasons: Vec<String>,
}
