//! Which pods are told to stop, when, and with how much grace.

use std::collections::BTreeMap;

use drainwell_core::action::{Action, Attempt, Departure, Outcome};
use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::notice::Phase;
use drainwell_core::observed::{Observed, Pod};
use drainwell_core::plan::{Plan, PodState, TierState, plan};
use drainwell_core::policy::{Force, Policy};
use jiff::{SignedDuration, Timestamp};

use super::worlds::{at, daemon, intent, pod, pod_in, t0, tolerant, world};

/// Plans, and says what is done: `evict NAME`, `force NAME 12`, `shorten NAME 5`.
fn told(seen: &Observed, intent: &Intent, policy: &Policy, now: Timestamp) -> Vec<String> {
    let departure = |verb: &str, d: &Departure| match d.shortened_to_s {
        Some(s) => format!("{verb} {} {s}", d.pod.name),
        None => format!("{verb} {}", d.pod.name),
    };
    let name = |action: &Action| match action {
        Action::Evict(d) => departure("evict", d),
        Action::Force(d) => departure("force", d),
        Action::Shorten(d) => departure("shorten", d),
    };
    plan(seen, intent, policy, now)
        .actions
        .iter()
        .map(name)
        .collect()
}

fn check(pods: Vec<Pod>, now: Timestamp, expected: &[&str]) -> Plan {
    let seen = world(pods, now);
    assert_eq!(told(&seen, &intent(), &Policy::default(), now), expected);
    plan(&seen, &intent(), &Policy::default(), now)
}

fn blocked(pods: &[&Pod], when: Timestamp) -> BTreeMap<String, Attempt> {
    let why = "The disruption budget web needs 2 healthy pods and has 2 currently".to_owned();
    let attempt = Attempt {
        at: when,
        outcome: Outcome::Blocked { why },
        failures: 9,
    };
    pods.iter()
        .map(|p| (p.id.uid.clone(), attempt.clone()))
        .collect()
}

/// Told to stop with the grace that it asks for.
fn terminating(pod: Pod, until: Timestamp) -> Pod {
    Pod {
        deletion_at: Some(until),
        deletion_grace_s: Some(pod.grace_s),
        ..pod
    }
}

fn graceful(pod: Pod, grace_s: u32) -> Pod {
    Pod { grace_s, ..pod }
}

fn annotated(mut pod: Pod, key: &str, value: &str) -> Pod {
    pod.annotations.insert(key.to_owned(), value.to_owned());
    pod
}

#[test]
fn tiers_go_one_after_another() {
    let system = || pod_in("kube-system", "dns");
    check(
        vec![system(), daemon("logs"), pod("train")],
        at(5),
        &["evict train"],
    );
    check(vec![system(), daemon("logs")], at(5), &["evict logs"]);
    check(vec![system()], at(5), &["evict dns"]);
}

#[test]
fn a_tier_waits_until_the_earlier_one_is_gone_not_until_it_is_told() {
    let leaving = terminating(pod("train"), at(30));
    let plan = check(vec![leaving, daemon("logs")], at(5), &[]);
    assert_eq!(plan.tiers[0].state, TierState::Draining);
    assert_eq!(plan.tiers[1].state, TierState::Waiting);
}

#[test]
fn a_pod_of_a_later_tier_goes_at_its_own_latest_start_though_an_earlier_one_hangs() {
    let hanging = || terminating(graceful(pod("train"), 3500), at(3600));
    let long = graceful(pod_in("kube-system", "slow"), 100);
    let short = pod_in("kube-system", "quick");
    let pods = || vec![hanging(), long.clone(), short.clone()];
    check(pods(), at(3499), &[]);
    check(pods(), at(3500), &["evict slow"]);
    check(pods(), at(3570), &["evict quick", "evict slow 30"]);
}

#[test]
fn the_reserve_of_later_tiers_moves_the_start_and_shortens_no_grace() {
    // Blocked, so that only the latest start moves it: 3600 - 600 - 20 for the system tier.
    let train = graceful(pod("train"), 600);
    let now = at(2980);
    let mut seen = world(vec![train.clone(), pod_in("kube-system", "dns")], now);
    seen.attempts = blocked(&[&train], at(2979));
    let policy = Policy {
        patience: drainwell_core::policy::PerKind {
            gpu: 7200,
            tpu: 60,
            other: 10,
        },
        ..Policy::default()
    };
    assert_eq!(
        told(&seen, &intent(), &policy, at(2979)),
        Vec::<String>::new()
    );
    assert_eq!(told(&seen, &intent(), &policy, now), ["force train"]);
    seen.pods.truncate(1);
    assert_eq!(told(&seen, &intent(), &policy, now), Vec::<String>::new());
    assert_eq!(told(&seen, &intent(), &policy, at(3000)), ["force train"]);
}

