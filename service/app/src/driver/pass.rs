//! One pass over one cluster: every node with an intent that is due is
//! observed, planned for, acted on and reported, earliest deadline first.
//! A pass never fails as a whole, and starts no work once its time is over.

use std::sync::Arc;
use std::time::Duration;

use drainwell_core::intent::{Intent, Stored};
use drainwell_core::keys;
use drainwell_core::observed::Node;
use drainwell_core::policy::{Policies, Policy};
use drainwell_core::time::shift;
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use tokio::time::Instant;

use super::apply::Stepped;
use super::calls::Call;
use super::memory::{ClusterMemory, NodeMemory};
use super::ports::{CallError, Cloud, Cluster, ClusterId};
use super::slices;
use crate::clock::Clock;
use crate::telemetry::log::{self, Event, Subject};
use crate::telemetry::metrics::Metrics;

/// Nodes worked on at once. Each may send as many evictions as its cluster's
/// lane lets through, so this only bounds lists.
const NODES_AT_ONCE: usize = 16;
/// A pass starts no node's work after this: a node marked meanwhile, with an
/// earlier deadline, must not wait behind hundreds of others.
const PASS: Duration = Duration::from_secs(2);
/// A cluster that didn't answer is asked again after this.
pub(super) const RETRY_S: i64 = 3;
/// The same when it has no work that we know of.
const RETRY_IDLE_S: i64 = 15;
/// Everything a pass works with.
pub struct Driver {
    clusters: Vec<Arc<dyn Cluster>>,
    cloud: Option<Arc<dyn Cloud>>,
    policies: Policies,
    clock: Clock,
    dry_run: bool,
    by_hand: bool,
    metrics: Metrics,
}

impl Driver {
    /// A driver for these clusters; without `cloud`, Compute is never asked.
    #[must_use]
    pub fn new(
        clusters: Vec<Arc<dyn Cluster>>,
        cloud: Option<Arc<dyn Cloud>>,
        policies: Policies,
        clock: Clock,
        dry_run: bool,
    ) -> Self {
        Self {
            clusters,
            cloud,
            policies,
            clock,
            dry_run,
            by_hand: false,
            metrics: Metrics::default(),
        }
    }

    /// The same for a drain by hand: it evicts for nothing else.
    #[must_use]
    pub fn by_hand(self) -> Self {
        Self {
            by_hand: true,
            ..self
        }
    }

    /// The same, counting in `metrics`.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The clock that everything goes by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn clusters(&self) -> &[Arc<dyn Cluster>] {
        &self.clusters
    }

    pub(super) fn cloud(&self) -> Option<&Arc<dyn Cloud>> {
        self.cloud.as_ref()
    }

    pub(super) fn dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn is_by_hand(&self) -> bool {
        self.by_hand
    }

    /// Runs one pass over a cluster.
    pub(super) async fn pass(
        &self,
        cluster: &Arc<dyn Cluster>,
        known: &mut ClusterMemory,
    ) -> Passed {
        let now = self.clock.now();
        let mut passed = Passed {
            status: "ok".to_owned(),
            ..Passed::default()
        };
        known.forget_old(now);
        let nodes = match cluster.nodes(keys::MANAGED_LABEL, "true").await {
            Ok(nodes) => nodes,
            Err(error) => {
                tell_unreachable(cluster.as_ref(), known, &error);
                passed.status = format!("unreachable: {error}");
                passed.unreachable = true;
                let idle = known.nodes.is_empty();
                passed.again_at = Some(shift(now, if idle { RETRY_IDLE_S } else { RETRY_S }));
                return passed;
            }
        };
        known.mentioned.remove("unreachable");
        let policy = self.policies.of(&cluster.id().name);
        let work = readable(nodes, cluster.as_ref(), &mut passed);
        if !self.by_hand && slices::mark_peers(self, cluster, &policy, &work, known).await {
            passed.again_at = Some(now);
        }
        let due = take_due(work, &policy, cluster.id(), known, now);
        let started = Instant::now();
        let mut steps = stream::iter(due.into_iter().map(|(node, intent, mine)| async {
            let name = node.name.clone();
            if started.elapsed() > PASS {
                // It stays due, and comes first in the next pass but for
                // earlier deadlines.
                let later = Stepped {
                    calls: vec![],
                    actions: 0,
                    wake_at: now,
                    unmarked: false,
                };
                return (name, mine, later);
            }
            let (mine, stepped) = self.node_step(cluster, &policy, node, intent, mine).await;
            (name, mine, stepped)
        }))
        .buffer_unordered(NODES_AT_ONCE);
        while let Some((name, mut mine, stepped)) = steps.next().await {
            passed.actions += stepped.actions;
            let calls = i64::try_from(stepped.calls.len()).unwrap_or(i64::MAX);
            self.metrics.queued(calls);
            passed.calls.extend(stepped.calls);
            mine.due_at = Some(stepped.wake_at);
            if self.dry_run {
                mine.events.clear();
            }
            known.events.append(&mut mine.events);
            if stepped.unmarked {
                let now = self.clock.now();
                known.note_end(mine.view(cluster.id(), &name, now), now);
            } else {
                known.nodes.insert(name, mine);
            }
        }
        passed
    }
}

