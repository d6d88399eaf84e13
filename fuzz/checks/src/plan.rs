//! Any world as what a plan is made for.

use drainwell_core::action::{Action, Change, Outcome};
use drainwell_core::intent::Stored;
use drainwell_core::keys;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Node, Pod, Taint};
use drainwell_core::plan::{Plan, PodState, plan};
use drainwell_core::pod;
use drainwell_core::policy::Force;
use drainwell_core::time::shift;

use crate::node::patched;
use crate::world::World;

/// A plan is fair to every pod, and once it has been carried out nothing is
/// left to do until something changes.
pub fn check(data: &[u8]) -> &'static str {
    let world = World::read(data);
    let first = sound_plan(&world);
    let outcome = in_a_word(&first);
    settles(world, first);
    outcome
}

/// By the rarest thing that it does, which is also the last by its letters.
fn in_a_word(plan: &Plan) -> &'static str {
    let word = |action: &Action| match action {
        Action::Shorten(_) => "shortens",
        Action::Force(_) => "forces",
        Action::Evict(_) => "evicts",
    };
    match (plan.actions.iter().map(word).max(), &plan.edit) {
        (Some(word), _) => word,
        (None, Some((_, Change::Unmarked(_)))) => "unmarked",
        (None, Some(_)) => "only edited",
        (None, None) => "quiet",
    }
}

/// The plan, once it has been looked over.
fn sound_plan(world: &World) -> Plan {
    let World {
        seen,
        intent,
        policy,
        now,
    } = world;
    let plan = plan(seen, intent, policy, *now);
    assert_eq!(
        plan,
        drainwell_core::plan::plan(seen, intent, policy, *now),
        "{world:?}"
    );
    assert!(plan.wake_at >= *now, "{world:?}");
    shows_every_pod_once(world, &plan);
    if !plan.actions.is_empty() {
        let begun = intent.phase == Phase::Ongoing && intent.source != Source::Manual;
        assert!(begun && !seen.node.skipped() && !plan.drained, "{world:?}");
        assert!(plan.wake_at <= shift(*now, 15), "{world:?}");
    }
    for (index, action) in plan.actions.iter().enumerate() {
        is_fair(world, action);
        let told = &action.departure().pod;
        let again = plan.actions[..index]
            .iter()
            .any(|a| a.departure().pod == *told);
        assert!(!again, "{told} is told twice: {world:?}");
    }
    plan
}

fn shows_every_pod_once(world: &World, plan: &Plan) {
    let views = || plan.tiers.iter().flat_map(|tier| &tier.pods);
    assert_eq!(views().count(), world.seen.pods.len(), "{world:?}");
    for pod in &world.seen.pods {
        assert_eq!(
            views().filter(|view| view.id == pod.id).count(),
            1,
            "{world:?}"
        );
    }
    let done = |state| matches!(state, PodState::Gone | PodState::Skipped);
    assert_eq!(
        plan.drained,
        views().all(|view| done(view.state)),
        "{world:?}"
    );
}

/// Static, skipped and finished pods, and `DaemonSet` pods that tolerate the taint.
fn must_stay(pod: &Pod) -> bool {
    let annotated = |key: &str| pod.annotations.get(key).map(String::as_str);
    let owner = pod.owner_kind.as_deref();
    pod.finished
        || annotated(keys::MIRROR_ANNOTATION).is_some()
        || annotated(keys::SKIP_ANNOTATION) == Some("true")
        || owner == Some("Node")
        || owner == Some("DaemonSet") && pod::tolerates(pod)
}