#[test]
fn a_budget_is_respected_until_patience_ends() {
    let web = pod("web");
    let mut seen = world(vec![web.clone()], at(899));
    seen.attempts = blocked(&[&web], at(897));
    let policy = Policy::default();
    assert_eq!(
        told(&seen, &intent(), &policy, at(898)),
        Vec::<String>::new()
    );
    assert_eq!(
        plan(&seen, &intent(), &policy, at(898)).tiers[0].pods[0].state,
        PodState::Blocked
    );
    assert_eq!(told(&seen, &intent(), &policy, at(900)), ["force web"]);
    let never = Policy {
        force: Force::Never,
        ..Policy::default()
    };
    assert_eq!(told(&seen, &intent(), &never, at(3599)), ["evict web 1"]);
    let deadline = Policy {
        force: Force::Deadline,
        ..Policy::default()
    };
    assert_eq!(told(&seen, &intent(), &deadline, at(3600)), ["force web 1"]);
}

#[test]
fn a_budget_is_tried_first_even_when_patience_is_over() {
    check(vec![pod("web")], at(1000), &["evict web"]);
}

#[test]
fn only_a_known_deadline_shortens_a_grace_and_never_below_a_second() {
    let train = graceful(pod("train"), 7200);
    check(vec![train.clone()], at(10), &["evict train 3590"]);
    check(vec![train.clone()], at(3700), &["evict train 1"]);
    check(vec![graceful(pod("train"), 0)], at(3700), &["evict train"]);
    let assumed = Intent {
        deadline_known: false,
        ..intent()
    };
    let seen = world(vec![train], at(10));
    assert_eq!(
        told(&seen, &assumed, &Policy::default(), at(10)),
        ["evict train"]
    );
}

#[test]
fn a_grace_that_reaches_past_the_deadline_is_cut_once() {
    let far = terminating(graceful(pod("train"), 7200), at(7000));
    check(vec![far.clone()], at(10), &["shorten train 3590"]);
    check(vec![terminating(far, at(3600))], at(10), &[]);
}

#[test]
fn a_grace_that_somebody_made_longer_is_cut_to_what_is_left_and_no_further() {
    let far = Pod {
        deletion_grace_s: Some(7000),
        ..terminating(pod("train"), at(7005))
    };
    let plan = check(vec![far], at(10), &["shorten train 3590"]);
    assert_eq!(plan.actions[0].departure().grace_s, 7000);
}

#[test]
fn a_delete_that_would_make_no_grace_shorter_is_not_sent() {
    // Told with 30 s at 3580 by the server's clock; ours is behind, at 3560.
    let train = || terminating(pod("train"), at(3610));
    check(vec![train()], at(3560), &[]);
    check(vec![train()], at(3581), &["shorten train 19"]);
}

#[test]
fn a_pod_told_long_ago_keeps_what_is_left() {
    // A DELETE with the 600 s left would be over since 1600, and count as one with 1 s.
    let far = || terminating(graceful(pod("train"), 7200), at(8200));
    check(vec![far()], at(3000), &["shorten train 2600"]);
    // As much as is left counts in full.
    check(vec![far()], at(2295), &["shorten train 1305"]);
    check(vec![far()], at(2296), &["shorten train 2600"]);
    // Nothing is left: what the server makes of it is right.
    check(vec![far()], at(3700), &["shorten train 2600"]);
    check(vec![terminating(far(), at(3600))], at(3000), &[]);
}

#[test]
fn some_pods_are_never_evicted() {
    let static_pod = annotated(pod_in("kube-system", "proxy"), keys::MIRROR_ANNOTATION, "x");
    let of_node = Pod {
        owner_kind: Some("Node".to_owned()),
        ..pod("static")
    };
    let finished = Pod {
        finished: true,
        ..pod("done")
    };
    let skipped = annotated(pod("keep"), keys::SKIP_ANNOTATION, "true");
    let driver = tolerant(daemon("driver"));
    // Made anew after the marks: its controller put it straight back.
    let driver_again = Pod {
        created: at(60),
        ..tolerant(daemon("driver-2"))
    };
    let pods = vec![static_pod, of_node, finished, skipped, driver, driver_again];
    let plan = check(pods, at(3700), &[]);
    assert!(plan.drained, "they hold no tier");
}

