//! The names that Drainwell reads and writes on Kubernetes objects.

/// Label that GKE's own handler sets while a host maintenance is on.
pub const MAINTENANCE_LABEL: &str = "cloud.google.com/active-node-maintenance";
/// Key of the taint that keeps new pods off a node whose host goes down.
pub const TERMINATION_TAINT: &str = "cloud.google.com/impending-node-termination";
/// Effect of that taint: running pods stay until they are evicted in order.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Label by which a restarted instance finds its work with one selector.
pub const MANAGED_LABEL: &str = "drainwell.dev/managed";
/// Annotation that holds the intent, as JSON.
pub const INTENT_ANNOTATION: &str = "drainwell.dev/maintenance";
/// Annotation on a Node or a pod: never touch it.
pub const SKIP_ANNOTATION: &str = "drainwell.dev/skip";
/// Annotation on a pod: the tier it belongs to.
pub const TIER_ANNOTATION: &str = "drainwell.dev/tier";
/// Annotation on pods of a namespace: they belong together.
pub const GANG_ANNOTATION: &str = "drainwell.dev/gang";
/// Annotation of the kubelet on the API's image of a static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotation in which GKE keeps the VM's numeric id (cloud-provider-gcp,
/// `node_annotator.go`).
pub const INSTANCE_ID_ANNOTATION: &str = "container.googleapis.com/instance_id";
/// Labels of GKE nodes with accelerators.
pub const GPU_LABEL: &str = "cloud.google.com/gke-accelerator";
/// See [`GPU_LABEL`].
pub const TPU_LABEL: &str = "cloud.google.com/gke-tpu-accelerator";
/// Chips of the whole slice, such as `2x4`.
pub const TPU_TOPOLOGY_LABEL: &str = "cloud.google.com/gke-tpu-topology";
/// The node pool; a multi-host TPU slice has one of its own.
pub const POOL_LABEL: &str = "cloud.google.com/gke-nodepool";
/// Extended resources of nodes with accelerators.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// See [`GPU_RESOURCE`].
pub const TPU_RESOURCE: &str = "google.com/tpu";
/// Labels that GKE puts on its VMs.
pub const VM_CLUSTER_NAME: &str = "goog-k8s-cluster-name";
/// See [`VM_CLUSTER_NAME`].
pub const VM_CLUSTER_LOCATION: &str = "goog-k8s-cluster-location";
/// Condition that tells Job controllers that a pod's end is not its fault.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Reason that we give with it.
pub const DISRUPTION_REASON: &str = "TerminationByHostMaintenance";
