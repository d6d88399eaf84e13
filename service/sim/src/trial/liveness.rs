//! What must happen in time while nothing disturbs the service, and what must
//! be true at the end.

use drainwell_app::driver::report::PassReport;
use drainwell_core::keys;
use drainwell_core::notice::Source;
use drainwell_core::time::{seconds_between, shift};
use jiff::Timestamp;

use super::check_pods::SKEW_S;
use super::ledger::Ledger;
use super::model::{NodeFacts, PodFacts, tier_of};
use super::scene::Setup;

/// From the moment that a pod's turn has come to the first call.
const PROMPT_S: i64 = 8;
/// After the deadline, all pods that were there have been told.
const LATE_S: i64 = 12;
/// After this long everything is looked at again.
const UNWATCHED_S: i64 = 15;
/// The nodes of a slice wait for each other.
const PEERS_S: i64 = 12;
/// Calls within a minute in which nothing is to be done.
const IDLE_CALLS: u32 = 12;

impl Ledger {
    /// Checks, each second, what should have happened by now.
    pub(super) fn check_progress(&mut self, reports: &[&PassReport], now: Timestamp) {
        let Some(calm) = self.calm_since(now) else {
            return;
        };
        let mut broken = Vec::new();
        let mut judged = Vec::new();
        for (name, node) in &self.model.nodes {
            let Some((intent, since)) = node.drain().filter(|_| node.skip_since.is_none()) else {
                continue;
            };
            for pod in self.slow_pods(node, since.max(calm), now) {
                broken.push(format!("slow: {} on {name} has not been told", pod.pod.id));
            }
            let due = shift(intent.deadline, LATE_S + SKEW_S);
            let steady = since.max(calm) < shift(intent.deadline, -30);
            if now >= due && steady && !node.judged.contains(&intent.key) {
                judged.push((name.clone(), intent.key.clone()));
                for pod in self.left_over(node) {
                    let may_stay = self.setup == Setup::ForceNever || !pod.refused.is_empty();
                    if !may_stay && pod.told_since.is_none() {
                        broken.push(format!(
                            "late: {} on {name} is past its deadline",
                            pod.pod.id
                        ));
                    }
                    if !named(reports, name, &pod.pod.id.uid) {
                        broken.push(format!("unnamed: {} on {name} is in no report", pod.pod.id));
                    }
                }
            }
        }
        for (name, key) in judged {
            if let Some(node) = self.model.nodes.get_mut(&name) {
                node.judged.insert(key);
            }
        }
        for what in broken {
            self.breach(now, what);
        }
    }

    /// Pods whose turn came a while ago, and of which nobody has asked anything.
    fn slow_pods<'a>(
        &'a self,
        node: &'a NodeFacts,
        from: Timestamp,
        now: Timestamp,
    ) -> Vec<&'a PodFacts> {
        let Some((tier, opened)) = node.open else {
            return vec![];
        };
        let Some((intent, _)) = node.drain() else {
            return vec![];
        };
        // Nobody watches annotations: what one opens is seen a little later.
        let on_node = self.model.pods_on(&node.node.name);
        let skipped = on_node.filter_map(|p| p.skip_since).max();
        let opened = opened.max(skipped.map_or(opened, |at| shift(at, UNWATCHED_S)));
        let peers_s = if node.node.name.starts_with("tpu") {
            PEERS_S
        } else {
            0
        };
        let long = |since: Timestamp| {
            seconds_between(since.max(opened).max(from), now) > PROMPT_S + peers_s
        };
        let pods = self.model.pods_on(&node.node.name);
        let turn = |p: &PodFacts| intent.stopping || tier_of(&p.pod) == tier;
        pods.filter(|p| p.holds() && p.refused.is_empty() && turn(p) && long(p.since))
            .filter(|p| p.told_since.is_none() && p.asked.is_none())
            .filter(|p| !p.came_back(intent, -2 * SKEW_S))
            .collect()
    }

    /// Pods that were there well before the deadline, and are still.
    fn left_over<'a>(&'a self, node: &'a NodeFacts) -> Vec<&'a PodFacts> {
        let Some((intent, _)) = node.drain() else {
            return vec![];
        };
        let early = shift(intent.deadline, -30);
        let pods = self.model.pods_on(&node.node.name);
        pods.filter(|p| p.holds() && p.since < early && !p.came_back(intent, -2 * SKEW_S))
            .collect()
    }

    /// Nodes that are not as they should be once all is over.
    pub(super) fn unclean(&self, reports: &[&PassReport]) -> Vec<String> {
        let mut unclean = Vec::new();
        for (name, node) in &self.model.nodes {
            let managed = node.node.labels.contains_key(keys::MANAGED_LABEL);
            let intent = node.node.annotations.contains_key(keys::INTENT_ANNOTATION);
            let by_hand = node.intent().is_some_and(|i| i.source == Source::Manual);
            if by_hand || !managed && !intent {
                continue;
            }
            let told = |report: &&&PassReport| {
                let status = report.status.contains(&format!("node {name} "));
                let mut all = report.maintenances.iter();
                status || all.any(|m| m.node == *name && m.ended.is_none() && m.trouble.is_some())
            };
            if !reports.iter().any(|report| told(&report)) {
                let intent = node.intent();
                unclean.push(format!(
                    "{name} is not clean, and no report says why: {intent:?}"
                ));
            }
        }
        unclean
    }

    /// With nothing to do, few calls are made.
    pub(super) fn check_idle(&mut self, instances: usize, now: Timestamp) {
        for instance in 0..instances {
            let calls = self.calls_in_last_minute(instance, now);
            if calls > IDLE_CALLS {
                self.breach(
                    now,
                    format!("instance {instance} made {calls} calls in an idle minute"),
                );
            }
        }
    }
}

fn named(reports: &[&PassReport], node: &str, uid: &str) -> bool {
    let mut views = reports.iter().flat_map(|r| &r.maintenances);
    views.any(|view| {
        let mut pods = view.tiers.iter().flat_map(|tier| &tier.pods);
        view.node == node && pods.any(|pod| pod.uid == uid)
    })
}
