//! Which notices Compute and the Node bear out.

use drainwell_core::confirm::{Ignored, Verdict, by_compute, by_node};
use drainwell_core::keys;
use drainwell_core::notice::{Notice, Phase};
use drainwell_core::observed::{Instance, Maintenance, Node};
use drainwell_core::policy::{Policy, Scheduled, Scope};

use super::worlds::{at, node, notice, t0, vm};

fn with(maintenance: Option<Maintenance>) -> Instance {
    Instance {
        maintenance,
        ..vm()
    }
}

fn pending(start: i64, end: Option<i64>) -> Instance {
    let (start, end) = (Some(at(start)), end.map(at));
    let ahead = Maintenance {
        ongoing: false,
        start,
        end,
        reasons: vec![],
    };
    with(Some(ahead))
}

fn check(notice: &Notice, vm: &Instance, now: i64, expected: &Verdict) {
    let verdict = by_compute(notice, vm, &Policy::default(), at(now));
    match (&verdict, expected) {
        (Verdict::TooEarly(_), Verdict::TooEarly(_)) => {}
        _ => assert_eq!(verdict, *expected),
    }
}

fn ignored(reason: Ignored) -> Verdict {
    Verdict::Ignored(reason)
}

fn early() -> Verdict {
    Verdict::TooEarly(String::new())
}

#[test]
fn a_maintenance_is_confirmed_when_compute_shows_it() {
    let begun = notice(Phase::Ongoing, t0());
    check(&begun, &vm(), 1, &Verdict::Confirmed);
    check(&begun, &pending(0, Some(3600)), 1, &Verdict::Confirmed);
    check(&begun, &pending(-600, Some(600)), 1, &Verdict::Confirmed);
    // Another window, a week away, is another maintenance.
    check(&begun, &pending(604_800, None), 1, &early());
    check(
        &begun,
        &pending(604_800, None),
        120,
        &ignored(Ignored::NotConfirmed),
    );
}

#[test]
fn a_maintenance_that_compute_does_not_show_gets_two_minutes() {
    for phase in [Phase::Scheduled, Phase::Ongoing] {
        check(&notice(phase, t0()), &with(None), 119, &early());
        check(
            &notice(phase, t0()),
            &with(None),
            120,
            &ignored(Ignored::NotConfirmed),
        );
    }
}

#[test]
fn a_completion_is_believed_unless_compute_shows_it_ongoing() {
    let done = notice(Phase::Completed, t0());
    check(&done, &with(None), 1, &Verdict::Confirmed);
    check(&done, &pending(604_800, None), 1, &Verdict::Confirmed);
    check(&done, &vm(), 1, &ignored(Ignored::NotConfirmed));
}

#[test]
fn another_vm_and_a_migrating_one_are_ignored() {
    let begun = notice(Phase::Ongoing, t0());
    check(
        &begun,
        &Instance { id: 42, ..vm() },
        1,
        &ignored(Ignored::InstanceReplaced),
    );
    let migrates = Instance {
        terminates: false,
        ..vm()
    };
    check(&begun, &migrates, 1, &ignored(Ignored::LiveMigration));
    let all = Policy {
        scope: Scope::All,
        ..Policy::default()
    };
    assert_eq!(
        by_compute(&begun, &migrates, &all, at(1)),
        Verdict::Confirmed
    );
}

#[test]
fn a_stop_is_stale_when_vm_or_node_came_up_after_it() {
    let stop = Notice {
        stopping: true,
        ..notice(Phase::Ongoing, t0())
    };
    check(&stop, &with(None), 1, &Verdict::Confirmed);
    let restarted = Instance {
        last_start: Some(at(60)),
        ..with(None)
    };
    check(&stop, &restarted, 100, &ignored(Ignored::Stale));
    let down = Instance {
        running: false,
        ..restarted
    };
    check(&stop, &down, 100, &Verdict::Confirmed);
    let back = Node {
        ready_since: Some(at(60)),
        ..node()
    };
    let policy = Policy::default();
    assert_eq!(
        by_node(&stop, &back, Some(&vm()), &policy, at(100)),
        ignored(Ignored::Stale)
    );
    assert_eq!(
        by_node(&stop, &node(), Some(&vm()), &policy, at(100)),
        Verdict::Confirmed
    );
    // Only a stop is outdated by it: an ongoing window lasts while the VM runs.
    let begun = notice(Phase::Ongoing, t0());
    assert_eq!(
        by_node(&begun, &back, Some(&vm()), &policy, at(100)),
        Verdict::Confirmed
    );
}

