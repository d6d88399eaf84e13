//! One pass: every node with an intent is observed, planned for, acted on and
//! reported, earliest deadline first. A pass never fails as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use drainwell_core::intent::{Intent, Stored};
use drainwell_core::lifecycle;
use drainwell_core::notice::{Phase, Vm};
use drainwell_core::observed::{Answer, Node, Observed};
use drainwell_core::plan::plan;
use drainwell_core::policy::{Policies, Policy};
use drainwell_core::time::{seconds_between, shift};
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;

use super::apply::Step;
use super::memory::{ClusterMemory, Memory, NodeMemory};
use super::ports::{CallError, Cloud, Cluster};
use super::report::{MaintenanceView, PassReport};
use crate::clock::Clock;
use crate::telemetry::log::{self, Event, Subject};

/// Nodes worked on at once, per cluster. Each sends up to
/// [`super::apply::CALLS_MAX`] evictions; together they are about what one
/// API server takes (64 at once gave the most evictions a second).
const NODES_AT_ONCE: usize = 16;
/// Ended maintenances are shown for an hour, this many of them at most.
const ENDED_SHOWN_S: i64 = 3600;
const ENDED_MAX: usize = 200;
/// A window that begins this soon counts as work left.
const SOON_S: i64 = 300;

/// Everything a pass works with.
pub struct Driver {
    clusters: Vec<Arc<dyn Cluster>>,
    cloud: Option<Arc<dyn Cloud>>,
    policies: Policies,
    clock: Clock,
    dry_run: bool,
}

/// What came of one node.
pub(super) struct NodeReport {
    pub(super) view: MaintenanceView,
    pub(super) actions: usize,
    pub(super) wake_at: Timestamp,
    pub(super) unmarked: bool,
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
        }
    }

    /// The clock that everything goes by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn cluster(&self, path: &str) -> Option<&Arc<dyn Cluster>> {
        self.clusters.iter().find(|c| c.id().path == path)
    }

    /// Runs one pass over all clusters, none waiting for another.
    pub async fn pass(&self, memory: &mut Memory, serial: u64) -> PassReport {
        let work = self.clusters.iter().map(|cluster| {
            let known = memory
                .clusters
                .remove(&cluster.id().path)
                .unwrap_or_default();
            self.cluster_pass(cluster, known)
        });
        let done = futures::future::join_all(work.collect::<Vec<_>>()).await;
        let mut report = PassReport {
            serial,
            ..PassReport::default()
        };
        for (cluster, (known, part)) in self.clusters.iter().zip(done) {
            report.actions += part.actions;
            report.waiting += part.waiting;
            report.next = earliest(report.next, part.next);
            report.wake_at = earliest(report.wake_at, part.wake_at);
            report.clusters.extend(part.clusters);
            report.maintenances.extend(part.maintenances);
            memory.clusters.insert(cluster.id().path.clone(), known);
        }
        report
    }

    async fn cluster_pass(
        &self,
        cluster: &Arc<dyn Cluster>,
        mut known: ClusterMemory,
    ) -> (ClusterMemory, PassReport) {
        let id = cluster.id();
        let now = self.clock.now();
        let mut report = PassReport::default();
        known.ended.retain(|view| {
            view.ended
                .is_some_and(|at| seconds_between(at, now) < ENDED_SHOWN_S)
        });
        let nodes = match cluster.managed_nodes().await {
            Ok(nodes) => nodes,
            Err(error) => {
                report_unreachable(cluster.as_ref(), &mut known, &error, &mut report);
                report.wake_at = Some(shift(now, RETRY_S));
                return (known, report);
            }
        };
        known.unreachable = false;
        report.clusters.insert(id.path.clone(), "ok".to_owned());
        let policy = self.policies.of(&id.name);
        let mut before = std::mem::take(&mut known.nodes);
        let work = readable(nodes, cluster.as_ref(), &mut report);
        let mut steps = stream::iter(work.into_iter().map(|(node, intent)| {
            let mine = before.remove(&node.name).filter(|m| m.key == intent.key);
            let mine = mine.unwrap_or_else(|| NodeMemory::about(&intent));
            self.node_step(cluster, &policy, node, intent, mine)
        }))
        .buffer_unordered(NODES_AT_ONCE);
        while let Some((name, mine, step)) = steps.next().await {
            report.actions += step.actions;
            report.waiting += step.view.waiting();
            report.wake_at = earliest(report.wake_at, Some(step.wake_at));
            if counts_as_work(&step.view, now) && !step.unmarked {
                report.next = earliest(report.next, Some(step.wake_at));
            }
            if step.unmarked {
                known.ended.push(MaintenanceView {
                    ended: Some(now),
                    ..step.view
                });
            } else {
                report.maintenances.push(step.view);
                known.nodes.insert(name, mine);
            }
        }
        drop(steps);
        note_vanished(before, &mut known, now);
        known.ended.truncate(ENDED_MAX);
        report
            .maintenances
            .sort_by(|a, b| (a.deadline, &a.node).cmp(&(b.deadline, &b.node)));
        report.maintenances.extend(known.ended.iter().cloned());
        (known, report)
    }

    async fn node_step(
        &self,
        cluster: &Arc<dyn Cluster>,
        policy: &Policy,
        node: Node,
        intent: Intent,
        mut memory: NodeMemory,
    ) -> (String, NodeMemory, NodeReport) {
        self.look(&node, &intent, &mut memory).await;
        let name = node.name.clone();
        memory.intent = Some(intent.clone());
        let mut pods = Vec::new();
        if intent.phase == Phase::Ongoing {
            match cluster.pods(&name).await {
                Ok(list) => {
                    pods = list.pods;
                    memory.version = Some(list.version);
                }
                Err(error) => {
                    let report = self.node_failed(cluster, &node, &intent, &error);
                    return (name, memory, report);
                }
            }
        } else {
            memory.version = None;
        }
        let now = self.clock.now();
        let (look, attempts) = (memory.look.clone(), memory.attempts.clone());
        let seen = Observed {
            node,
            pods,
            look,
            attempts,
            broken_gangs: [].into(),
        };
        let plan = plan(&seen, &intent, policy, now);
        let step = Step {
            driver: self,
            cluster,
            intent: &intent,
            seen: &seen,
            now,
        };
        let report = step.take(plan, &mut memory).await;
        (name, memory, report)
    }

    /// Asks Compute about the node's VM, if that is due.
    async fn look(&self, node: &Node, intent: &Intent, memory: &mut NodeMemory) {
        let Some(cloud) = &self.cloud else {
            memory.look.off = true;
            return;
        };
        let now = self.clock.now();
        let due = lifecycle::look_due(intent, node, &memory.look, now);
        let Some(vm) = vm_of(node).filter(|_| due.is_some_and(|at| at <= now)) else {
            return;
        };
        memory.look.tried_at = Some(now);
        match cloud.instance(&vm).await {
            Ok(Some(instance)) => {
                memory.mentioned.remove("compute");
                memory.look.answer = Some((now, Answer::Instance(instance)));
            }
            Ok(None) => memory.look.answer = Some((now, Answer::NoInstance)),
            Err(error) => {
                if memory.first_mention("compute".to_owned()) {
                    tracing::warn!("Compute Engine can't be asked about {vm}: {error}");
                }
            }
        }
    }

    fn node_failed(
        &self,
        cluster: &Arc<dyn Cluster>,
        node: &Node,
        intent: &Intent,
        error: &CallError,
    ) -> NodeReport {
        let now = self.clock.now();
        let subject = Subject {
            cluster: Some(cluster.id()),
            node: &node.name,
            key: &intent.key,
        };
        let what = if matches!(error, CallError::Denied { .. }) {
            Event::PermissionMissing
        } else {
            Event::ClusterUnreachable
        };
        log::event(
            what,
            &subject,
            &format!("The pods of the node can't be listed: {error}."),
        );
        let mut view = MaintenanceView::new(cluster.id(), &node.name, intent, now);
        view.trouble = Some(error.to_string());
        NodeReport {
            view,
            actions: 0,
            wake_at: shift(now, RETRY_S),
            unmarked: false,
        }
    }
}

