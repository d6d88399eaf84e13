//! What a pass tells: for the log, for `POST /tick`, for the API.

use drainwell_core::action::Outcome;
use drainwell_core::intent::Intent;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::Kind;
use drainwell_core::plan::{PodState, PodView, TierState, TierView};
use drainwell_core::time::seconds_between;
use jiff::Timestamp;
use serde::Serialize;

use super::memory::{ClusterMemory, NodeMemory};
use super::ports::ClusterId;

/// The report of one pass over one cluster.
#[derive(Debug, Clone, Default)]
pub struct PassReport {
    /// The last request to wake that this pass has seen.
    pub serial: u64,
    /// Calls that changed something.
    pub actions: usize,
    /// Pods that are waited for.
    pub waiting: usize,
    /// When the next pass falls due for work that is left.
    pub next: Option<Timestamp>,
    /// When it falls due at the latest, work or not.
    pub wake_at: Option<Timestamp>,
    /// `ok`, or why the cluster could not be worked on.
    pub status: String,
    /// All maintenances, running and ended.
    pub maintenances: Vec<MaintenanceView>,
}

/// One maintenance.
#[derive(Debug, Clone, Serialize)]
pub struct MaintenanceView {
    /// The cluster's name, or its context.
    pub cluster: String,
    /// Its region or zone.
    pub location: String,
    /// The node.
    pub node: String,
    /// The VM's numeric id.
    pub instance_id: Option<String>,
    /// The intent's key.
    pub key: String,
    /// Where it stands.
    pub phase: Phase,
    /// GPU, TPU or other.
    pub kind: Kind,
    /// By which way it was learned of.
    pub source: Source,
    /// The start that the deadline counts from.
    pub since: Timestamp,
    /// When the host stops.
    pub deadline: Timestamp,
    /// Until then; negative once past.
    pub seconds_left: i64,
    /// Why Google maintains the host.
    pub reasons: Vec<String>,
    /// What stops us, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its pods by tier.
    pub tiers: Vec<TierReport>,
    /// When it was seen to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// A tier of a maintenance.
#[derive(Debug, Clone, Serialize)]
pub struct TierReport {
    /// Name.
    pub name: String,
    /// Where it stands.
    pub state: TierState,
    /// Its pods, with those that this process saw go.
    pub pods: Vec<PodReport>,
}

/// A pod of a maintenance.
#[derive(Debug, Clone, Serialize)]
pub struct PodReport {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `waiting`, `evicted`, `blocked`, `forced`, `gone` or `skipped`.
    pub state: &'static str,
    /// Why, where that needs saying.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The grace that it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u32>,
    /// When it must be told to stop, to get all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_start: Option<Timestamp>,
    /// When this process told it to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<Timestamp>,
    /// When this process saw it gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Timestamp>,
}

/// A window that begins this soon counts as work left.
const SOON_S: i64 = 300;

impl PassReport {
    /// The report on a cluster as it is known now.
    #[must_use]
    pub fn new(cluster: &ClusterId, memory: &ClusterMemory, now: Timestamp) -> Self {
        let mut report = Self::default();
        for (node, memory) in &memory.nodes {
            let due = memory.due_at.unwrap_or(now);
            hasten(&mut report.wake_at, due);
            let Some(view) = memory.view(cluster, node, now) else {
                continue;
            };
            let near = seconds_between(now, view.since) < SOON_S;
            // A drain by hand is somebody else's work.
            let ours = view.source != Source::Manual;
            if ours && (view.phase != Phase::Scheduled || near) {
                hasten(&mut report.next, due);
            }
            report.waiting += view.waiting();
            report.maintenances.push(view);
        }
        report
            .maintenances
            .sort_by(|a, b| (a.deadline, &a.node).cmp(&(b.deadline, &b.node)));
        report.maintenances.extend(memory.ended.iter().cloned());
        report
    }

    /// Has no pass come before `at`, whatever is due.
    pub fn put_off(&mut self, at: Timestamp) {
        self.wake_at = Some(at);
        self.next = self.next.map(|_| at);
    }