#[test]
fn the_node_and_policy_have_a_say() {
    let begun = notice(Phase::Ongoing, t0());
    let policy = Policy::default();
    let is = |node: &Node, policy: &Policy, now: i64| by_node(&begun, node, None, policy, at(now));
    assert_eq!(is(&node(), &policy, 7200), Verdict::Confirmed);
    assert_eq!(is(&node(), &policy, 7201), ignored(Ignored::Stale));
    let mut other = node();
    other
        .annotations
        .insert(keys::INSTANCE_ID_ANNOTATION.to_owned(), "42".to_owned());
    assert_eq!(is(&other, &policy, 1), ignored(Ignored::InstanceReplaced));
    let mut skipped = node();
    skipped
        .annotations
        .insert(keys::SKIP_ANNOTATION.to_owned(), "true".to_owned());
    assert_eq!(is(&skipped, &policy, 1), ignored(Ignored::Skipped));
    let accelerators = Policy {
        scope: Scope::Accelerators,
        ..Policy::default()
    };
    let plain = Node {
        labels: [].into(),
        capacity: [].into(),
        ..node()
    };
    assert_eq!(is(&plain, &accelerators, 1), ignored(Ignored::OutOfScope));
    assert_eq!(is(&node(), &accelerators, 1), Verdict::Confirmed);
    let no_records = Policy {
        scheduled: Scheduled::Ignore,
        ..Policy::default()
    };
    let ahead = notice(Phase::Scheduled, t0());
    let verdict = by_node(&ahead, &node(), None, &no_records, at(1));
    assert_eq!(verdict, ignored(Ignored::OutOfScope));
}

#[test]
fn a_node_says_more_when_compute_is_not_asked_and_less_when_it_is() {
    let policy = Policy::default();
    let begun = notice(Phase::Ongoing, t0());
    let back = Node {
        ready_since: Some(at(60)),
        ..node()
    };
    assert_eq!(
        by_node(&begun, &back, None, &policy, at(100)),
        ignored(Ignored::Stale)
    );
    let mut lagging = node();
    lagging
        .annotations
        .insert(keys::INSTANCE_ID_ANNOTATION.to_owned(), "42".to_owned());
    let verdict = by_node(&begun, &lagging, Some(&vm()), &policy, at(1));
    assert!(matches!(verdict, Verdict::TooEarly(_)), "{verdict:?}");
    // Announced as ahead, but Compute shows that it has begun.
    let no_records = Policy {
        scheduled: Scheduled::Ignore,
        ..policy
    };
    let ahead = notice(Phase::Scheduled, t0());
    assert_eq!(
        by_node(&ahead, &node(), Some(&vm()), &no_records, at(1)),
        Verdict::Confirmed
    );
}

#[test]
fn what_has_no_age_is_decided_at_once_by_what_compute_shows() {
    let undated = |phase, stopping, now| Notice {
        undated: true,
        at_known: false,
        stopping,
        ..notice(phase, at(now))
    };
    let idle = Instance {
        last_start: Some(at(-3600)),
        ..with(None)
    };
    for now in [0, 60, 100_000] {
        for phase in [Phase::Scheduled, Phase::Ongoing] {
            let notice = undated(phase, false, now);
            check(&notice, &idle, now, &ignored(Ignored::NotConfirmed));
            check(&notice, &vm(), now, &Verdict::Confirmed);
        }
        let stop = undated(Phase::Ongoing, true, now);
        check(&stop, &idle, now, &ignored(Ignored::NotConfirmed));
        check(&stop, &vm(), now, &Verdict::Confirmed);
        let down = Instance {
            running: false,
            ..idle.clone()
        };
        check(&stop, &down, now, &Verdict::Confirmed);
    }
}
