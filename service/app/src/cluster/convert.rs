//! Kubernetes objects as the core's plain values.

use drainwell_core::observed::{Node, Pod, PodRef, Taint, Toleration};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// `spec.terminationGracePeriodSeconds` when it isn't set (API reference).
const DEFAULT_GRACE_S: i64 = 30;

pub(super) fn node(node: api::Node) -> Node {
    let meta = node.metadata;
    let spec = node.spec.unwrap_or_default();
    let status = node.status.unwrap_or_default();
    let ready = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .find(|c| c.type_ == "Ready");
    let offered = status.capacity.unwrap_or_default().into_iter();
    Node {
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        resource_version: meta.resource_version.unwrap_or_default(),
        provider_id: spec.provider_id,
        labels: meta.labels.unwrap_or_default(),
        annotations: meta.annotations.unwrap_or_default(),
        taints: spec
            .taints
            .unwrap_or_default()
            .into_iter()
            .map(taint)
            .collect(),
        ready: ready.as_ref().is_some_and(|c| c.status == "True"),
        ready_since: ready.and_then(|c| c.last_transition_time).map(|Time(t)| t),
        boot_id: status
            .node_info
            .map(|info| info.boot_id)
            .filter(|id| !id.is_empty()),
        capacity: offered
            .filter_map(|(name, q)| Some((name, q.0.parse().ok()?)))
            .collect(),
    }
}

fn taint(taint: api::Taint) -> Taint {
    Taint {
        key: taint.key,
        value: taint.value.unwrap_or_default(),
        effect: taint.effect,
    }
}

pub(super) fn pod(pod: api::Pod) -> Pod {
    let meta = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    let phase = pod.status.and_then(|s| s.phase).unwrap_or_default();
    let owners = meta.owner_references.unwrap_or_default();
    let controller = owners.into_iter().find(|o| o.controller == Some(true));
    let grace_s = spec
        .termination_grace_period_seconds
        .unwrap_or(DEFAULT_GRACE_S)
        .max(0);
    let created = meta
        .creation_timestamp
        .map_or(Timestamp::UNIX_EPOCH, |Time(t)| t);
    Pod {
        id: PodRef {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
        },
        owner_kind: controller.map(|o| o.kind),
        finished: matches!(phase.as_str(), "Succeeded" | "Failed"),
        priority_class: spec.priority_class_name,
        labels: meta.labels.unwrap_or_default(),
        annotations: meta.annotations.unwrap_or_default(),
        tolerations: spec
            .tolerations
            .unwrap_or_default()
            .into_iter()
            .map(toleration)
            .collect(),
        grace_s: u32::try_from(grace_s).unwrap_or(u32::MAX),
        created,
        deletion_at: meta.deletion_timestamp.map(|Time(t)| t),
        deletion_grace_s: meta
            .deletion_grace_period_seconds
            .map(|s| u32::try_from(s.max(0)).unwrap_or(u32::MAX)),
    }
}

fn toleration(toleration: api::Toleration) -> Toleration {
    Toleration {
        key: toleration.key.unwrap_or_default(),
        exists: toleration.operator.as_deref() == Some("Exists"),
        value: toleration.value.unwrap_or_default(),
        effect: toleration.effect.unwrap_or_default(),
    }
}