/// The nodes to be looked at now; what is known of the others stays with them.
fn take_due(
    work: Vec<(Node, Intent)>,
    policy: &Policy,
    cluster: &ClusterId,
    known: &mut ClusterMemory,
    now: Timestamp,
) -> Vec<(Node, Intent, NodeMemory)> {
    let marked = slices::marked(&work, policy);
    let broken = slices::broken_gangs(&work, policy, known);
    let mut before = std::mem::take(&mut known.nodes);
    let mut due = Vec::new();
    for (node, intent) in work {
        let mine = before.remove(&node.name).filter(|m| m.key == intent.key);
        let mut mine = mine.unwrap_or_else(|| NodeMemory::about(&intent));
        let slice = slices::view(&node, &marked);
        let gangs = broken.get(&node.name).cloned().unwrap_or_default();
        if mine.slice != slice || mine.broken_elsewhere != gangs {
            (mine.slice, mine.broken_elsewhere, mine.due_at) = (slice, gangs, None);
        }
        if mine.is_due(&node, now) {
            due.push((node, intent, mine));
        } else {
            known.nodes.insert(node.name, mine);
        }
    }
    for (name, memory) in before {
        // Deleted, or unmarked by another instance: both end quietly.
        known.note_end(memory.view(cluster, &name, now), now);
    }
    due
}

/// What came of a pass, before its calls on pods are made.
#[derive(Default)]
pub(super) struct Passed {
    pub(super) status: String,
    /// Its nodes could not be listed.
    pub(super) unreachable: bool,
    pub(super) actions: usize,
    pub(super) calls: Vec<Call>,
    /// When another pass is needed, besides what the nodes' memories say.
    pub(super) again_at: Option<Timestamp>,
}

/// Nodes with a readable intent, earliest deadline first; the others are
/// reported at every pass and otherwise left alone.
fn readable(nodes: Vec<Node>, cluster: &dyn Cluster, passed: &mut Passed) -> Vec<(Node, Intent)> {
    let mut work = Vec::new();
    for node in nodes {
        let subject = Subject {
            cluster: Some(cluster.id()),
            node: &node.name,
            key: "",
        };
        match Stored::on(&node) {
            Stored::Intent(intent) => work.push((node, *intent)),
            Stored::Nothing => {
                let what = "The node is labelled as managed, but has no maintenance annotation.";
                log::alarm(Event::PassReport, &subject, what);
            }
            Stored::Unreadable(why) => {
                let what = format!(
                    "The node's maintenance annotation can't be read, so nothing is evicted: {why}."
                );
                log::alarm(Event::PassReport, &subject, &what);
                passed.status = format!("ok, but node {} has an unreadable annotation", node.name);
            }
        }
    }
    work.sort_by(|(a, x), (b, y)| (x.deadline, &a.name).cmp(&(y.deadline, &b.name)));
    work
}

fn tell_unreachable(cluster: &dyn Cluster, known: &mut ClusterMemory, error: &CallError) {
    let subject = Subject {
        cluster: Some(cluster.id()),
        ..Subject::default()
    };
    if known.first_mention("unreachable".to_owned()) {
        let what = if matches!(error, CallError::Denied { .. }) {
            Event::PermissionMissing
        } else {
            Event::ClusterUnreachable
        };
        log::event(
            what,
            &subject,
            &format!("The cluster's nodes can't be listed: {error}."),
        );
    }
}
