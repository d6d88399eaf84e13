//! The state of the world and the queue of what is going to happen in it.
//!
//! Events are taken in the order of their time, and those of one time in the
//! order in which they were planned, so that one seed gives one course.

use std::collections::{BTreeMap, BTreeSet};

use drainwell_app::driver::events::KubeEvent;
use drainwell_app::driver::ports::ClusterId;
use drainwell_core::observed::PodRef;
use drainwell_core::time::shift;
use jiff::Timestamp;

use super::budgets::BudgetState;
use super::hosts::Machine;
use super::nodes::NodeState;
use super::pods::PodState;
use crate::journal::{Entry, NodeChange, PodChange, What};
use crate::seed::Seed;
use crate::spec::PodSpec;

/// Namespace and name, unique among the objects of one kind.
pub(super) type Key = (String, String);

/// Everything there is.
pub(super) struct State {
    pub(super) cluster_name: String,
    pub(super) cluster_location: String,
    pub(super) project: String,
    pub(super) seed: Seed,
    pub(super) now: Timestamp,
    pub(super) nodes: BTreeMap<String, NodeState>,
    /// By the name of their Node, which is theirs too.
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) pods: BTreeMap<Key, PodState>,
    pub(super) budgets: BTreeMap<Key, BudgetState>,
    /// Namespaces whose pods admission keeps.
    pub(super) guarded: BTreeSet<String>,
    /// Each `DaemonSet` by namespace and name, with the names of the nodes that it
    /// wants a pod on, those too that are away.
    pub(super) daemon_sets: BTreeMap<Key, (PodSpec, Vec<String>)>,
    /// How many pods a controller has made under each beginning of a name.
    pub(super) made: BTreeMap<Key, u32>,
    /// How many nodes of each name have been removed.
    pub(super) removed: BTreeMap<String, u32>,
    pub(super) journal: Vec<Entry>,
    /// Kubernetes Events by name: a repeat is the same one.
    pub(super) events: BTreeMap<String, KubeEvent>,
    /// The last resourceVersion that was given out.
    pub(super) revision: u64,
    queue: BTreeMap<(Timestamp, u64), Event>,
    planned: u64,
}

/// What is going to happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A pod's containers end, if it is still its turn.
    PodEnds { pod: PodRef, turn: u32 },
    /// A pod becomes ready.
    PodReady { pod: PodRef },
    /// A controller makes a pod.
    MakePod { spec: Box<PodSpec> },
    /// A maintenance that was announced begins.
    MaintenanceBegins { node: String, turn: u32 },
    /// A host stops.
    HostStops { node: String, turn: u32 },
    /// The cluster notices that a node's kubelet is silent.
    NodeSilent { node: String, boots: u32 },
    /// The cluster gives up the pods of a silent node.
    NodeGivenUp { node: String, boots: u32 },
    /// A host is back, its VM boots.
    HostStarts { node: String, id: u64 },
    /// The kubelet of a VM that has booted reports.
    NodeBack { node: String, boots: u32 },
    /// Compute shows a maintenance no more.
    MaintenanceEnds { node: String, turn: u32 },
}

impl State {
    pub(super) fn new(id: &ClusterId, project: String, seed: Seed, now: Timestamp) -> Self {
        Self {
            cluster_name: id.name.clone(),
            cluster_location: id.location.clone(),
            project,
            seed,
            now,
            nodes: BTreeMap::new(),
            machines: BTreeMap::new(),
            pods: BTreeMap::new(),
            budgets: BTreeMap::new(),
            guarded: BTreeSet::new(),
            daemon_sets: BTreeMap::new(),
            made: BTreeMap::new(),
            removed: BTreeMap::new(),
            journal: Vec::new(),
            events: BTreeMap::new(),
            revision: 1000,
            queue: BTreeMap::new(),
            planned: 0,
        }
    }

    /// Lets everything happen that is due by `to`.
    pub(super) fn advance(&mut self, to: Timestamp) {
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= to
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = at.max(self.now);
            self.happen(event);
            self.settle();
        }
        self.now = to.max(self.now);
    }

    /// When the next thing is going to happen.
    pub(super) fn next_event(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// Plans an event for `seconds` from now.
    pub(super) fn plan(&mut self, seconds: u32, event: Event) {
        self.plan_at(shift(self.now, i64::from(seconds)), event);
    }

    pub(super) fn plan_at(&mut self, at: Timestamp, event: Event) {
        self.planned += 1;
        self.queue.insert((at, self.planned), event);
    }

    pub(super) fn note(&mut self, what: What) {
        self.journal.push(Entry { at: self.now, what });
    }

    pub(super) fn note_node(&mut self, node: &str, change: NodeChange) {
        self.note(What::Node {
            node: node.to_owned(),
            change,
        });
    }

    pub(super) fn note_pod(&mut self, pod: &PodRef, change: PodChange) {
        self.note(What::Pod {
            pod: pod.clone(),
            change,
        });
    }

    /// A new resourceVersion.
    pub(super) fn bump(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// What follows from any change: controllers and the scheduler act, and
    /// budgets are counted anew.
    pub(super) fn settle(&mut self) {
        self.make_daemons();
        self.bind_waiting();
        self.count_budgets();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::PodEnds { pod, turn } => self.pod_ends(&pod, turn),
            Event::PodReady { pod } => self.pod_ready(&pod),
            Event::MakePod { spec } => self.make_pod(*spec, None),
            Event::MaintenanceBegins { node, turn } => self.maintenance_begins(&node, turn),
            Event::HostStops { node, turn } => self.host_stops(&node, turn),
            Event::NodeSilent { node, boots } => self.node_silent(&node, boots),
            Event::NodeGivenUp { node, boots } => self.node_given_up(&node, boots),
            Event::HostStarts { node, id } => self.host_starts(&node, id),
            Event::NodeBack { node, boots } => self.node_back(&node, boots),
            Event::MaintenanceEnds { node, turn } => self.maintenance_ends(&node, turn),
        }
    }
}
