//! What holds for any world, found by trying many.

use drainwell_core::action::{Action, Departure};
use drainwell_core::intent::{Intent, Stored};
use drainwell_core::notice::{Phase, Received, Source, read};
use drainwell_core::observed::{Look, Observed, Pod};
use drainwell_core::plan::{Plan, plan};
use drainwell_core::policy::{Policies, Policy};
use drainwell_core::time::shift;
use drainwell_core::{edit, keys, pod};
use proptest::prelude::*;

use super::worlds::{at, daemon, intent, look, marked, patched, pod_in, tolerant, vm};

fn any_pod() -> impl Strategy<Value = Pod> {
    let namespace = prop::sample::select(vec!["training", "kube-system", "gmp-system", "web"]);
    let until = prop::option::weighted(0.2, -100i64..8000);
    let traits = (
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    );
    (
        namespace,
        0u32..200,
        0u32..5000,
        -4000i64..4000,
        until,
        traits,
    )
        .prop_map(
            |(namespace, n, grace_s, created, until, (is_daemon, tolerates, finished))| {
                let name = format!("p{n}");
                let base = if is_daemon {
                    daemon(&name)
                } else {
                    pod_in(namespace, &name)
                };
                let base = if tolerates { tolerant(base) } else { base };
                let deletion_at = until.map(at);
                Pod {
                    grace_s,
                    created: at(created),
                    deletion_at,
                    deletion_grace_s: deletion_at.map(|_| 2 * grace_s),
                    finished,
                    ..base
                }
            },
        )
}

fn any_world() -> impl Strategy<Value = (Observed, Intent, i64)> {
    let phase = prop::sample::select(vec![Phase::Scheduled, Phase::Ongoing, Phase::Completed]);
    let pods = prop::collection::vec(any_pod(), 0..20);
    (pods, phase, any::<(bool, bool, bool)>(), -100i64..12_000).prop_map(
        |(mut pods, phase, (known, stopping, asked), now)| {
            pods.sort_by(|a, b| a.id.cmp(&b.id));
            pods.dedup_by(|a, b| a.id == b.id);
            let intent = Intent {
                phase,
                deadline_known: known,
                stopping,
                ..intent()
            };
            let look = if asked {
                look(at(now), vm())
            } else {
                Look::default()
            };
            let node = marked(&intent);
            (
                Observed {
                    node,
                    pods,
                    look,
                    attempts: [].into(),
                    slice: None,
                    broken_gangs: [].into(),
                },
                intent,
                now,
            )
        },
    )
}

fn plan_at(seen: &Observed, intent: &Intent, now: i64) -> Plan {
    plan(seen, intent, &Policy::default(), at(now))
}

/// The world once every action has been accepted.
fn applied(seen: &Observed, plan: &Plan, now: i64) -> Observed {
    let mut seen = seen.clone();
    for action in &plan.actions {
        let (Action::Evict(d) | Action::Force(d) | Action::Shorten(d)) = action;
        let grace_s = d.shortened_to_s.unwrap_or(d.grace_s);
        let pod = seen.pods.iter_mut().find(|p| p.id == d.pod).unwrap();
        let before = pod.deletion_at.zip(pod.deletion_grace_s);
        let told_at = before.map_or(at(now), |(until, had_s)| shift(until, -i64::from(had_s)));
        let until = shift(told_at, grace_s.into());
        // As an API server does.
        (pod.deletion_at, pod.deletion_grace_s) = if until < at(now) {
            (Some(at(now)), Some(1))
        } else {
            (Some(until), Some(grace_s))
        };
    }
    if let Some((edit, _)) = &plan.edit {
        seen.node = patched(&seen.node, edit);
    }
    seen
}

fn departure(action: &Action) -> &Departure {
    let (Action::Evict(d) | Action::Force(d) | Action::Shorten(d)) = action;
    d
}

