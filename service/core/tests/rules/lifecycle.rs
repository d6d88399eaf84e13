//! When a maintenance is over, each of its ways and each "not yet".

use drainwell_core::intent::Intent;
use drainwell_core::lifecycle::{Next, look_due, next, reassert_due};
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Answer, Instance, Look, Maintenance, Node};
use drainwell_core::policy::Policy;
use jiff::Timestamp;

use super::worlds::{at, intent, look, marked, t0, vm};

fn idle_vm() -> Instance {
    Instance {
        maintenance: None,
        ..vm()
    }
}

fn down_vm() -> Instance {
    Instance {
        running: false,
        ..vm()
    }
}

fn booted(intent: &Intent) -> Node {
    Node {
        boot_id: Some("boot-2".to_owned()),
        ..marked(intent)
    }
}

/// What follows, in a word: `keep`, `note`, `begin`, `complete` or `unmark`.
fn follows(intent: &Intent, node: &Node, look: &Look, now: Timestamp) -> &'static str {
    match next(intent, node, look, &Policy::default(), now) {
        Next::Keep => "keep",
        Next::Note(_) => "note",
        Next::Begin(_) => "begin",
        Next::Reassert(_) => "reassert",
        Next::Yield(_) => "yield",
        Next::Complete(_) => "complete",
        Next::Unmark(_) => "unmark",
    }
}

fn check(intent: &Intent, node: &Node, vm: Instance, now: Timestamp, expected: &str) {
    assert_eq!(follows(intent, node, &look(now, vm), now), expected);
}

#[test]
fn never_over_while_compute_shows_it_ongoing() {
    let completed = Intent {
        phase: Phase::Completed,
        ..intent()
    };
    check(&intent(), &booted(&intent()), vm(), at(4000), "keep");
    check(&completed, &booted(&completed), vm(), at(40_000), "keep");
    // Taken for over too early, it goes on, but not by what was seen before.
    let early = Intent {
        completed_at: Some(at(100)),
        ..completed
    };
    check(&early, &marked(&early), vm(), at(159), "keep");
    check(&early, &marked(&early), vm(), at(160), "note");
}

#[test]
fn over_when_a_notice_says_so() {
    let completed = Intent {
        phase: Phase::Completed,
        ..intent()
    };
    check(
        &completed,
        &marked(&completed),
        idle_vm(),
        at(100),
        "unmark",
    );
}

#[test]
fn over_when_the_node_has_booted_since() {
    check(&intent(), &booted(&intent()), idle_vm(), at(100), "unmark");
}

#[test]
fn over_when_the_vm_is_another() {
    let mut node = marked(&intent());
    node.annotations.insert(
        "container.googleapis.com/instance_id".to_owned(),
        "42".to_owned(),
    );
    check(&intent(), &node, idle_vm(), at(100), "unmark");
    check(
        &intent(),
        &marked(&intent()),
        Instance {
            id: 42,
            ..idle_vm()
        },
        at(100),
        "unmark",
    );
}

#[test]
fn absence_needs_two_looks_a_minute_apart_and_a_sign() {
    let first = at(4000);
    // The first look without it is only noted, whatever else was seen.
    let seen_down = Intent {
        seen_down: true,
        ..intent()
    };
    check(&seen_down, &marked(&seen_down), idle_vm(), first, "note");
    let noted = Intent {
        absent_since: Some(first),
        ..seen_down
    };
    check(&noted, &marked(&noted), idle_vm(), at(4059), "keep");
    check(&noted, &marked(&noted), idle_vm(), at(4060), "unmark");
    // Without a sign it takes ten minutes.
    let no_sign = Intent {
        absent_since: Some(first),
        ..intent()
    };
    check(&no_sign, &marked(&no_sign), idle_vm(), at(4599), "keep");
    check(&no_sign, &marked(&no_sign), idle_vm(), at(4600), "unmark");
}

#[test]
fn absence_proves_nothing_when_compute_never_showed_it() {
    let never = Intent {
        seen_ongoing: false,
        seen_down: true,
        absent_since: Some(at(10)),
        stopping: true,
        ..intent()
    };
    check(&never, &marked(&never), idle_vm(), at(700), "keep");
    // Until the deadline lies one more window back.
    check(&never, &marked(&never), idle_vm(), at(7199), "keep");
    check(&never, &marked(&never), idle_vm(), at(7200), "unmark");
}

