//! What one plan costs: a node with 110 pods (GKE's default maximum) should be
//! planned for within 100 µs.

use std::collections::BTreeMap;

use drainwell_core::intent::{Intent, Stored};
use drainwell_core::keys;
use drainwell_core::observed::{Look, Node, Observed, Pod, PodRef};
use drainwell_core::plan::plan;
use drainwell_core::policy::Policy;
use drainwell_core::time::shift;
use jiff::Timestamp;

fn main() {
    divan::main();
}

fn pods(count: usize, begun: Timestamp) -> Vec<Pod> {
    (0..count)
        .map(|n| Pod {
            id: PodRef {
                namespace: ["training", "logging", "kube-system"][n % 3].to_owned(),
                name: format!("pod-{n}"),
                uid: format!("4f1d2c3b-0000-4000-8000-{n:012}"),
            },
            owner_kind: Some(["Job", "DaemonSet", "ReplicaSet"][n % 3].to_owned()),
            finished: false,
            priority_class: None,
            labels: (0..6)
                .map(|l| (format!("label-{l}"), "value".to_owned()))
                .collect(),
            annotations: BTreeMap::new(),
            tolerations: vec![],
            grace_s: 30 + u32::try_from(n).unwrap_or(0),
            created: shift(begun, -3600),
            deletion_at: (n % 5 == 0).then(|| shift(begun, 60)),
            deletion_grace_s: (n % 5 == 0).then_some(60),
        })
        .collect()
}

#[divan::bench(args = [15, 110, 256])]
fn a_node(bencher: divan::Bencher<'_, '_>, count: usize) {
    let begun = Timestamp::UNIX_EPOCH;
    let intent = r#"{"v":1,"key":"1/x","phase":"ongoing","noticed":"1970-01-01T00:00:00Z",
        "since":"1970-01-01T00:00:00Z","deadline":"1970-01-01T01:00:00Z","window_s":3600,
        "kind":"gpu","source":"pubsub","deadline_known":true}"#;
    let annotations = BTreeMap::from([(keys::INTENT_ANNOTATION.to_owned(), intent.to_owned())]);
    let node = Node {
        name: "node".to_owned(),
        annotations,
        ready: true,
        ..Node::default()
    };
    let Stored::Intent(intent) = Stored::on(&node) else {
        return;
    };
    let (look, attempts) = (
        Look {
            off: true,
            ..Look::default()
        },
        BTreeMap::new(),
    );
    let seen = Observed {
        node,
        pods: pods(count, begun),
        look,
        attempts,
        slice: None,
        broken_gangs: [].into(),
    };
    let policy = Policy::default();
    let intent: Intent = *intent;
    bencher.bench(|| plan(&seen, &intent, &policy, shift(begun, 5)));
}
