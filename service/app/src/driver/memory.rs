//! What a process remembers of a cluster between passes. Nothing here decides
//! what is done: losing all of it costs a repeated try, a repeated log line,
//! and the report's list of pods already gone.

use std::collections::{BTreeMap, BTreeSet};

use drainwell_core::action::{Attempt, Outcome};
use drainwell_core::intent::Intent;
use drainwell_core::observed::{Look, Node, PodRef};
use drainwell_core::plan::TierView;
use drainwell_core::slice::{Marked, Slice};
use drainwell_core::time::{seconds_between, shift};
use jiff::Timestamp;

use super::calls::Called;
use super::events::KubeEvent;
use super::ports::{Awaited, Changed, ClusterId, Watching};
use super::report::MaintenanceView;
use crate::telemetry::metrics::Metrics;

/// Ended maintenances are shown for an hour, this many of them at most.
const ENDED_SHOWN_S: i64 = 3600;
const ENDED_MAX: usize = 200;
/// Between two tries against a budget that has changed in between.
const BUDGET_PAUSE_S: i64 = 2;
/// Any try is due again after this.
const LONG_AGO_S: i64 = 60;
/// Gone pods kept per node: more than GKE's 256 pods a node.
const GONE_MAX: usize = 512;

/// Of one cluster.
#[derive(Debug, Default)]
pub struct ClusterMemory {
    /// By node.
    pub nodes: BTreeMap<String, NodeMemory>,
    /// Maintenances that this process saw end.
    pub ended: Vec<MaintenanceView>,
    /// Troubles of which a log line has been written.
    pub mentioned: BTreeSet<String>,
    /// Events that are to be written.
    pub events: Vec<KubeEvent>,
}

/// Of one node with an intent.
#[derive(Debug, Default)]
pub struct NodeMemory {
    /// The maintenance that all this is about; another one starts afresh.
    pub key: String,
    /// When it is to be looked at again, if nothing changes before.
    pub due_at: Option<Timestamp>,
    /// The Node's version at the last look: another one is a reason to look.
    pub resource_version: String,
    /// How far its slice was marked then.
    pub slice: Option<(Slice, Marked)>,
    /// What Compute said last.
    pub look: Look,
    /// Tries on the pods still there, by UID.
    pub attempts: BTreeMap<String, Attempt>,
    /// When pods may be tried again because a budget has changed, by UID.
    pub freed: BTreeMap<String, Timestamp>,
    /// Pods seen on the node that hold a tier, by UID, with their tier.
    pub present: BTreeMap<String, (PodRef, String)>,
    /// Pods that went, for the report.
    pub gone: BTreeMap<String, GonePod>,
    /// When each pod was told to stop, by UID, and whether by force.
    pub told: BTreeMap<String, (Timestamp, bool)>,
    /// The gang of each pod that was seen here, by UID.
    pub gangs: BTreeMap<String, String>,
    /// Gangs that lost a member here, and elsewhere in its slice.
    pub broken_gangs: BTreeSet<String>,
    /// See [`Self::broken_gangs`].
    pub broken_elsewhere: BTreeSet<String>,
    /// Tiers, pods and troubles of which a log line has been written.
    pub mentioned: BTreeSet<String>,
    /// Events that are to be written.
    pub events: Vec<KubeEvent>,
    /// Which were, by the UID of their object.
    pub reasons_told: BTreeMap<String, BTreeSet<&'static str>>,
    /// From where to watch its pods, once they have been listed.
    pub version: Option<String>,
    /// How many writes of the Node have failed in a row.
    pub failed_edits: u32,
    /// Calls on pods that are not answered yet, by UID.
    pub under_way: BTreeSet<String>,
    /// The intent, its pods by tier, and what stops us, as of the last look.
    pub intent: Option<Intent>,
    /// See [`Self::intent`].
    pub tiers: Vec<TierView>,
    /// See [`Self::intent`].
    pub trouble: Option<String>,
}

/// A pod that went while this process watched.
#[derive(Debug, Clone)]
pub struct GonePod {
    /// Which one.
    pub pod: PodRef,
    /// Its tier.
    pub tier: String,
    /// When its absence was seen.
    pub at: Timestamp,
}

impl NodeMemory {
    /// Nothing is known yet of this maintenance.
    #[must_use]
    pub fn about(intent: &Intent) -> Self {
        Self {
            key: intent.key.clone(),
            ..Self::default()
        }
    }

    /// The report on it, once it has been looked at.
    #[must_use]
    pub fn view(&self, cluster: &ClusterId, node: &str, now: Timestamp) -> Option<MaintenanceView> {
        let mut view = MaintenanceView::new(cluster, node, self.intent.as_ref()?, now);
        view.trouble.clone_from(&self.trouble);
        view.set_tiers(&self.tiers, self);
        Some(view)
    }

    /// Whether there is a reason to look at the node now.
    #[must_use]
    pub fn is_due(&self, node: &Node, now: Timestamp) -> bool {
        let changed = self.resource_version != node.resource_version;
        changed || self.due_at.is_none_or(|at| at <= now)
    }

    /// Says whether `what` has not been mentioned yet, and notes it.
    pub fn first_mention(&mut self, what: String) -> bool {
        self.mentioned.insert(what)
    }

    /// Notes an Event, unless its object has had it, or has had enough.
    pub fn note_event(&mut self, event: KubeEvent) {
        let told = self.reasons_told.entry(event.uid().to_owned());
        let told = told.or_default();
        if told.len() < event.most() && told.insert(event.reason) {
            self.events.push(event);
        }
    }

