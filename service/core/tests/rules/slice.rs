//! Which nodes form a TPU slice, and how it is marked and drained as one.

use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Kind, Node, Observed};
use drainwell_core::plan::plan;
use drainwell_core::policy::{Gangs, Policy};
use drainwell_core::slice::{Marked, Slice, join, of};

use super::worlds::{at, intent, marked, node, pod, world};

fn host(n: u64, topology: &str, chips: u64) -> Node {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let id = (n + 1).to_string();
    Node {
        name: format!("tpu-{n}"),
        labels: [
            label(keys::TPU_TOPOLOGY_LABEL, topology),
            label(keys::POOL_LABEL, "pool-a"),
        ]
        .into(),
        annotations: [label(keys::INSTANCE_ID_ANNOTATION, &id)].into(),
        capacity: [(keys::TPU_RESOURCE.to_owned(), chips)].into(),
        ..node()
    }
}

fn hosts(topology: &str, chips: u64) -> u64 {
    of(&host(0, topology, chips)).map_or(0, |slice| slice.hosts)
}

#[test]
fn a_pool_is_a_slice_when_its_topology_has_more_chips_than_a_node() {
    assert_eq!(hosts("2x4", 4), 2);
    assert_eq!(hosts("4x4x4", 4), 16);
    assert_eq!(hosts("2x2", 4), 0, "a pool of single hosts");
    for nonsense in [
        "",
        "x",
        "2x",
        "0x4",
        "-2x4",
        "2x3",
        "99999999999x99999999999",
    ] {
        assert_eq!(hosts(nonsense, 4), 0, "{nonsense}");
    }
    assert_eq!(hosts("2x4", 0), 0);
    assert_eq!(of(&node()), None);
}

fn slice() -> Slice {
    Slice {
        pool: "pool-a".to_owned(),
        hosts: 2,
    }
}

#[test]
fn the_other_hosts_get_intents_of_their_own() {
    let first = Intent {
        kind: Kind::Tpu,
        deadline: at(300),
        ..intent()
    };
    let told = marked(&first);
    let pool = [
        Node {
            name: "tpu-0".to_owned(),
            ..told
        },
        host(1, "2x4", 4),
    ];
    let joined = join(&first, &slice(), &pool, at(3)).unwrap();
    let [(peer, theirs)] = joined.as_slice() else {
        panic!("{joined:?}")
    };
    assert_eq!(peer.name, "tpu-1");
    assert!(theirs.key.starts_with("2/") && theirs.ours.is_empty());
    assert_eq!(
        (theirs.phase, theirs.source),
        (Phase::Ongoing, Source::Slice)
    );
    assert_eq!((theirs.noticed, theirs.deadline), (at(3), at(300)));
    assert!(theirs.slice_marked, "it doesn't mark the others in turn");
}

#[test]
fn a_peer_that_is_skipped_recorded_or_unreadable() {
    let first = Intent {
        kind: Kind::Tpu,
        ..intent()
    };
    let with = |key: &str, value: &str| {
        let mut peer = host(1, "2x4", 4);
        peer.annotations.insert(key.to_owned(), value.to_owned());
        join(&first, &slice(), &[peer.clone()], at(3))
            .unwrap()
            .pop()
            .map(|(_, i)| i)
    };
    assert_eq!(with(keys::SKIP_ANNOTATION, "true"), None);
    assert_eq!(with(keys::INTENT_ANNOTATION, "no intent"), None);
    let recorded = Intent {
        phase: Phase::Scheduled,
        key: "2/later".to_owned(),
        ..intent()
    };
    let begun = with(keys::INTENT_ANNOTATION, &recorded.to_json()).unwrap();
    assert_eq!(
        (begun.phase, begun.key.as_str()),
        (Phase::Ongoing, "2/later")
    );
}

#[test]
fn a_pool_with_more_nodes_than_its_topology_explains_is_no_slice() {
    let pool = [host(0, "2x4", 4), host(1, "2x4", 4), host(2, "2x4", 4)];
    let why = join(&intent(), &slice(), &pool, at(3)).unwrap_err();
    assert!(why.contains("pool-a has 3 nodes"), "{why}");
}

#[test]
fn evictions_wait_for_the_peers_but_no_longer_than_ten_seconds() {
    let acts = |count: u64, now: i64, gangs: Gangs, stopping: bool| {
        let slice = Some((
            slice(),
            Marked {
                count,
                first: at(0),
            },
        ));
        let seen = Observed {
            slice,
            ..world(vec![pod("rank-0")], at(now))
        };
        let intent = Intent {
            stopping,
            deadline_known: !stopping,
            ..intent()
        };
        let policy = Policy {
            gangs,
            ..Policy::default()
        };
        plan(&seen, &intent, &policy, at(now)).actions.len()
    };
    assert_eq!(acts(1, 9, Gangs::Slice, false), 0);
    assert_eq!(acts(2, 1, Gangs::Slice, false), 1);
    assert_eq!(acts(1, 10, Gangs::Slice, false), 1);
    assert_eq!(acts(1, 1, Gangs::Node, false), 1);
    assert_eq!(
        acts(1, 1, Gangs::Slice, true),
        1,
        "a stopping host waits for nobody"
    );
}