#[test]
fn silence_after_the_deadline_counts_only_when_nothing_is_announced() {
    let ahead = Maintenance {
        start: Some(at(90_000)),
        ..Maintenance::default()
    };
    let announced = Instance {
        maintenance: Some(ahead),
        ..vm()
    };
    let never = Intent {
        seen_ongoing: false,
        absent_since: Some(at(10)),
        ..intent()
    };
    // One that lies ahead is another maintenance, or this one put off.
    check(&never, &marked(&never), announced, at(7300), "unmark");
    let begun = Maintenance {
        start: Some(at(7000)),
        ..Maintenance::default()
    };
    let announced = Instance {
        maintenance: Some(begun),
        ..vm()
    };
    check(&never, &marked(&never), announced, at(7300), "keep");
}

#[test]
fn signs_are_noted_so_that_another_instance_knows_them() {
    let node = Node {
        ready: false,
        ..marked(&intent())
    };
    for (node, vm) in [(node, vm()), (marked(&intent()), down_vm())] {
        let Next::Note(noted) = next(
            &intent(),
            &node,
            &look(at(3700), vm),
            &Policy::default(),
            at(3700),
        ) else {
            panic!("nothing noted")
        };
        assert!(noted.seen_down);
    }
}

#[test]
fn marks_stay_until_the_node_is_ready_and_the_vm_runs() {
    let not_ready = Node {
        ready: false,
        ..booted(&intent())
    };
    check(&intent(), &not_ready, idle_vm(), at(4000), "complete");
    let stopped = Instance {
        running: false,
        ..idle_vm()
    };
    check(&intent(), &booted(&intent()), stopped, at(4000), "complete");
    let completed = Intent {
        phase: Phase::Completed,
        seen_down: true,
        ..intent()
    };
    let absent = Intent {
        absent_since: Some(at(3990)),
        ..completed
    };
    check(&absent, &not_ready, idle_vm(), at(4000), "keep");
    check(&absent, &booted(&absent), idle_vm(), at(4000), "unmark");
}

#[test]
fn a_compute_that_cannot_be_asked_ends_it_only_long_after_and_after_a_boot() {
    let blind = Look {
        tried_at: Some(at(9000)),
        ..Look::default()
    };
    let last_answer_is_old = look(at(4000), idle_vm());
    for look in [blind, last_answer_is_old] {
        let is = |node: &Node, now: i64| follows(&intent(), node, &look, at(now));
        assert_eq!(is(&booted(&intent()), 3600 + 7199), "keep");
        assert_eq!(is(&booted(&intent()), 3600 + 7200), "unmark");
        assert_eq!(is(&marked(&intent()), 3600 + 72_000), "keep");
    }
}

#[test]
fn a_compute_that_is_not_to_be_asked_leaves_boot_and_notice_as_signs() {
    let off = Look {
        off: true,
        ..Look::default()
    };
    assert_eq!(
        follows(&intent(), &booted(&intent()), &off, at(100)),
        "unmark"
    );
    assert_eq!(
        follows(&intent(), &marked(&intent()), &off, at(100)),
        "keep"
    );
    let completed = Intent {
        phase: Phase::Completed,
        ..intent()
    };
    assert_eq!(
        follows(&completed, &marked(&completed), &off, at(100)),
        "unmark"
    );
    // Nobody else can say that it was called off.
    assert_eq!(
        follows(&intent(), &marked(&intent()), &off, at(10_799)),
        "keep"
    );
    assert_eq!(
        follows(&intent(), &marked(&intent()), &off, at(10_800)),
        "unmark"
    );
}

#[test]
fn a_manual_drain_ends_by_a_boot_alone() {
    let manual = Intent {
        source: Source::Manual,
        ..intent()
    };
    let old = Intent {
        absent_since: Some(at(10)),
        seen_down: true,
        ..manual.clone()
    };
    check(&old, &marked(&old), idle_vm(), at(50_000), "keep");
    check(&manual, &booted(&manual), idle_vm(), at(100), "unmark");
}