    /// Has the next pass come at `at`, if not before.
    pub fn again_at(&mut self, at: Timestamp) {
        hasten(&mut self.wake_at, at);
        if self.next.is_some() {
            hasten(&mut self.next, at);
        }
    }
}

/// Moves a moment forward to `at`, if that is earlier.
fn hasten(known: &mut Option<Timestamp>, at: Timestamp) {
    *known = Some(known.map_or(at, |known| known.min(at)));
}

impl MaintenanceView {
    /// The report on one intent.
    #[must_use]
    pub fn new(cluster: &ClusterId, node: &str, intent: &Intent, now: Timestamp) -> Self {
        Self {
            cluster: cluster.name.clone(),
            location: cluster.location.clone(),
            node: node.to_owned(),
            instance_id: intent.instance_id().map(|id| id.to_string()),
            key: intent.key.clone(),
            phase: intent.phase,
            kind: intent.kind,
            source: intent.source,
            since: intent.since,
            deadline: intent.deadline,
            seconds_left: seconds_between(now, intent.deadline),
            reasons: intent.reasons.clone(),
            trouble: None,
            tiers: vec![],
            ended: None,
        }
    }

    /// Adds the tiers of a plan, and the pods that are known to have gone.
    pub fn set_tiers(&mut self, tiers: &[TierView], memory: &NodeMemory) {
        self.tiers = tiers
            .iter()
            .map(|tier| {
                let mut pods: Vec<PodReport> =
                    tier.pods.iter().map(|pod| there(pod, memory)).collect();
                let shown = pods.len();
                for gone in gone_of(&tier.name, memory) {
                    // Finished, and not deleted yet: it is shown already.
                    if pods[..shown].iter().all(|pod| pod.uid != gone.uid) {
                        pods.push(gone);
                    }
                }
                TierReport {
                    name: tier.name.clone(),
                    state: tier.state,
                    pods,
                }
            })
            .collect();
    }

    /// Pods that are told to stop, or wait to be.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let pods = self.tiers.iter().flat_map(|t| &t.pods);
        pods.filter(|p| !matches!(p.state, "gone" | "skipped"))
            .count()
    }
}

/// A pod that is there, as it is after what this pass has tried on it.
fn there(pod: &PodView, memory: &NodeMemory) -> PodReport {
    let told = memory.told.get(&pod.id.uid);
    let tried = memory
        .attempts
        .get(&pod.id.uid)
        .map(|attempt| &attempt.outcome);
    let stopping = |forced: bool| if forced { "forced" } else { "evicted" };
    let (state, reason) = match (pod.state, told, tried) {
        (PodState::Gone, _, _) => ("gone", pod.reason.clone()),
        (PodState::Skipped, _, _) => ("skipped", pod.reason.clone()),
        (PodState::Evicted, told, _) => (
            stopping(told.is_some_and(|(_, forced)| *forced)),
            String::new(),
        ),
        (_, Some((_, forced)), Some(Outcome::Done)) => (stopping(*forced), String::new()),
        (_, _, Some(Outcome::Blocked { why })) => ("blocked", why.clone()),
        (PodState::Blocked, _, _) => ("blocked", pod.reason.clone()),
        (PodState::Waiting, _, _) => ("waiting", pod.reason.clone()),
    };
    PodReport {
        namespace: pod.id.namespace.clone(),
        name: pod.id.name.clone(),
        uid: pod.id.uid.clone(),
        state,
        reason,
        grace_s: Some(pod.grace_s),
        latest_start: Some(pod.latest_start),
        evicted_at: told.map(|(at, _)| *at),
        gone_at: memory.gone.get(&pod.id.uid).map(|gone| gone.at),
    }
}

fn gone_of<'a>(tier: &'a str, memory: &'a NodeMemory) -> impl Iterator<Item = PodReport> + 'a {
    let gone = memory
        .gone
        .iter()
        .filter(move |(uid, gone)| gone.tier == tier && !memory.present.contains_key(*uid));
    gone.map(|(uid, gone)| PodReport {
        namespace: gone.pod.namespace.clone(),
        name: gone.pod.name.clone(),
        uid: uid.clone(),
        state: "gone",
        reason: String::new(),
        grace_s: None,
        latest_start: None,
        evicted_at: memory.told.get(uid).map(|(at, _)| *at),
        gone_at: Some(gone.at),
    })
}
