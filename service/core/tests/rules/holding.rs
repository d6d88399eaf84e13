//! What may hold a drain up, and what may not.

use std::collections::BTreeMap;

use drainwell_core::action::{Action, Attempt, Outcome};
use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::observed::{Kind, Observed, Pod};
use drainwell_core::plan::plan;
use drainwell_core::policy::{Policies, Policy};
use jiff::Timestamp;

use super::worlds::{at, daemon, intent, pod, pod_in, t0, world};

/// What is done, as `evict NAME` or `force NAME`, graces aside.
fn told(seen: &Observed, policy: &Policy, now: Timestamp) -> Vec<String> {
    let actions = plan(seen, &intent(), policy, now).actions;
    let text = |action: &Action| {
        let verb = match action {
            Action::Evict(_) => "evict",
            Action::Force(_) => "force",
            Action::Shorten(_) => "shorten",
        };
        format!("{verb} {}", action.departure().pod.name)
    };
    actions.iter().map(text).collect()
}

fn hanging(pod: Pod) -> Pod {
    Pod {
        deletion_at: Some(at(40)),
        ..pod
    }
}

fn blocked(pods: &[&Pod], when: Timestamp) -> BTreeMap<String, Attempt> {
    let attempt = Attempt {
        at: when,
        outcome: Outcome::Blocked {
            why: "The disruption budget web needs 2".to_owned(),
        },
        failures: 40,
    };
    let of = |pod: &&Pod| (pod.id.uid.clone(), attempt.clone());
    pods.iter().map(of).collect()
}

#[test]
fn an_unreachable_node_is_drained_to_the_end_all_the_same() {
    // Its kubelet is dead, so what was told to stop hangs, and a budget whose
    // pods are not healthy never has room again.
    let (stuck, web, dns) = (
        hanging(pod("stuck")),
        pod("web"),
        pod_in("kube-system", "dns"),
    );
    let mut seen = world(vec![stuck, web.clone(), dns.clone()], at(60));
    seen.node.ready = false;
    seen.node.ready_since = Some(at(30));
    seen.attempts = blocked(&[&web], at(899));
    let policy = Policy::default();
    assert_eq!(told(&seen, &policy, at(899)), Vec::<String>::new());
    assert_eq!(told(&seen, &policy, at(900)), ["force web"]);
    // The next tier doesn't wait for what hangs past its own latest start.
    seen.pods[1] = hanging(web);
    let (grace_s, latest) = (i64::from(dns.grace_s), 3600);
    let before = at(latest - grace_s - 1);
    assert_eq!(told(&seen, &policy, before), Vec::<String>::new());
    assert_eq!(told(&seen, &policy, at(latest - grace_s)), ["evict dns"]);
}

#[test]
fn a_pod_that_is_left_alone_holds_up_nobody() {
    let mut kept = pod("kept");
    let skip = (keys::SKIP_ANNOTATION.to_owned(), "true".to_owned());
    kept.annotations.extend([skip]);
    let refused = pod("refused");
    let (web, logs) = (pod("web"), daemon("logs"));
    let pods = vec![kept.clone(), refused.clone(), web.clone(), logs.clone()];
    let mut seen = world(pods, at(5));
    let attempt = Attempt {
        at: at(4),
        outcome: Outcome::Refused {
            why: "a protected namespace".to_owned(),
        },
        failures: 0,
    };
    seen.attempts.insert(refused.id.uid, attempt);
    let policy = Policy::default();
    assert_eq!(told(&seen, &policy, at(5)), ["evict web"]);
    // Neither is a budget waited for longer because of them,
    seen.attempts.extend(blocked(&[&web], at(899)));
    assert_eq!(told(&seen, &policy, at(900)), ["force web"]);
    // nor the next tier, nor the end.
    seen.pods.retain(|pod| pod.id != web.id);
    assert_eq!(told(&seen, &policy, at(5)), ["evict logs"]);
    seen.pods.retain(|pod| pod.id != logs.id);
    let done = plan(&seen, &intent(), &policy, at(5));
    let (edit, _) = done.edit.expect("the drain is noted as complete");
    assert!(edit.patch.to_string().contains("drained_at"));
}

#[test]
fn pods_that_have_finished_are_waited_for_by_nobody() {
    let finished = |pod: Pod| Pod {
        finished: true,
        ..pod
    };
    // One of them is kept by a finalizer.
    let pods = vec![
        finished(pod("done")),
        finished(hanging(pod("collected-later"))),
        pod_in("kube-system", "dns"),
    ];
    let seen = world(pods, at(5));
    assert_eq!(told(&seen, &Policy::default(), at(5)), ["evict dns"]);
}

#[test]
fn a_tier_of_ones_own_leaves_in_its_turn() {
    let yaml = "
tiers:
  - { name: workload, default: true }
  - { name: storage, match: { namespaces: [rook-ceph] } }
  - { name: system, match: { namespaces: [kube-system] } }
";
    let policy = Policies::from_yaml(yaml).unwrap().of("any");
    let storage = pod_in("rook-ceph", "osd");
    let system = pod_in("kube-system", "dns");
    let mut seen = world(vec![pod("db"), storage, system], at(5));
    for expected in ["evict db", "evict osd", "evict dns"] {
        assert_eq!(told(&seen, &policy, at(5)), [expected]);
        seen.pods.remove(0);
    }
}

#[test]
fn two_nodes_that_wait_for_the_same_budget_both_end() {
    // Each holds the last healthy pod that the other one's budget counts on.
    let policy = Policy::default();
    let other = Intent {
        since: at(30),
        ..intent()
    };
    for (intent, ends) in [(intent(), 900), (other, 930)] {
        let web = pod("web");
        let mut seen = world(vec![web.clone()], t0());
        seen.attempts = blocked(&[&web], at(ends - 1));
        let actions = |now| plan(&seen, &intent, &policy, at(now)).actions;
        assert!(actions(ends - 1).is_empty());
        assert!(matches!(actions(ends)[..], [Action::Force(_)]));
    }
}

#[test]
fn a_tpu_node_is_not_waited_on_as_long_as_a_gpu_node() {
    let policy = Policy::default();
    let tpu = Intent {
        kind: Kind::Tpu,
        deadline: at(300),
        window_s: 300,
        ..intent()
    };
    let web = pod("web");
    let mut seen = world(vec![web.clone()], t0());
    seen.attempts = blocked(&[&web], at(59));
    let actions = |now| plan(&seen, &tpu, &policy, at(now)).actions;
    assert!(actions(59).is_empty());
    assert!(matches!(actions(60)[..], [Action::Force(_)]));
}
