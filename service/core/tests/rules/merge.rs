//! What a confirmed notice makes of the intent that a Node has.

use drainwell_core::intent::{Intent, Stored};
use drainwell_core::merge::{Facts, Merged, merge};
use drainwell_core::notice::{Notice, Phase, Source};
use drainwell_core::observed::{Instance, Maintenance};
use drainwell_core::policy::Policy;

use super::worlds::{ID, at, intent, node, notice, t0, vm};

fn merged(stored: &Stored, notice: &Notice, vm: &Instance, now: i64) -> Merged {
    let policy = Policy::default();
    let node = node();
    let instance = Some(vm);
    let facts = Facts {
        notice,
        node: &node,
        instance,
        policy: &policy,
        now: at(now),
    };
    merge(&facts, stored)
}

fn onto(intent: &Intent, notice: &Notice, now: i64) -> Merged {
    merged(
        &Stored::Intent(Box::new(intent.clone())),
        notice,
        &vm(),
        now,
    )
}

fn marked(merged: Merged) -> Intent {
    match merged {
        Merged::Mark(intent) => intent,
        other => panic!("not marked: {other:?}"),
    }
}

fn updated(merged: Merged) -> Intent {
    match merged {
        Merged::Update(intent) => intent,
        other => panic!("not updated: {other:?}"),
    }
}

#[test]
fn a_first_notice_counts_the_deadline_from_its_entry() {
    let intent = marked(merged(
        &Stored::Nothing,
        &notice(Phase::Ongoing, t0()),
        &vm(),
        7,
    ));
    assert_eq!(intent.key, format!("{ID}/{}", t0()));
    assert_eq!(
        (intent.noticed, intent.since, intent.deadline),
        (at(7), t0(), at(3600))
    );
    assert!(intent.deadline_known && intent.seen_ongoing);
    assert_eq!(
        (intent.window_s, intent.boot_id.as_deref()),
        (3600, Some("boot-1"))
    );
}

#[test]
fn a_deadline_that_the_facts_contradict_is_assumed() {
    let assumed = |notice: &Notice, vm: &Instance, now| {
        let intent = marked(merged(&Stored::Nothing, notice, vm, now));
        (intent.deadline, intent.deadline_known)
    };
    let begun = notice(Phase::Ongoing, t0());
    // Past on first sight, while the VM runs.
    assert_eq!(assumed(&begun, &vm(), 4000), (at(4300), false));
    // The host stops now, but that may be told early.
    let stop = Notice {
        stopping: true,
        ..begun.clone()
    };
    assert_eq!(assumed(&stop, &vm(), 1), (at(301), false));
    // No timestamp of its own.
    let undated = Notice {
        at_known: false,
        ..begun
    };
    assert_eq!(assumed(&undated, &vm(), 1), (at(3600), false));
}

#[test]
fn a_known_deadline_only_tightens_and_an_assumed_one_gives_way() {
    let same = notice(Phase::Ongoing, t0());
    assert_eq!(onto(&intent(), &same, 100), Merged::Unchanged);
    let later = notice(Phase::Ongoing, at(60));
    assert_eq!(onto(&intent(), &later, 100), Merged::Unchanged);
    let earlier = notice(Phase::Ongoing, at(-60));
    let tightened = updated(onto(&intent(), &earlier, 100));
    assert_eq!((tightened.since, tightened.deadline), (at(-60), at(3540)));
    assert_eq!((&tightened.key, tightened.noticed), (&intent().key, t0()));
    let assumed = Intent {
        deadline: at(300),
        deadline_known: false,
        ..intent()
    };
    let known = updated(onto(&assumed, &later, 100));
    assert_eq!((known.deadline, known.deadline_known), (at(3660), true));
    // A redelivery past its own deadline knows nothing better.
    assert_eq!(onto(&assumed, &same, 4000), Merged::Unchanged);
}

#[test]
fn a_stop_during_an_ongoing_maintenance_opens_the_gates_once() {
    let stop = Notice {
        stopping: true,
        ..notice(Phase::Ongoing, at(900))
    };
    let stopping = updated(onto(&intent(), &stop, 901));
    assert!(stopping.stopping);
    assert_eq!(stopping.deadline, intent().deadline);
    assert_eq!(onto(&stopping, &stop, 902), Merged::Unchanged);
}

#[test]
fn nothing_moves_backwards() {
    let ahead = notice(Phase::Scheduled, at(-600));
    assert_eq!(onto(&intent(), &ahead, 100), Merged::Unchanged);
    let completed = Intent {
        phase: Phase::Completed,
        ..intent()
    };
    for phase in [Phase::Scheduled, Phase::Ongoing, Phase::Completed] {
        assert_eq!(
            onto(&completed, &notice(phase, t0()), 100),
            Merged::Unchanged
        );
    }
}

#[test]
fn a_completed_maintenance_that_begins_again_is_marked_again() {
    let completed = Intent {
        phase: Phase::Completed,
        drained_at: Some(at(50)),
        ..intent()
    };
    let again = notice(Phase::Ongoing, at(600));
    let intent = marked(onto(&completed, &again, 601));
    assert_eq!((intent.phase, intent.deadline), (Phase::Ongoing, at(4200)));
    assert_eq!((intent.drained_at, intent.key), (None, completed.key));
}

