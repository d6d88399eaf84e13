//! The rules on calls that tell a pod to stop. What the service saw may be a
//! little old when a call is made, so a rule is broken only when it has been
//! for a while, by the pace that the service itself may take.

use drainwell_core::action::Outcome;
use drainwell_core::intent::Intent;
use drainwell_core::observed::PodRef;
use drainwell_core::time::{seconds_between, shift};
use jiff::Timestamp;

use super::ledger::Ledger;
use super::model::{NodeFacts, PodFacts, tier_of};
use super::scene::Setup;

/// How old what a call is based on may be: a slow list, a slow look at
/// Compute, and the wait for marks under way.
pub(super) const LAG_S: i64 = 45;
/// By how much the clocks of instances and world differ at most.
pub(super) const SKEW_S: i64 = 20;
/// Later tiers for which a reserve may be kept free.
const TIERS: i64 = 3;

/// A call that tells a pod to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    Evict,
    Force,
    Shorten,
}

/// A call, as the rules see it.
pub(super) struct Told<'a> {
    pub(super) instance: usize,
    pub(super) telling: Telling,
    pub(super) pod: &'a PodRef,
    pub(super) grace_s: Option<u32>,
    /// By the world's clock.
    pub(super) now: Timestamp,
    /// By the instance's.
    pub(super) own_now: Timestamp,
}

impl Ledger {
    /// Checks a call before it is carried out.
    pub(super) fn check_told(&mut self, told: &Told<'_>) {
        let broken = self.broken_by(told);
        for what in broken {
            let Told {
                instance,
                telling,
                pod,
                grace_s,
                ..
            } = told;
            let call = format!("instance {instance}: {telling:?} {pod} with {grace_s:?} s");
            self.breach(told.now, format!("{what}: {call}"));
        }
        if let Some(facts) = self.model.pods.get_mut(&told.pod.uid) {
            facts.asked.get_or_insert(told.now);
        }
    }

    /// Notes what became of a call.
    pub(super) fn note_outcome(&mut self, instance: usize, pod: &PodRef, outcome: &Outcome) {
        let Some(facts) = self.model.pods.get_mut(&pod.uid) else {
            return;
        };
        match outcome {
            Outcome::Blocked { .. } | Outcome::Retry { .. } => {
                facts.held.insert(instance);
            }
            Outcome::Refused { .. } => {
                let node = facts.node.as_ref().and_then(|n| self.model.nodes.get(n));
                let key = node.and_then(NodeFacts::intent).map(|i| i.key.clone());
                facts.refused.insert(instance, key.unwrap_or_default());
            }
            Outcome::Done | Outcome::Stale => {}
        }
    }