proptest! {
    #[test]
    fn the_same_input_gives_the_same_plan((seen, intent, now) in any_world()) {
        prop_assert_eq!(plan_at(&seen, &intent, now), plan_at(&seen, &intent, now));
    }

    #[test]
    fn a_plan_that_was_applied_leaves_nothing_to_do((seen, intent, now) in any_world()) {
        let after = applied(&seen, &plan_at(&seen, &intent, now), now);
        if let Stored::Intent(intent) = Stored::on(&after.node) {
            let again = plan_at(&after, &intent, now);
            // A record that has begun is drained from the next plan on.
            let begun = intent.phase == Phase::Ongoing && seen.node != after.node;
            prop_assert!(again.edit.is_none() || begun, "{:?}", again.edit);
            prop_assert!(again.actions.is_empty() || begun, "{:?}", again.actions);
        }
    }

    #[test]
    fn pods_that_must_stay_are_never_told((seen, intent, now) in any_world()) {
        let plan = plan_at(&seen, &intent, now);
        for action in &plan.actions {
            prop_assert_eq!(intent.phase, Phase::Ongoing);
            let d = departure(action);
            let told = seen.pods.iter().find(|p| p.id == d.pod).unwrap();
            prop_assert!(!told.finished && pod::exempt(told).is_none());
        }
    }

    #[test]
    fn a_grace_is_cut_by_a_known_deadline_alone((seen, intent, now) in any_world()) {
        for action in &plan_at(&seen, &intent, now).actions {
            let d = departure(action);
            if let Some(gets) = d.shortened_to_s {
                prop_assert!(intent.deadline_known && gets >= 1 && gets < d.grace_s);
                let left = (3600 - now).max(1);
                if matches!(action, Action::Shorten(_)) {
                    prop_assert!(i64::from(gets) >= left);
                } else {
                    prop_assert_eq!(i64::from(gets), left);
                }
            }
        }
    }

    #[test]
    fn a_later_tier_goes_only_when_earlier_ones_are_gone_or_its_time_has_come(
        (seen, intent, now) in any_world()
    ) {
        let policy = Policy::default();
        let plan = plan_at(&seen, &intent, now);
        for action in plan.actions.iter().filter(|a| matches!(a, Action::Evict(_))) {
            let d = departure(action);
            let told = seen.pods.iter().find(|p| p.id == d.pod).unwrap();
            let tier = policy.tier_of(told);
            let view = plan.tiers[tier].pods.iter().find(|p| p.id == d.pod).unwrap();
            let held = seen.pods.iter().any(|p| {
                let back = pod::tolerates(p) && p.created > intent.noticed;
                policy.tier_of(p) < tier && !p.finished && pod::exempt(p).is_none() && !back
            });
            let due = view.latest_start <= at(now) || intent.stopping || now >= 3600;
            prop_assert!(!held || due);
        }
    }

    #[test]
    fn a_wake_up_is_never_in_the_past((seen, intent, now) in any_world()) {
        prop_assert!(plan_at(&seen, &intent, now).wake_at >= at(now));
    }

    #[test]
    fn any_text_in_the_annotation_is_survived(text in ".*") {
        let mut node = marked(&intent());
        node.annotations.insert(keys::INTENT_ANNOTATION.to_owned(), text);
        if let Stored::Intent(read) = Stored::on(&node) {
            let (edit, _) = edit::unmark(&node, &read);
            prop_assert!(!patched(&node, &edit).labels.contains_key(keys::MANAGED_LABEL));
        }
    }

    #[test]
    fn any_policy_text_is_survived(text in "[a-z: \\-\\[\\]{}\"0-9\n]{0,80}") {
        drop(Policies::from_yaml(&text));
    }

    #[test]
    fn any_entry_is_survived(method in ".*", name in ".*", time in ".*", n in any::<f64>()) {
        let entry = serde_json::json!({
            "protoPayload": {
                "methodName": method, "resourceName": name, "metadata": {"windowStartTime": time},
            },
            "timestamp": time, "resource": {"labels": {"instance_id": n}},
        });
        let received = Received { source: Source::Pubsub, published: None, now: at(0) };
        drop(read(&entry, &received));
    }
}