#[test]
fn a_pod_that_tolerates_the_taint_is_evicted_like_the_rest() {
    check(vec![tolerant(pod("train"))], at(5), &["evict train"]);
}

#[test]
fn a_tolerating_pod_that_came_back_goes_once_more_at_its_own_latest_start() {
    let back = Pod {
        created: at(60),
        ..tolerant(pod("train"))
    };
    let plan = check(vec![back.clone()], at(100), &[]);
    assert!(plan.drained, "it is reported as skipped and holds nothing");
    assert_eq!(plan.tiers[0].pods[0].state, PodState::Skipped);
    check(vec![back.clone()], at(3570), &["evict train"]);
    let again = Pod {
        created: at(3571),
        ..back
    };
    check(vec![again], at(3572), &[]);
}

#[test]
fn a_tolerating_pod_is_told_only_when_its_successor_can_be_told_apart() {
    let noticed = at(7).checked_add(SignedDuration::from_millis(30)).unwrap();
    let intent = Intent {
        noticed,
        ..intent()
    };
    let policy = Policy::default();
    let told_at = |created, now| {
        let train = Pod {
            created,
            ..tolerant(pod("train"))
        };
        told(&world(vec![train], now), &intent, &policy, now)
    };
    // A successor in the second of the marks would look like this one.
    assert_eq!(told_at(at(7), noticed), [""; 0]);
    assert_eq!(told_at(at(7), at(8)), ["evict train"]);
    assert_eq!(told_at(at(8), at(8)), [""; 0]);
    // Nor is one of the second of the latest start, which is at 3570, told again.
    assert_eq!(told_at(at(60), at(3570)), ["evict train"]);
    assert_eq!(told_at(at(3570), at(3570)), [""; 0]);
}

#[test]
fn a_pod_bound_before_the_scheduler_saw_the_taint_is_evicted() {
    check(
        vec![Pod {
            created: at(2),
            ..pod("late")
        }],
        at(5),
        &["evict late"],
    );
}

#[test]
fn a_stopping_host_waits_for_no_gate_and_no_budget() {
    let stopping = Intent {
        stopping: true,
        deadline_known: false,
        ..intent()
    };
    let (web, dns) = (pod("web"), pod_in("kube-system", "dns"));
    let mut seen = world(vec![web.clone(), dns.clone()], at(1));
    let policy = Policy::default();
    assert_eq!(
        told(&seen, &stopping, &policy, at(1)),
        ["evict web", "evict dns"]
    );
    seen.attempts = blocked(&[&web, &dns], at(1));
    assert_eq!(
        told(&seen, &stopping, &policy, at(1)),
        ["force web", "force dns"]
    );
}

