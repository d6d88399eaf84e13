//! The reference model: what is true of nodes and pods, and since when, as
//! the world shows it. Knows nothing of how the service decides.

use std::collections::{BTreeMap, BTreeSet};

use drainwell_core::intent::{Intent, Stored};
use drainwell_core::keys;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Instance, Node, Pod, PodRef};
use drainwell_core::time::shift;
use jiff::Timestamp;

use crate::world::World;

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Model {
    revision: Option<String>,
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    /// By UID. Those that are gone stay known.
    pub(super) pods: BTreeMap<String, PodFacts>,
    /// What Compute showed of each node's VM, and from when on.
    machines: BTreeMap<String, Vec<(Timestamp, Option<Instance>)>>,
}

/// Of a Node.
#[derive(Debug)]
pub(super) struct NodeFacts {
    pub(super) node: Node,
    /// Its intents, and from when on.
    past: Vec<(Timestamp, Option<Intent>)>,
    pub(super) unreadable: bool,
    pub(super) ours_label: bool,
    pub(super) ours_taint: bool,
    pub(super) skip_since: Option<Timestamp>,
    /// The first tier that holds pods, and since when it is that one.
    pub(super) open: Option<(usize, Timestamp)>,
    /// Maintenances about which the deadline's check has been made.
    pub(super) judged: BTreeSet<String>,
}

/// Of a pod.
#[derive(Debug)]
pub(super) struct PodFacts {
    pub(super) pod: Pod,
    pub(super) node: Option<String>,
    pub(super) since: Timestamp,
    pub(super) gone: bool,
    pub(super) finished_since: Option<Timestamp>,
    pub(super) skip_since: Option<Timestamp>,
    pub(super) told_since: Option<Timestamp>,
    /// The grace that it was first told with.
    pub(super) told_grace_s: Option<u32>,
    /// Instances that asked for its eviction in vain: a budget holds it, or
    /// the server failed.
    pub(super) held: BTreeSet<usize>,
    /// Instances to which admission refused to let it be told, each with the
    /// key of the maintenance.
    pub(super) refused: BTreeMap<usize, String>,
    /// When an instance first asked for its end.
    pub(super) asked: Option<Timestamp>,
}

impl Model {
    /// Takes in what has changed.
    pub(super) fn observe(&mut self, world: &World, now: Timestamp) {
        self.observe_machines(world, now);
        let revision = world.revision();
        if self.revision.as_ref() == Some(&revision) {
            return;
        }
        self.revision = Some(revision);
        let nodes = world.all_nodes();
        self.nodes.retain(|name, facts| {
            nodes
                .iter()
                .any(|n| n.name == *name && n.uid == facts.node.uid)
        });
        for node in nodes {
            self.observe_node(node, now);
        }
        let mut there = BTreeSet::new();
        for (pod, node) in world.all_pods() {
            there.insert(pod.id.uid.clone());
            self.observe_pod(pod, node, now);
        }
        for (uid, facts) in &mut self.pods {
            facts.gone |= !there.contains(uid);
            let node = facts.node.as_ref().and_then(|n| self.nodes.get(n));
            if node.is_none_or(|n| n.intent().is_none()) {
                // The next maintenance may ask for it again.
                facts.refused.clear();
            }
        }
        self.observe_tiers(now);
    }

    fn observe_machines(&mut self, world: &World, now: Timestamp) {
        let machines = &mut self.machines;
        world.each_instance(|name, instance| {
            let known = machines.get(name).and_then(|past| past.last());
            if known.is_none_or(|(_, last)| last.as_ref() != instance) {
                let past = machines.entry(name.to_owned()).or_default();
                past.push((now, instance.cloned()));
            }
        });
    }