    /// Notes that a pod stops: its gang, if it has one, is broken.
    pub fn note_stopping(&mut self, uid: &str) {
        let gang = self.gangs.get(uid).cloned();
        self.broken_gangs.extend(gang);
    }

    /// Notes a pod's end.
    pub fn note_gone(&mut self, uid: String, gone: GonePod) {
        self.note_stopping(&uid);
        if self.gone.len() < GONE_MAX {
            self.gone.insert(uid, gone);
        }
    }

    /// Notes what became of a try on a pod.
    pub fn note_attempt(&mut self, uid: &str, at: Timestamp, outcome: Outcome) {
        let before = self.attempts.get(uid).map_or(0, |a| a.failures);
        let failures = match outcome {
            Outcome::Retry { .. } | Outcome::Blocked { .. } => before.saturating_add(1),
            Outcome::Done | Outcome::Stale | Outcome::Refused { .. } => 0,
        };
        let attempt = Attempt {
            at,
            outcome,
            failures,
        };
        self.freed.remove(uid);
        self.attempts.insert(uid.to_owned(), attempt);
    }

    /// A budget has changed: pods that it blocked may be tried at once, or when
    /// the last try is two seconds old. Budgets change often for no reason.
    fn note_freed(&mut self, namespace: &str, now: Timestamp) {
        let present = &self.present;
        for (uid, attempt) in &self.attempts {
            let blocked = matches!(attempt.outcome, Outcome::Blocked { .. });
            let there = present
                .get(uid)
                .is_some_and(|(pod, _)| pod.namespace == namespace);
            if blocked && there {
                let due = shift(attempt.at, BUDGET_PAUSE_S).max(now);
                let due = *self.freed.entry(uid.clone()).or_insert(due);
                self.due_at = Some(self.due_at.map_or(due, |at| at.min(due)));
            }
        }
    }

    /// Makes due what a changed budget allows to be tried now, as if the last
    /// try were long ago; gives when the next one falls due.
    pub fn try_freed(&mut self, now: Timestamp) -> Option<Timestamp> {
        let attempts = &mut self.attempts;
        self.freed.retain(|uid, due| {
            let Some(attempt) = attempts.get_mut(uid) else {
                return false;
            };
            if *due <= now {
                attempt.at = attempt.at.min(shift(now, -LONG_AGO_S));
            }
            *due > now
        });
        self.freed.values().min().copied()
    }

    /// Namespaces in which a budget blocks a pod.
    fn blocked_namespaces(&self) -> impl Iterator<Item = String> + '_ {
        self.attempts
            .iter()
            .filter(|(_, attempt)| matches!(attempt.outcome, Outcome::Blocked { .. }))
            .filter_map(|(uid, _)| self.present.get(uid).map(|(pod, _)| pod.namespace.clone()))
    }
}

impl ClusterMemory {
    /// Says whether `what` has not been mentioned yet, and notes it.
    pub fn first_mention(&mut self, what: String) -> bool {
        self.mentioned.insert(what)
    }

    /// Makes a node's VM be looked at in the next pass.
    pub fn forget_look(&mut self, node: &str) {
        if let Some(memory) = self.nodes.get_mut(node) {
            memory.look.tried_at = None;
            memory.due_at = None;
        }
    }

    /// Makes what a watch has told of be looked at in the next pass.
    pub fn note_change(&mut self, change: &Changed, now: Timestamp) {
        for (name, node) in &mut self.nodes {
            match change {
                Changed::Pods(None) => node.due_at = None,
                Changed::Pods(Some(changed)) if changed == name => node.due_at = None,
                Changed::Pods(Some(_)) => {}
                Changed::Budget(namespace) => node.note_freed(namespace, now),
                // Of one kind each.
                Changed::Several(_) => {}
            }
        }
        if let Changed::Several(changes) = change {
            changes.iter().for_each(|one| self.note_change(one, now));
        }
    }

    /// Takes in the answer to a call.
    pub(super) fn settle(&mut self, called: Called, cluster: &ClusterId, metrics: &Metrics) {
        let known = self
            .nodes
            .get_mut(&called.node)
            .filter(|m| m.key == called.key);
        // Of a maintenance that is over meanwhile: told, and forgotten.
        let mut over = NodeMemory::default();
        let known = known.unwrap_or(&mut over);
        let broken = known.broken_gangs.len();
        called.settle(cluster, metrics, known);
        self.events.append(&mut known.events);
        if known.broken_gangs.len() > broken {
            // Members that a budget holds are forced, here and on other nodes.
            self.nodes.values_mut().for_each(|node| node.due_at = None);
        }
    }

    /// What the cluster is to be watched for.
    #[must_use]
    pub fn watching(&self) -> Watching {
        let awaited = |memory: &NodeMemory| {
            Some(Awaited {
                version: memory.version.clone()?,
                uids: memory.present.keys().cloned().collect(),
            })
        };
        let nodes = self.nodes.iter();
        Watching {
            nodes: nodes
                .filter_map(|(n, m)| Some((n.clone(), awaited(m)?)))
                .collect(),
            budgets: self
                .nodes
                .values()
                .flat_map(NodeMemory::blocked_namespaces)
                .collect(),
        }
    }

    /// Notes the end of a maintenance, if it was ever looked at.
    pub fn note_end(&mut self, view: Option<MaintenanceView>, now: Timestamp) {
        let ended = view.map(|view| MaintenanceView {
            ended: Some(now),
            ..view
        });
        self.ended.extend(ended);
        if self.ended.len() > ENDED_MAX {
            self.ended.remove(0);
        }
    }

    /// Forgets maintenances that ended long ago.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.ended.retain(|view| {
            view.ended
                .is_some_and(|at| seconds_between(at, now) < ENDED_SHOWN_S)
        });
    }
}