#[test]
fn nothing_is_evicted_before_the_start_or_after_the_end() {
    for phase in [Phase::Scheduled, Phase::Completed] {
        let intent = Intent { phase, ..intent() };
        let seen = world(vec![pod("train")], at(5));
        assert_eq!(
            told(&seen, &intent, &Policy::default(), at(5)),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_node_that_people_want_left_alone_is_unmarked_and_not_drained() {
    let mut seen = world(vec![pod("train")], at(5));
    seen.node
        .annotations
        .insert(keys::SKIP_ANNOTATION.to_owned(), "true".to_owned());
    let plan = plan(&seen, &intent(), &Policy::default(), at(5));
    assert_eq!(plan.actions, []);
    let after = super::worlds::patched(&seen.node, &plan.edit.unwrap().0);
    assert_eq!(after.taints, []);
    assert!(!after.labels.contains_key(keys::MAINTENANCE_LABEL));
}

#[test]
fn failures_are_tried_again_ever_more_slowly_and_refusals_never() {
    let train = pod("train");
    let mut seen = world(vec![train.clone()], at(100));
    let mut after = |outcome: Outcome, failures: u32, waited: i64| {
        let attempt = Attempt {
            at: at(100),
            outcome,
            failures,
        };
        seen.attempts.insert(train.id.uid.clone(), attempt);
        told(&seen, &intent(), &Policy::default(), at(100 + waited)).len()
    };
    let down = |after_s| Outcome::Retry {
        why: "HTTP 500".to_owned(),
        after_s,
    };
    assert_eq!([after(down(None), 1, 1), after(down(None), 1, 2)], [0, 1]);
    assert_eq!([after(down(None), 4, 15), after(down(None), 4, 16)], [0, 1]);
    assert_eq!(
        [after(down(None), 99, 19), after(down(None), 99, 20)],
        [0, 1]
    );
    assert_eq!(
        [after(down(Some(7)), 1, 6), after(down(Some(7)), 1, 7)],
        [0, 1]
    );
    let refused = Outcome::Refused {
        why: "managed namespace".to_owned(),
    };
    assert_eq!(after(refused, 0, 3000), 0);
}

#[test]
fn pods_that_will_be_left_are_named_before_the_deadline() {
    let hanging = terminating(pod("train"), at(3600));
    assert_eq!(check(vec![hanging.clone()], at(3539), &[]).at_risk, None);
    let named = check(vec![hanging], at(3540), &[]).at_risk.unwrap();
    assert_eq!(named, "training/train (still stopping)");
}

#[test]
fn the_plan_says_when_to_look_again() {
    // A blocked pod is tried again within seconds, however far its deadline is.
    let web = pod("web");
    let mut seen = world(vec![web.clone()], t0());
    seen.attempts = blocked(&[&web], t0());
    let wake = plan(&seen, &intent(), &Policy::default(), at(1)).wake_at;
    assert!(wake > at(1) && wake <= at(12), "{wake}");
}

#[test]
fn a_blocked_member_of_a_gang_is_forced_when_another_has_left() {
    let rank = |n: u32| {
        let mut rank = pod(&format!("rank-{n}"));
        rank.labels.insert(
            "jobset.sigs.k8s.io/jobset-name".to_owned(),
            "llm".to_owned(),
        );
        rank
    };
    let (held, other) = (rank(0), pod("other"));
    let leaving = terminating(rank(1), at(30));
    let mut seen = world(vec![held.clone(), other.clone(), leaving], at(2));
    seen.attempts = blocked(&[&held, &other], at(1));
    let policy = Policy::default();
    assert_eq!(told(&seen, &intent(), &policy, at(2)), ["force rank-0"]);
    let never = Policy {
        force: Force::Never,
        ..Policy::default()
    };
    assert_eq!(told(&seen, &intent(), &never, at(2)), Vec::<String>::new());
    // On another node of the slice.
    seen.pods.truncate(2);
    assert_eq!(told(&seen, &intent(), &policy, at(2)), Vec::<String>::new());
    seen.broken_gangs = ["training/jobset/llm".to_owned()].into();
    assert_eq!(told(&seen, &intent(), &policy, at(2)), ["force rank-0"]);
}

#[test]
fn a_gang_is_told_by_annotation_set_group_or_indexed_job() {
    let gang = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let pod = Pod {
            labels: map(labels),
            annotations: map(annotations),
            ..pod("p")
        };
        drainwell_core::pod::gang(&pod).unwrap_or_default()
    };
    let job = ("batch.kubernetes.io/job-name", "tune");
    let index = ("batch.kubernetes.io/job-completion-index", "3");
    assert_eq!(gang(&[job], &[]), "");
    assert_eq!(gang(&[job, index], &[]), "training/job/tune");
    assert_eq!(gang(&[job], &[index]), "training/job/tune");
    assert_eq!(
        gang(&[("kueue.x-k8s.io/pod-group-name", "g")], &[]),
        "training/group/g"
    );
    let set = ("leaderworkerset.sigs.k8s.io/name", "serve");
    assert_eq!(gang(&[set], &[]), "");
    let group = ("leaderworkerset.sigs.k8s.io/group-index", "1");
    assert_eq!(gang(&[set, group], &[]), "training/lws/serve/1");
    let jobset = ("jobset.sigs.k8s.io/jobset-name", "llm");
    assert_eq!(gang(&[job, index, jobset], &[]), "training/jobset/llm");
    assert_eq!(
        gang(&[jobset], &[("drainwell.dev/gang", "mine")]),
        "training/gang/mine"
    );
}

#[test]
fn an_eviction_api_that_fails_costs_no_pod_its_sigterm() {
    let web = pod("web");
    let mut seen = world(vec![web.clone()], at(3570));
    let outcome = Outcome::Retry {
        why: "HTTP 500".to_owned(),
        after_s: None,
    };
    let attempt = Attempt {
        at: at(3568),
        outcome,
        failures: 1,
    };
    seen.attempts.insert(web.id.uid, attempt);
    let policy = Policy {
        patience: drainwell_core::policy::PerKind {
            gpu: 7200,
            tpu: 1,
            other: 1,
        },
        ..Policy::default()
    };
    assert_eq!(
        told(&seen, &intent(), &policy, at(3569)),
        Vec::<String>::new()
    );
    assert_eq!(told(&seen, &intent(), &policy, at(3570)), ["force web"]);
    let never = Policy {
        force: Force::Never,
        ..policy
    };
    assert_eq!(told(&seen, &intent(), &never, at(3570)), ["evict web"]);
}
