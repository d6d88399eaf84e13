//! Predicates on pods. Each says what it holds for, so that nobody has to
//! read code to know which pods are evicted.

use crate::keys;
use crate::observed::{Pod, Toleration};

/// Why a pod is never evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exempt {
    /// The image of a static pod: only the kubelet can stop it.
    Mirror,
    /// `drainwell.dev/skip=true`.
    Skip,
    /// Its DaemonSet would put it straight back.
    TolerantDaemon,
}

impl Exempt {
    /// A phrase for logs and reports.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Mirror => "static pod, which only the kubelet can stop",
            Self::Skip => "annotated drainwell.dev/skip=true",
            Self::TolerantDaemon => "DaemonSet pod that tolerates the taint",
        }
    }
}

/// Whether a pod is exempt from eviction:
/// - the mirror of a static pod (annotation `kubernetes.io/config.mirror`, or owned by a Node),
/// - annotated `drainwell.dev/skip=true`,
/// - owned by a DaemonSet and tolerating the termination taint.
#[must_use]
pub fn exempt(pod: &Pod) -> Option<Exempt> {
    let owner = pod.owner_kind.as_deref();
    if pod.annotations.contains_key(keys::MIRROR_ANNOTATION) || owner == Some("Node") {
        Some(Exempt::Mirror)
    } else if pod
        .annotations
        .get(keys::SKIP_ANNOTATION)
        .is_some_and(|v| v == "true")
    {
        Some(Exempt::Skip)
    } else if owner == Some("DaemonSet") && tolerates(pod) {
        Some(Exempt::TolerantDaemon)
    } else {
        None
    }
}

/// Whether a pod is gone though its object is still there: its phase is
/// Succeeded or Failed (a finalizer may keep the object for long after).
#[must_use]
pub fn gone(pod: &Pod) -> bool {
    pod.finished
}

/// Whether a pod tolerates `impending-node-termination:NoSchedule` (empty
/// value), by the rules of `core/v1` tolerations:
/// - operator `Exists` with this key, or with no key at all,
/// - operator `Equal` with this key and an empty value,
/// - and either no effect or `NoSchedule`.
#[must_use]
pub fn tolerates(pod: &Pod) -> bool {
    pod.tolerations.iter().any(|t: &Toleration| {
        let key = t.key == keys::TERMINATION_TAINT || (t.key.is_empty() && t.exists);
        let value = t.exists || t.value.is_empty();
        let effect = t.effect.is_empty() || t.effect == keys::NO_SCHEDULE;
        key && value && effect
    })
}

/// The gang that a pod belongs to: pods that work in lockstep, so that all
/// stop when one does. In this order:
/// - annotation `drainwell.dev/gang`,
/// - a `JobSet`, by `jobset.sigs.k8s.io/jobset-name`,
/// - a group of a `LeaderWorkerSet`, by its name and `group-index`,
/// - a pod group of Kueue or of the scheduler plugins,
/// - an Indexed Job, by `batch.kubernetes.io/job-name` with a completion index.
#[must_use]
pub fn gang(pod: &Pod) -> Option<String> {
    const LWS: &str = "leaderworkerset.sigs.k8s.io";
    const INDEX: &str = "batch.kubernetes.io/job-completion-index";
    let label = |key: &str| pod.labels.get(key).map(String::as_str);
    let annotation = |key: &str| pod.annotations.get(key).map(String::as_str);
    let of_set = || {
        let group = label(&format!("{LWS}/group-index"))?;
        Some(format!("lws/{}/{group}", label(&format!("{LWS}/name"))?))
    };
    let of_job = || {
        label(INDEX).or_else(|| annotation(INDEX))?;
        label("batch.kubernetes.io/job-name").map(|name| format!("job/{name}"))
    };
    let group = |name: &str| format!("group/{name}");
    annotation(keys::GANG_ANNOTATION)
        .map(|name| format!("gang/{name}"))
        .or_else(|| label("jobset.sigs.k8s.io/jobset-name").map(|name| format!("jobset/{name}")))
        .or_else(of_set)
        .or_else(|| label("kueue.x-k8s.io/pod-group-name").map(group))
        .or_else(|| label("scheduling.x-k8s.io/pod-group").map(group))
        .or_else(of_job)
        .map(|name| format!("{}/{name}", pod.id.namespace))
}