fn is_fair(world: &World, action: &Action) {
    let World {
        seen,
        intent,
        policy,
        now,
    } = world;
    let told = action.departure();
    let pod = seen.pods.iter().find(|pod| pod.id == told.pod);
    let pod = pod.expect("a pod of this node");
    assert!(!must_stay(pod), "{} must stay: {world:?}", told.pod);
    let attempt = seen
        .attempts
        .get(&pod.id.uid)
        .map(|attempt| &attempt.outcome);
    assert!(
        !matches!(attempt, Some(Outcome::Refused { .. })),
        "{world:?}"
    );
    // One that terminates keeps the grace that it was told with.
    let had_s = pod.deletion_at.and(pod.deletion_grace_s);
    let had_s = had_s.unwrap_or(pod.grace_s);
    assert_eq!(told.grace_s, had_s);
    if let Some(gets_s) = told.shortened_to_s {
        assert!(intent.deadline_known && gets_s >= 1, "{world:?}");
    }
    match (action, pod.deletion_at) {
        (Action::Evict(_) | Action::Force(_), None) => {
            let gets_s = told.shortened_to_s.unwrap_or(had_s);
            assert!(gets_s <= had_s.max(1), "{world:?}");
            let forced = matches!(action, Action::Force(_));
            assert!(!forced || policy.force != Force::Never, "{world:?}");
        }
        (Action::Shorten(_), Some(until)) => {
            let gets_s = told.shortened_to_s.expect("what it gets");
            let late = shift(*now, 0).max(intent.deadline) < until;
            let shorter = pod.deletion_grace_s.is_none_or(|had_s| gets_s < had_s);
            assert!(shorter && (late || until <= *now), "{world:?}");
        }
        (Action::Evict(_) | Action::Force(_), Some(_)) | (Action::Shorten(_), None) => {
            unreachable!("{action:?} of {pod:?}")
        }
    }
}

/// Marks that are put back or given up, and a maintenance that begins or goes on
/// after all, come before what else there is to do.
const ROUNDS_MAX: usize = 3;

fn settles(mut world: World, first: Plan) {
    let mut plan = first;
    for _ in 0..ROUNDS_MAX {
        let marks = plan
            .edit
            .as_ref()
            .is_some_and(|(_, change)| matches!(change, Change::Reasserted | Change::Yielded));
        let before = world.intent.phase;
        if !carry_out(&mut world, &plan) {
            return;
        }
        let begun = world.intent.phase == Phase::Ongoing && before != Phase::Ongoing;
        plan = sound_plan(&world);
        if plan.edit.is_none() && plan.actions.is_empty() {
            return;
        }
        assert!(marks || begun, "{plan:?} is left to do in {world:?}");
    }
    unreachable!("{plan:?} is still to do in {world:?}");
}

/// The world when every call has been accepted; whether the intent is still there.
fn carry_out(world: &mut World, plan: &Plan) -> bool {
    for action in &plan.actions {
        let told = action.departure();
        let grace_s = told.shortened_to_s.unwrap_or(told.grace_s);
        let pods = world.seen.pods.iter_mut();
        for pod in pods.filter(|pod| pod.id == told.pod) {
            // A shorter grace counts from when the pod was told first.
            let had = pod.deletion_at.zip(pod.deletion_grace_s);
            let told_at = had.map_or(world.now, |(until, had_s)| shift(until, -i64::from(had_s)));
            pod.deletion_at = Some(shift(told_at, grace_s.into()));
            pod.deletion_grace_s = Some(grace_s);
        }
        world.seen.attempts.remove(&told.pod.uid);
    }
    let Some((edit, _)) = &plan.edit else {
        return true;
    };
    let node = patched(&world.seen.node, edit);
    assert_eq!(of_others(&node), of_others(&world.seen.node), "{world:?}");
    world.seen.node = node;
    match Stored::on(&world.seen.node) {
        Stored::Intent(edited) => {
            assert_eq!(edited.unknown, world.intent.unknown);
            world.intent = *edited;
            true
        }
        Stored::Nothing => false,
        Stored::Unreadable(why) => unreachable!("{why}"),
    }
}

/// What no edit may touch.
fn of_others(node: &Node) -> (Vec<&Taint>, Vec<&String>, Vec<&String>) {
    let taints = node
        .taints
        .iter()
        .filter(|t| t.key != keys::TERMINATION_TAINT);
    let own_labels = [keys::MAINTENANCE_LABEL, keys::MANAGED_LABEL];
    let labels = node
        .labels
        .keys()
        .filter(|key| !own_labels.contains(&key.as_str()));
    let annotations = node
        .annotations
        .keys()
        .filter(|key| *key != keys::INTENT_ANNOTATION);
    (taints.collect(), labels.collect(), annotations.collect())
}