    fn broken_by(&self, told: &Told<'_>) -> Vec<&'static str> {
        let Some(pod) = self.model.pod(told.pod) else {
            return vec!["a pod that never was"];
        };
        let Some(node) = pod.node.as_ref().and_then(|n| self.model.nodes.get(n)) else {
            // Its node went while the call was on its way, or it has none.
            return if pod.gone {
                vec![]
            } else {
                vec!["a pod on no node"]
            };
        };
        let from = shift(told.now, -LAG_S);
        let long = |since: Option<Timestamp>| since.is_some_and(|at| at <= from);
        let intents: Vec<&Intent> = node.ongoing(from).collect();
        let mut broken = Vec::new();
        let mut rule = |holds: bool, what| {
            if !holds {
                broken.push(what);
            }
        };
        rule(!intents.is_empty(), "no ongoing intent on its node");
        rule(!long(node.skip_since), "its node is to be skipped");
        rule(
            !pod.is_fixed(),
            "a static pod, or one that its DaemonSet puts back",
        );
        rule(!long(pod.finished_since), "a finished pod");
        rule(!long(pod.skip_since), "a pod to be skipped");
        let refused = pod.refused.get(&told.instance);
        rule(
            refused.is_none() || !intents.iter().all(|i| refused == Some(&i.key)),
            "asked again, though admission refused it",
        );
        if intents.is_empty() {
            return broken;
        }
        let any = |holds: &dyn Fn(&Intent) -> bool| intents.iter().any(|intent| holds(intent));
        rule(
            any(&|i| self.in_turn(told, pod, node, i)),
            "its tier's turn has not come",
        );
        rule(
            any(&|i| right_grace(told, pod, i)),
            "not the grace that it should get",
        );
        rule(
            any(&|i| !pod.came_back(i, 2 * SKEW_S) || late_enough(told, pod, i)),
            "it came back, and its latest start has not come",
        );
        if told.telling == Telling::Force {
            rule(
                pod.held.contains(&told.instance),
                "forced, and its eviction was not tried",
            );
            rule(any(&|i| self.may_force(told, pod, i)), "forced too early");
        }
        if told.telling == Telling::Shorten {
            rule(
                pod.told_since.is_some() || pod.gone,
                "shortened, and not told before",
            );
            rule(
                any(&|i| i.deadline_known),
                "shortened by a deadline that is not known",
            );
        }
        broken
    }

    fn in_turn(&self, told: &Told<'_>, pod: &PodFacts, node: &NodeFacts, intent: &Intent) -> bool {
        let from = shift(told.now, -LAG_S);
        let open = intent.stopping || told.own_now >= intent.deadline;
        let tier = tier_of(&pod.pod);
        // A pod that has been there all the time was seen.
        let holds = |other: &PodFacts| {
            other.holds_for(told.instance, intent)
                && other.since <= from
                && !other.came_back(intent, -2 * SKEW_S)
        };
        let mut earlier = self.model.pods_on(&node.node.name);
        told.telling == Telling::Shorten
            || open
            || late_enough(told, pod, intent)
            || !earlier.any(|other| tier_of(&other.pod) < tier && holds(other))
    }

    fn may_force(&self, told: &Told<'_>, pod: &PodFacts, intent: &Intent) -> bool {
        let patience_s = match &intent.kind {
            drainwell_core::observed::Kind::Gpu => 900,
            drainwell_core::observed::Kind::Tpu => 60,
            drainwell_core::observed::Kind::Other => 10,
        };
        let hasty = intent.stopping || self.gang_broken(pod);
        match self.setup {
            Setup::ForceNever => false,
            Setup::ForceAtDeadline => hasty || told.own_now >= intent.deadline,
            Setup::Usual | Setup::GangsByNode => {
                hasty
                    || late_enough(told, pod, intent)
                    || told.own_now >= shift(intent.since, patience_s)
            }
        }
    }

    /// Whether a member of its gang has been told or is gone, here or in the slice.
    fn gang_broken(&self, pod: &PodFacts) -> bool {
        let slice = |node: &Option<String>| {
            let name = node.as_deref().unwrap_or_default();
            let alone = self.setup == Setup::GangsByNode || !name.starts_with("tpu");
            if alone {
                name.to_owned()
            } else {
                "tpu".to_owned()
            }
        };
        let Some(gang) = pod.gang() else {
            return false;
        };
        let mut others = self.model.pods.values();
        others.any(|other| {
            (other.told_since.is_some() || other.gone)
                && other.gang() == Some(gang)
                && slice(&other.node) == slice(&pod.node)
        })
    }
}

/// Whether the pod's latest start has come, with all reserves that there may be.
fn late_enough(told: &Told<'_>, pod: &PodFacts, intent: &Intent) -> bool {
    let later = TIERS - 1 - i64::try_from(tier_of(&pod.pod)).unwrap_or_default();
    let reserve_s = 20.min(intent.window_s / 10).max(0);
    let before_s = i64::from(pod.pod.grace_s) + later * reserve_s;
    told.own_now >= shift(intent.deadline, -before_s)
}

/// Its own grace, or what was left of a known deadline when the call was
/// planned; never none of it, unless it asks for none.
fn right_grace(told: &Told<'_>, pod: &PodFacts, intent: &Intent) -> bool {
    let planned = shift(told.own_now, -LAG_S);
    let left_s = |at| seconds_between(at, intent.deadline).max(1);
    let (least_s, most_s) = (left_s(told.own_now), left_s(planned));
    let own_s = i64::from(pod.pod.grace_s);
    let given_s = told.grace_s.map_or(own_s, i64::from);
    if told.telling == Telling::Shorten {
        // Shorter than what it was told with, and no shorter than what is left.
        // The API server counts from the first telling, and what is over by
        // that count is cut to a second.
        let first = pod.told_since.unwrap_or(told.now);
        let whole_s = seconds_between(first, intent.deadline);
        let over = shift(first, given_s + 2 * SKEW_S) < told.now && given_s < whole_s;
        let had_s = pod.told_grace_s.map_or(i64::MAX, i64::from);
        let most_s = most_s.max(whole_s + SKEW_S);
        return given_s < had_s && !over && (least_s..=most_s).contains(&given_s);
    }
    if intent.deadline_known {
        (least_s.min(own_s)..=most_s.min(own_s)).contains(&given_s)
    } else {
        given_s == own_s
    }
}