#[test]
fn a_recorded_window_follows_compute() {
    let recorded = Intent {
        phase: Phase::Scheduled,
        since: at(86_400),
        deadline: at(90_000),
        seen_ongoing: false,
        ours: vec![],
        ..intent()
    };
    let node = marked(&recorded);
    let pending = |start: i64| Instance {
        maintenance: Some(Maintenance {
            start: Some(at(start)),
            ..Maintenance::default()
        }),
        ..vm()
    };
    check(&recorded, &node, pending(86_400), at(60), "keep");
    check(&recorded, &node, pending(172_800), at(60), "note");
    // Shown no more: twice, a minute apart.
    check(&recorded, &node, idle_vm(), at(60), "note");
    let absent = Intent {
        absent_since: Some(at(60)),
        ..recorded.clone()
    };
    check(&absent, &node, idle_vm(), at(119), "keep");
    check(&absent, &node, idle_vm(), at(120), "unmark");
    check(&absent, &node, pending(86_400), at(120), "note");
    // Begun, though no notice told of it.
    let start = Some(at(50));
    let begun = Maintenance {
        ongoing: true,
        start,
        ..Maintenance::default()
    };
    let begun = Instance {
        maintenance: Some(begun),
        ..vm()
    };
    let seen = look(at(60), begun);
    let Next::Begin(ongoing) = next(&recorded, &node, &seen, &Policy::default(), at(60)) else {
        panic!("not begun")
    };
    assert_eq!(
        (ongoing.phase, ongoing.source),
        (Phase::Ongoing, Source::Sweep)
    );
    assert_eq!((ongoing.since, ongoing.deadline), (at(50), at(3650)));
    assert!(!ongoing.deadline_known && ongoing.seen_ongoing);
    assert_eq!(ongoing.key, recorded.key);
}

#[test]
fn looks_are_a_minute_apart_and_closer_when_something_is_near() {
    let seen = look(t0(), vm());
    let due = |intent: &Intent, now| look_due(intent, &marked(intent), &seen, now).unwrap();
    assert_eq!(due(&intent(), at(1)), at(60));
    assert_eq!(
        due(
            &Intent {
                phase: Phase::Completed,
                ..intent()
            },
            at(1)
        ),
        at(15)
    );
    let tomorrow = Intent {
        phase: Phase::Scheduled,
        since: at(86_400),
        ..intent()
    };
    assert_eq!(
        [due(&tomorrow, at(1)), due(&tomorrow, at(86_101))],
        [at(60), at(15)]
    );
    assert_eq!(
        look_due(&intent(), &booted(&intent()), &seen, at(1)),
        Some(at(15))
    );
    let off = Look {
        off: true,
        ..Look::default()
    };
    assert_eq!(look_due(&intent(), &marked(&intent()), &off, at(1)), None);
    let gone = Look {
        answer: Some((t0(), Answer::NoInstance)),
        ..seen
    };
    assert_eq!(
        look_due(&intent(), &marked(&intent()), &gone, at(1)),
        Some(at(60))
    );
}

#[test]
fn marks_that_another_takes_away_are_put_back_three_times_and_then_not() {
    let bare = |intent: &Intent| {
        let mut node = marked(intent);
        node.taints.clear();
        node
    };
    let mut intent = intent();
    let mut told = Vec::new();
    for second in 1..400 {
        let seen = look(at(second), vm());
        match next(
            &intent,
            &bare(&intent),
            &seen,
            &Policy::default(),
            at(second),
        ) {
            Next::Reassert(next) => {
                told.push(format!("reassert {second}"));
                intent = next;
            }
            Next::Yield(next) => {
                told.push(format!("yield {second}"));
                intent = next;
            }
            _ => {}
        }
    }
    assert_eq!(
        told,
        ["reassert 1", "reassert 31", "reassert 61", "yield 91"]
    );
    // Only once the first half minute is over is the next one due.
    let once = Intent {
        reasserted: 1,
        reasserted_at: Some(at(1)),
        ..super::worlds::intent()
    };
    assert_eq!(reassert_due(&once, &bare(&once)), Some(at(31)));
    assert_eq!(reassert_due(&once, &marked(&once)), None);
}

#[test]
fn a_label_with_a_value_of_another_is_not_fought_over() {
    let mut node = marked(&intent());
    node.labels.insert(
        drainwell_core::keys::MAINTENANCE_LABEL.to_owned(),
        "ONGOING".to_owned(),
    );
    node.taints.clear();
    check(&intent(), &node, vm(), at(60), "keep");
    // Nor are marks that were another's from the start.
    let theirs = Intent {
        ours: vec![],
        ..intent()
    };
    let mut bare = marked(&intent());
    bare.taints.clear();
    check(&theirs, &bare, vm(), at(60), "keep");
}

#[test]
fn one_odd_answer_of_compute_ends_nothing() {
    let missing = |when| Look {
        answer: Some((when, Answer::NoInstance)),
        tried_at: Some(when),
        off: false,
    };
    assert_eq!(
        follows(&intent(), &marked(&intent()), &missing(at(60)), at(60)),
        "note"
    );
    let once = Intent {
        absent_since: Some(at(60)),
        ..intent()
    };
    assert_eq!(
        follows(&once, &marked(&once), &missing(at(119)), at(119)),
        "keep"
    );
    assert_eq!(
        follows(&once, &marked(&once), &missing(at(120)), at(120)),
        "complete"
    );
}