/// A cluster that didn't answer is asked again after this.
const RETRY_S: i64 = 3;

impl NodeMemory {
    fn about(intent: &Intent) -> Self {
        Self {
            key: intent.key.clone(),
            ..Self::default()
        }
    }
}

pub(super) fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

/// Nodes with a readable intent, earliest deadline first; the others are
/// reported at every pass and otherwise left alone.
fn readable(
    nodes: Vec<Node>,
    cluster: &dyn Cluster,
    report: &mut PassReport,
) -> Vec<(Node, Intent)> {
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
                report.clusters.insert(
                    cluster.id().path.clone(),
                    format!("ok, but node {} has an unreadable annotation", node.name),
                );
            }
        }
    }
    work.sort_by(|(a, x), (b, y)| (x.deadline, &a.name).cmp(&(y.deadline, &b.name)));
    work
}

fn report_unreachable(
    cluster: &dyn Cluster,
    known: &mut ClusterMemory,
    error: &CallError,
    report: &mut PassReport,
) {
    let id = cluster.id();
    let subject = Subject {
        cluster: Some(id),
        ..Subject::default()
    };
    if !std::mem::replace(&mut known.unreachable, true) {
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
    report
        .clusters
        .insert(id.path.clone(), format!("unreachable: {error}"));
    // Shown as they were last seen; the memory itself is kept for later.
    let views = known.nodes.values().filter_map(|node| node.view.clone());
    report.maintenances.extend(views);
    report.maintenances.extend(known.ended.iter().cloned());
}

/// Nodes that had an intent and are no longer listed: deleted, or unmarked by
/// another instance. Both end quietly.
fn note_vanished(before: BTreeMap<String, NodeMemory>, known: &mut ClusterMemory, now: Timestamp) {
    for view in before.into_values().filter_map(|memory| memory.view) {
        known.ended.push(MaintenanceView {
            ended: Some(now),
            ..view
        });
    }
}

fn counts_as_work(view: &MaintenanceView, now: Timestamp) -> bool {
    view.phase != Phase::Scheduled || seconds_between(now, view.since) < SOON_S
}

/// The VM behind a node: `gce://PROJECT/ZONE/NAME`.
fn vm_of(node: &Node) -> Option<Vm> {
    let path = node.provider_id.as_deref()?.strip_prefix("gce://")?;
    let (project, rest) = path.split_once('/')?;
    let (zone, name) = rest.split_once('/')?;
    Some(Vm {
        project: project.to_owned(),
        zone: zone.to_owned(),
        name: Some(name.to_owned()),
        id: node.instance_id(),
    })
}
