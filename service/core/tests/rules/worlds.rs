//! Builders of observed worlds, for tables that read like the rules.

use std::collections::BTreeMap;

use drainwell_core::intent::{Intent, Mark};
use drainwell_core::notice::{Notice, Phase, Source, Vm};
use drainwell_core::observed::{
    Answer, Instance, Kind, Look, Maintenance, Node, Observed, Pod, PodRef, Toleration,
};
use drainwell_core::time::shift;
use drainwell_core::{edit, keys};
use jiff::Timestamp;

/// The id of the VM in these tests.
pub(crate) const ID: u64 = 7_310_448_121_907;

/// The moment that everything is relative to.
pub(crate) fn t0() -> Timestamp {
    "2026-03-01T10:00:00Z".parse().unwrap()
}

/// `seconds` after [`t0`].
pub(crate) fn at(seconds: i64) -> Timestamp {
    shift(t0(), seconds)
}

/// A Ready GPU node without marks.
pub(crate) fn node() -> Node {
    Node {
        name: "gke-train-a3-0001".to_owned(),
        uid: "node-uid".to_owned(),
        resource_version: "100".to_owned(),
        provider_id: Some("gce://acme-ml/us-east5-a/gke-train-a3-0001".to_owned()),
        labels: BTreeMap::from([(keys::GPU_LABEL.to_owned(), "nvidia-h100-80gb".to_owned())]),
        annotations: BTreeMap::from([(keys::INSTANCE_ID_ANNOTATION.to_owned(), ID.to_string())]),
        taints: vec![],
        ready: true,
        ready_since: Some(at(-86_400)),
        boot_id: Some("boot-1".to_owned()),
        capacity: [(keys::GPU_RESOURCE.to_owned(), 8)].into(),
    }
}

/// An ongoing maintenance, marked at [`t0`], with an hour's window.
pub(crate) fn intent() -> Intent {
    Intent {
        v: 1,
        key: format!("{ID}/{}", t0()),
        phase: Phase::Ongoing,
        noticed: t0(),
        since: t0(),
        deadline: at(3600),
        window_s: 3600,
        kind: Kind::Gpu,
        source: Source::Pubsub,
        reasons: vec![],
        deadline_known: true,
        stopping: false,
        boot_id: Some("boot-1".to_owned()),
        seen_ongoing: true,
        seen_down: false,
        absent_since: None,
        drained_at: None,
        completed_at: None,
        slice_marked: false,
        reasserted: 0,
        reasserted_at: None,
        ours: vec![Mark::Label, Mark::Taint],
        label_value: "true".to_owned(),
        unknown: serde_json::Map::new(),
    }
}

/// [`node`] as it is once `intent` has been written to it.
pub(crate) fn marked(intent: &Intent) -> Node {
    let (patch, _) = edit::write(&node(), intent, &intent.label_value);
    patched(&node(), &patch)
}

/// A node after an edit, with a new resourceVersion. Follows RFC 6902 for the
/// operations that edits use.
pub(crate) fn patched(node: &Node, edit: &edit::NodeEdit) -> Node {
    let mut node = node.clone();
    for op in edit.patch.as_array().unwrap() {
        let path = op["path"].as_str().unwrap();
        let value = &op["value"];
        let unescaped = path.replace("~1", "/").replace("~0", "~");
        match (op["op"].as_str().unwrap(), path) {
            ("test", "/metadata/uid") => assert_eq!(*value, node.uid),
            ("test", "/metadata/resourceVersion") => assert_eq!(*value, node.resource_version),
            ("add", "/metadata/labels") => assert!(node.labels.is_empty()),
            ("add", "/metadata/annotations") => assert!(node.annotations.is_empty()),
            ("add", "/spec/taints") => {
                assert!(node.taints.is_empty());
                node.taints.push(taint(&value[0]));
            }
            ("add", "/spec/taints/-") => node.taints.push(taint(value)),
            ("remove", p) if p.starts_with("/spec/taints/") => {
                node.taints
                    .remove(p.rsplit('/').next().unwrap().parse().unwrap());
            }
            (op, _) => {
                let (map, key) = match unescaped.strip_prefix("/metadata/labels/") {
                    Some(key) => (&mut node.labels, key),
                    None => (
                        &mut node.annotations,
                        unescaped.strip_prefix("/metadata/annotations/").unwrap(),
                    ),
                };
                if op == "remove" {
                    assert!(map.remove(key).is_some(), "remove of a missing key");
                } else {
                    map.insert(key.to_owned(), value.as_str().unwrap().to_owned());
                }
            }
        }
    }
    node.resource_version = (node.resource_version.parse::<u64>().unwrap() + 1).to_string();
    node
}

fn taint(value: &serde_json::Value) -> drainwell_core::observed::Taint {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    drainwell_core::observed::Taint {
        key: text("key"),
        value: text("value"),
        effect: text("effect"),
    }
}

/// A running workload pod.
pub(crate) fn pod(name: &str) -> Pod {
    pod_in("training", name)
}

/// A running pod in a namespace, with a grace of 30 s, made before the marks.
pub(crate) fn pod_in(namespace: &str, name: &str) -> Pod {
    Pod {
        id: PodRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{namespace}-{name}"),
        },
        owner_kind: Some("ReplicaSet".to_owned()),
        finished: false,
        priority_class: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        tolerations: vec![],
        grace_s: 30,
        created: at(-3600),
        deletion_at: None,
        deletion_grace_s: None,
    }
}

/// A pod of a DaemonSet.
pub(crate) fn daemon(name: &str) -> Pod {
    Pod {
        owner_kind: Some("DaemonSet".to_owned()),
        ..pod_in("logging", name)
    }
}

/// Tolerates everything.
pub(crate) fn tolerant(pod: Pod) -> Pod {
    let all = Toleration {
        exists: true,
        ..Toleration::default()
    };
    Pod {
        tolerations: vec![all],
        ..pod
    }
}

/// The VM of [`node`], running, with an ongoing maintenance.
pub(crate) fn vm() -> Instance {
    Instance {
        id: ID,
        name: "gke-train-a3-0001".to_owned(),
        running: true,
        terminates: true,
        labels: BTreeMap::new(),
        created: Some(at(-864_000)),
        last_start: Some(at(-864_000)),
        maintenance: Some(Maintenance {
            ongoing: true,
            start: Some(t0()),
            ..Maintenance::default()
        }),
    }
}

/// What Compute said, and when.
pub(crate) fn look(when: Timestamp, instance: Instance) -> Look {
    Look {
        answer: Some((when, Answer::Instance(instance))),
        tried_at: Some(when),
        off: false,
    }
}

/// A world with these pods, in which Compute shows the maintenance at `now`.
pub(crate) fn world(pods: Vec<Pod>, now: Timestamp) -> Observed {
    let node = marked(&intent());
    Observed {
        node,
        pods,
        look: look(now, vm()),
        attempts: BTreeMap::new(),
        slice: None,
        broken_gangs: [].into(),
    }
}

/// A notice of the maintenance of [`vm`].
pub(crate) fn notice(phase: Phase, when: Timestamp) -> Notice {
    Notice {
        vm: Vm {
            project: "acme-ml".to_owned(),
            zone: "us-east5-a".to_owned(),
            name: Some("gke-train-a3-0001".to_owned()),
            id: Some(ID),
        },
        phase,
        stopping: false,
        source: Source::Pubsub,
        at: when,
        at_known: true,
        undated: false,
        window_start: Some(t0()),
        window_end: None,
        reasons: vec![],
        doubts: vec![],
    }
}
