//! What a process remembers between passes. Nothing here decides what is
//! done: losing all of it costs a repeated try, a repeated log line, and the
//! report's list of pods already gone.

use std::collections::{BTreeMap, BTreeSet};

use drainwell_core::action::{Attempt, Outcome};
use drainwell_core::intent::Intent;
use drainwell_core::observed::{Look, PodRef};
use jiff::Timestamp;

use super::ports::Watching;
use super::report::MaintenanceView;

/// Of all clusters, by path.
#[derive(Debug, Default)]
pub struct Memory {
    /// One entry per cluster.
    pub clusters: BTreeMap<String, ClusterMemory>,
}

/// Of one cluster.
#[derive(Debug, Default)]
pub struct ClusterMemory {
    /// By node.
    pub nodes: BTreeMap<String, NodeMemory>,
    /// Maintenances that this process saw end.
    pub ended: Vec<MaintenanceView>,
    /// Whether the last pass could not reach it, so that it is told once.
    pub unreachable: bool,
}

/// Of one node with an intent.
#[derive(Debug, Default)]
pub struct NodeMemory {
    /// The maintenance that all this is about; another one starts afresh.
    pub key: String,
    /// The intent as last read, for a node that is suddenly no more.
    pub intent: Option<Intent>,
    /// What Compute said last.
    pub look: Look,
    /// Tries on the pods still there, by UID.
    pub attempts: BTreeMap<String, Attempt>,
    /// Pods seen on the node that hold a tier, by UID, with their tier.
    pub present: BTreeMap<String, (PodRef, String)>,
    /// Pods that went, for the report.
    pub gone: BTreeMap<String, GonePod>,
    /// When each pod was told to stop, by UID, and whether by force.
    pub told: BTreeMap<String, (Timestamp, bool)>,
    /// Tiers, pods and troubles of which a log line has been written.
    pub mentioned: BTreeSet<String>,
    /// From where to watch its pods, once they have been listed.
    pub version: Option<String>,
    /// The report of the last pass.
    pub view: Option<MaintenanceView>,
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

/// Gone pods kept per node: more than GKE's 256 pods a node.
const GONE_MAX: usize = 512;

impl NodeMemory {
    /// Says whether `what` has not been mentioned yet, and notes it.
    pub fn first_mention(&mut self, what: String) -> bool {
        self.mentioned.insert(what)
    }

    /// Notes a pod's end.
    pub fn note_gone(&mut self, uid: String, gone: GonePod) {
        if self.gone.len() < GONE_MAX {
            self.gone.insert(uid, gone);
        }
    }

    /// Notes what became of a try on a pod.
    pub fn note_attempt(&mut self, uid: &str, at: Timestamp, outcome: Outcome) {
        let before = self.attempts.get(uid).map_or(0, |a| a.failures);
        let failures = match outcome {
            Outcome::Retry { .. } => before.saturating_add(1),
            Outcome::Done | Outcome::Blocked { .. } | Outcome::Stale | Outcome::Refused { .. } => 0,
        };
        self.attempts.insert(
            uid.to_owned(),
            Attempt {
                at,
                outcome,
                failures,
            },
        );
    }

    /// A budget has changed: pods that it blocked may be tried at once.
    pub fn forget_blocks(&mut self, namespace: &str) {
        let present = &self.present;
        self.attempts.retain(|uid, attempt| {
            let blocked = matches!(attempt.outcome, Outcome::Blocked { .. });
            let there = present
                .get(uid)
                .is_some_and(|(pod, _)| pod.namespace == namespace);
            !(blocked && there)
        });
    }

    /// Namespaces in which a budget blocks a pod.
    pub fn blocked_namespaces(&self) -> impl Iterator<Item = String> + '_ {
        self.attempts
            .iter()
            .filter(|(_, attempt)| matches!(attempt.outcome, Outcome::Blocked { .. }))
            .filter_map(|(uid, _)| self.present.get(uid).map(|(pod, _)| pod.namespace.clone()))
    }
}

impl Memory {
    /// Makes every VM be looked at in the next pass.
    pub fn forget_looks(&mut self) {
        for node in self
            .clusters
            .values_mut()
            .flat_map(|c| c.nodes.values_mut())
        {
            node.look.tried_at = None;
        }
    }

    /// A budget of a cluster has changed.
    pub fn forget_blocks(&mut self, cluster: &str, namespace: &str) {
        let nodes = self
            .clusters
            .get_mut(cluster)
            .into_iter()
            .flat_map(|c| c.nodes.values_mut());
        nodes.for_each(|node| node.forget_blocks(namespace));
    }

    /// What each cluster is to be watched for.
    #[must_use]
    pub fn watching(&self) -> Vec<(String, Watching)> {
        let watching = self.clusters.iter().map(|(path, cluster)| {
            let nodes = cluster.nodes.iter();
            let watching = Watching {
                nodes: nodes
                    .filter_map(|(n, m)| Some((n.clone(), m.version.clone()?)))
                    .collect(),
                budgets: cluster
                    .nodes
                    .values()
                    .flat_map(NodeMemory::blocked_namespaces)
                    .collect(),
            };
            (path.clone(), watching)
        });
        watching
            .filter(|(_, w)| *w != Watching::default())
            .collect()
    }
}