    fn observe_node(&mut self, node: Node, now: Timestamp) {
        let stored = Stored::on(&node);
        let unreadable = matches!(stored, Stored::Unreadable(_));
        let intent = match stored {
            Stored::Intent(intent) => Some(*intent),
            Stored::Nothing | Stored::Unreadable(_) => None,
        };
        let skipped = node
            .annotations
            .get(keys::SKIP_ANNOTATION)
            .is_some_and(|v| v == "true");
        let name = node.name.clone();
        let facts = self.nodes.entry(name).or_insert_with(|| NodeFacts {
            node: node.clone(),
            past: Vec::new(),
            unreadable,
            ours_label: false,
            ours_taint: false,
            skip_since: None,
            open: None,
            judged: BTreeSet::new(),
        });
        if facts.past.last().is_none_or(|(_, last)| *last != intent) {
            facts.past.push((now, intent));
        }
        facts.unreadable = unreadable;
        facts.skip_since = if skipped {
            facts.skip_since.or(Some(now))
        } else {
            None
        };
        facts.node = node;
    }

    fn observe_pod(&mut self, pod: Pod, node: Option<String>, now: Timestamp) {
        let facts = self
            .pods
            .entry(pod.id.uid.clone())
            .or_insert_with(|| PodFacts {
                pod: pod.clone(),
                node: None,
                since: now,
                gone: false,
                finished_since: None,
                skip_since: None,
                told_since: None,
                told_grace_s: None,
                held: BTreeSet::new(),
                refused: BTreeMap::new(),
                asked: None,
            });
        let skipped = pod
            .annotations
            .get(keys::SKIP_ANNOTATION)
            .is_some_and(|v| v == "true");
        let since = |known: Option<Timestamp>, holds: bool| known.or(holds.then_some(now));
        facts.finished_since = since(facts.finished_since, pod.finished);
        facts.skip_since = since(facts.skip_since, skipped);
        facts.told_since = since(facts.told_since, pod.deletion_at.is_some());
        facts.told_grace_s = facts.told_grace_s.or(pod.deletion_grace_s);
        if facts.node != node {
            facts.since = now;
        }
        facts.node = node;
        facts.pod = pod;
    }

    fn observe_tiers(&mut self, now: Timestamp) {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self
            .pods
            .values()
            .filter(|p| p.holds() && p.refused.is_empty())
        {
            if let Some(node) = &pod.node {
                let tier = first.entry(node).or_insert(usize::MAX);
                *tier = tier_of(&pod.pod).min(*tier);
            }
        }
        for (name, facts) in &mut self.nodes {
            let tier = first.get(name.as_str()).copied();
            if facts.open.map(|(tier, _)| tier) != tier {
                facts.open = tier.map(|tier| (tier, now));
            }
        }
    }

    /// The pods that are on a node now.
    pub(super) fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        let there = self.pods.values().filter(|p| !p.gone);
        there.filter(move |p| p.node.as_deref() == Some(node))
    }

    /// The pod with this very identity.
    pub(super) fn pod(&self, id: &PodRef) -> Option<&PodFacts> {
        self.pods.get(&id.uid).filter(|p| p.pod.id == *id)
    }

    /// An instance has died, and with it what it was refused.
    pub(super) fn forget_refusals(&mut self, instance: usize) {
        for pod in self.pods.values_mut() {
            pod.refused.remove(&instance);
        }
    }

    /// Whether Compute has shown any maintenance of a node's VM since `from`.
    pub(super) fn shown_since(&self, node: &str, from: Timestamp) -> bool {
        let past = self.machines.get(node).map_or(&[][..], Vec::as_slice);
        let ends = past
            .iter()
            .skip(1)
            .map(|(at, _)| *at)
            .chain([Timestamp::MAX]);
        let mut shown = past.iter().zip(ends).filter(|(_, end)| *end > from);
        shown.any(|((_, vm), _)| vm.as_ref().is_some_and(|vm| vm.maintenance.is_some()))
    }

    /// What Compute showed of a node's VM at a moment.
    pub(super) fn machine_at(&self, node: &str, at: Timestamp) -> Option<Instance> {
        let past = self.machines.get(node)?;
        let then = past.iter().rev().find(|(since, _)| *since <= at);
        then.or(past.first())?.1.clone()
    }

    /// Whether Compute has shown this VM's maintenance as ongoing all the
    /// time since `from`.
    pub(super) fn ongoing_since(&self, node: &str, id: u64, from: Timestamp) -> bool {
        let Some(past) = self.machines.get(node) else {
            return false;
        };
        let shows = |vm: &Option<Instance>| {
            vm.as_ref()
                .is_some_and(|vm| vm.id == id && vm.maintenance.as_ref().is_some_and(|m| m.ongoing))
        };
        let before = past.iter().rposition(|(since, _)| *since <= from);
        before.is_some_and(|index| past[index..].iter().all(|(_, vm)| shows(vm)))
    }
}

