//! The pods of a world, and what was tried on them.

use std::collections::BTreeMap;

use drainwell_core::action::{Attempt, Outcome};
use drainwell_core::keys;
use drainwell_core::observed::{Pod, PodRef, Toleration};
use drainwell_core::time::shift;

use super::Letters;
use crate::node::t0;

/// A pod with a grace of 30 s, made an hour before [`t0`].
pub(crate) fn pod(namespace: &str, name: &str) -> Pod {
    Pod {
        id: PodRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{namespace}-{name}"),
        },
        owner_kind: None,
        finished: false,
        priority_class: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        tolerations: vec![],
        grace_s: 30,
        created: shift(t0(), -3600),
        deletion_at: None,
        deletion_grace_s: None,
    }
}

pub(super) fn read(from: &mut Letters<'_>) -> Pod {
    let name = format!("p{}", from.next().unwrap_or_default());
    let mut pod = pod(from.one_of(&["training", "kube-system", "web"]), &name);
    pod.owner_kind = from.text(&["ReplicaSet", "DaemonSet", "Node", "Job", ""]);
    pod.grace_s = from.one_of(&[30, 0, 1, 10, 600, 3600, 100_000, u32::MAX]);
    pod.created = from.time().unwrap_or(pod.created);
    pod.deletion_at = from.time();
    pod.deletion_grace_s = pod.deletion_at.map(|_| pod.grace_s);
    pod.finished = from.yes();
    let all = Toleration {
        exists: true,
        ..Toleration::default()
    };
    let key = keys::TERMINATION_TAINT.to_owned();
    let of = |effect: &str| Toleration {
        key: key.clone(),
        effect: effect.to_owned(),
        ..Toleration::default()
    };
    let choices = [
        None,
        Some(all),
        Some(of("")),
        Some(of("NoSchedule")),
        Some(of("NoExecute")),
    ];
    pod.tolerations = from.one_of(&choices).into_iter().collect();
    pod.priority_class = from.text(&["", "system-node-critical"]);
    let annotations = [
        (keys::SKIP_ANNOTATION, from.text(&["", "true", "false"])),
        (keys::MIRROR_ANNOTATION, from.text(&["", "5b0f"])),
        (keys::GANG_ANNOTATION, from.text(&["", "g", "h"])),
        (
            keys::TIER_ANNOTATION,
            from.text(&["", "workload", "system", "first", "unheard-of"]),
        ),
    ];
    let given = annotations
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    pod.annotations = given.collect();
    pod
}

pub(super) fn read_attempt(from: &mut Letters<'_>) -> Option<Attempt> {
    let why = || "said so".to_owned();
    let retry = |after_s| {
        Some(Outcome::Retry {
            why: why(),
            after_s,
        })
    };
    let outcome = from.one_of(&[
        None,
        Some(Outcome::Done),
        Some(Outcome::Blocked { why: why() }),
        Some(Outcome::Stale),
        Some(Outcome::Refused { why: why() }),
        retry(None),
        retry(Some(7)),
        retry(Some(u32::MAX)),
    ]);
    Some(Attempt {
        outcome: outcome?,
        at: from.time().unwrap_or(t0()),
        failures: from.one_of(&[1, 0, 3, 9, u32::MAX]),
    })
}