#[test]
fn a_completion_ends_what_it_can() {
    let done = notice(Phase::Completed, at(1200));
    assert_eq!(
        merged(&Stored::Nothing, &done, &vm(), 1201),
        Merged::Unchanged
    );
    assert!(matches!(onto(&intent(), &done, 1201), Merged::Complete(_)));
    let recorded = Intent {
        phase: Phase::Scheduled,
        ..intent()
    };
    let none = Instance {
        maintenance: None,
        ..vm()
    };
    let stored = Stored::Intent(Box::new(recorded.clone()));
    assert!(matches!(
        merged(&stored, &done, &none, 1201),
        Merged::Forget(_)
    ));
    assert_eq!(
        onto(&recorded, &done, 1201),
        Merged::Unchanged,
        "Compute still shows a window"
    );
    let earlier = notice(Phase::Completed, at(-60));
    assert_eq!(merged(&stored, &earlier, &none, 1201), Merged::Stale);
    let manual = Intent {
        source: Source::Manual,
        ..intent()
    };
    assert_eq!(onto(&manual, &done, 1201), Merged::Unchanged);
    // Of the maintenance before this one, redelivered late.
    assert_eq!(
        onto(&intent(), &notice(Phase::Completed, at(-5)), 100),
        Merged::Stale
    );
}

#[test]
fn a_window_ahead_is_recorded_moved_and_begun() {
    let start = |s: i64| Instance {
        maintenance: Some(Maintenance {
            start: Some(at(s)),
            ..Maintenance::default()
        }),
        ..vm()
    };
    let ahead = notice(Phase::Scheduled, at(-600));
    let Merged::Record(recorded) = merged(&Stored::Nothing, &ahead, &start(86_400), 1) else {
        panic!("not recorded")
    };
    assert_eq!(
        (recorded.since, recorded.deadline),
        (at(86_400), at(90_000))
    );
    let stored = Stored::Intent(Box::new(recorded.clone()));
    assert_eq!(
        merged(&stored, &ahead, &start(86_400), 2),
        Merged::Unchanged
    );
    let moved = updated(merged(&stored, &ahead, &start(172_800), 3));
    assert_eq!((moved.since, &moved.key), (at(172_800), &recorded.key));
    let begun = marked(merged(
        &stored,
        &notice(Phase::Ongoing, at(86_300)),
        &vm(),
        86_301,
    ));
    assert_eq!((begun.phase, begun.deadline), (Phase::Ongoing, at(89_900)));
    assert_eq!((begun.key, begun.noticed), (recorded.key, at(86_301)));
}

#[test]
fn an_intent_of_another_vm_is_no_intent_but_its_marks_are_ours() {
    let old = Intent {
        key: "42/2020-01-01T00:00:00Z".to_owned(),
        ..intent()
    };
    let fresh = marked(onto(&old, &notice(Phase::Ongoing, t0()), 1));
    assert_eq!((fresh.instance_id(), fresh.ours), (Some(ID), old.ours));
}

#[test]
fn what_cannot_be_read_is_never_overwritten() {
    let stored = Stored::Unreadable("not JSON".to_owned());
    let merged = merged(&stored, &notice(Phase::Ongoing, t0()), &vm(), 1);
    assert!(matches!(merged, Merged::Unreadable(_)));
}

#[test]
fn an_intent_whose_vm_is_unknown_belongs_to_the_next_notice_too() {
    let unknown = Notice {
        vm: drainwell_core::notice::Vm {
            id: None,
            ..notice(Phase::Ongoing, t0()).vm
        },
        ..notice(Phase::Ongoing, t0())
    };
    let policy = Policy::default();
    let bare = drainwell_core::observed::Node {
        annotations: [].into(),
        ..node()
    };
    let facts = Facts {
        notice: &unknown,
        node: &bare,
        instance: None,
        policy: &policy,
        now: at(1),
    };
    let first = marked(merge(&facts, &Stored::Nothing));
    assert_eq!(first.instance_id(), None);
    let known = Notice {
        at: at(60),
        ..notice(Phase::Ongoing, t0())
    };
    assert_eq!(onto(&first, &known, 61), Merged::Unchanged);
}

#[test]
fn a_maintenance_takes_a_drain_by_hand_over_with_its_own_deadline() {
    let by_hand = Intent {
        source: Source::Manual,
        deadline: at(600),
        drained_at: Some(at(100)),
        ..intent()
    };
    let begun = notice(Phase::Ongoing, at(90_000));
    let taken = marked(onto(&by_hand, &begun, 90_001));
    assert_eq!((taken.source, taken.drained_at), (Source::Pubsub, None));
    assert_eq!((taken.since, taken.deadline), (at(90_000), at(93_600)));
    assert_eq!((taken.key, taken.ours), (by_hand.key, by_hand.ours));
}