impl NodeFacts {
    /// The ongoing intents that it has had since `from`.
    pub(super) fn ongoing(&self, from: Timestamp) -> impl Iterator<Item = &Intent> {
        let next = self.past.iter().skip(1).map(|(at, _)| *at);
        let ends = next.chain([Timestamp::MAX]);
        self.past
            .iter()
            .zip(ends)
            .filter(move |(_, end)| *end > from)
            .filter_map(|((_, intent), _)| intent.as_ref())
            .filter(|intent| drains(intent))
    }

    /// Its intent now.
    pub(super) fn intent(&self) -> Option<&Intent> {
        self.past.last().and_then(|(_, intent)| intent.as_ref())
    }

    /// The ongoing intent that it has now, and since when it is that one.
    pub(super) fn drain(&self) -> Option<(&Intent, Timestamp)> {
        let intent = self.intent().filter(|i| drains(i))?;
        let same = |other: &Option<Intent>| {
            let other = other.as_ref();
            other.is_some_and(|i| drains(i) && i.noticed == intent.noticed)
        };
        let first = self.past.iter().rev().take_while(|(_, i)| same(i)).last()?;
        Some((intent, first.0))
    }
}

impl PodFacts {
    /// Holds its tier: it is there, runs, and may be told to stop.
    pub(super) fn holds(&self) -> bool {
        !self.gone && self.finished_since.is_none() && self.skip_since.is_none() && !self.is_fixed()
    }

    /// The same, for an instance that may have been refused its eviction.
    pub(super) fn holds_for(&self, instance: usize, intent: &Intent) -> bool {
        self.holds() && self.refused.get(&instance) != Some(&intent.key)
    }

    /// Never to be told: a static pod, or one that its `DaemonSet` puts back.
    pub(super) fn is_fixed(&self) -> bool {
        match self.pod.owner_kind.as_deref() {
            Some("Node") => true,
            Some("DaemonSet") => self.tolerates(),
            _ => false,
        }
    }

    pub(super) fn tolerates(&self) -> bool {
        self.pod
            .tolerations
            .iter()
            .any(|t| t.exists && t.key.is_empty())
    }

    /// Made after the marks although it tolerates them; `unsure_s` is by how
    /// much clocks may differ.
    pub(super) fn came_back(&self, intent: &Intent, unsure_s: i64) -> bool {
        self.tolerates() && self.pod.created > shift(intent.noticed, unsure_s)
    }

    /// The gang, for the sorts of gangs in the scene.
    pub(super) fn gang(&self) -> Option<(&str, &str)> {
        let named = self.pod.annotations.get(keys::GANG_ANNOTATION);
        let job = || self.pod.labels.get("batch.kubernetes.io/job-name");
        Some((&self.pod.id.namespace, named.or_else(job)?))
    }
}

/// Whether the service evicts for it: it doesn't for a drain by hand.
fn drains(intent: &Intent) -> bool {
    intent.phase == Phase::Ongoing && intent.source != Source::Manual
}

/// The tier by annotation, or by the documented defaults: workload, daemon,
/// system.
pub(super) fn tier_of(pod: &Pod) -> usize {
    let named = pod.annotations.get(keys::TIER_ANNOTATION);
    let named = named.and_then(|n| ["workload", "daemon", "system"].iter().position(|t| t == n));
    if let Some(tier) = named {
        return tier;
    }
    let critical = pod
        .priority_class
        .as_deref()
        .is_some_and(|c| c.starts_with("system-"));
    if critical || pod.id.namespace == "kube-system" {
        2
    } else {
        usize::from(pod.owner_kind.as_deref() == Some("DaemonSet"))
    }
}
