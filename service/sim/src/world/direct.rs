//! Calls on the world carried out in one instant, for a layer that adds
//! latencies and faults of its own.

use drainwell_app::driver::events::KubeEvent;
use drainwell_app::driver::ports::{CallError, PodList};
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::notice::Vm;
use drainwell_core::observed::{Instance, Node, Pod, PodRef};
use jiff::Timestamp;

use super::World;
use super::pods::key_of;
use crate::journal::{Entry, Way};

impl World {
    /// The Nodes with this label.
    #[must_use]
    pub fn list_nodes(&self, label: &str, value: &str) -> Vec<Node> {
        let has = |node: &&Node| node.labels.get(label).is_some_and(|v| v == value);
        self.look(|state| {
            let nodes = state.nodes.values().map(|n| &n.node);
            nodes.filter(has).cloned().collect()
        })
    }

    /// All Nodes.
    #[must_use]
    pub fn all_nodes(&self) -> Vec<Node> {
        self.look(|state| state.nodes.values().map(|n| n.node.clone()).collect())
    }

    /// All pods, each with the node that it is bound to.
    #[must_use]
    pub fn all_pods(&self) -> Vec<(Pod, Option<String>)> {
        self.look(|state| {
            let pods = state.pods.values();
            pods.map(|p| (p.pod.clone(), p.node.clone())).collect()
        })
    }

    /// Shows the VM behind each node that there is or was.
    pub fn each_instance(&self, mut show: impl FnMut(&str, Option<&Instance>)) {
        self.look(|state| {
            for (name, machine) in &state.machines {
                show(name, Some(&machine.instance));
            }
            for name in state.removed.keys() {
                if !state.machines.contains_key(name) {
                    show(name, None);
                }
            }
        });
    }

    /// What has happened since `seen` things had.
    #[must_use]
    pub fn journal_since(&self, seen: usize) -> Vec<Entry> {
        self.look(|state| state.journal.get(seen..).unwrap_or_default().to_vec())
    }

    /// When the next thing is going to happen by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        self.look(|state| state.next_event())
    }

    /// The last resourceVersion that was given out.
    #[must_use]
    pub fn revision(&self) -> String {
        self.look(|state| state.revision.to_string())
    }

    /// The pods bound to a node, with the version of the list.
    #[must_use]
    pub fn list_pods(&self, node: &str) -> PodList {
        self.look(|state| PodList {
            pods: state.pods_on(node).map(|p| p.pod.clone()).collect(),
            version: state.revision.to_string(),
        })
    }

    /// The pod with this very UID, and the node that it is bound to.
    #[must_use]
    pub fn find_pod(&self, pod: &PodRef) -> Option<(Pod, Option<String>)> {
        self.look(|state| {
            let found = state.pods.get(&key_of(pod));
            found
                .filter(|p| p.pod.id.uid == pod.uid)
                .map(|p| (p.pod.clone(), p.node.clone()))
        })
    }

    /// `instances.get`.
    #[must_use]
    pub fn instance_now(&self, vm: &Vm) -> Option<Instance> {
        self.look(|state| {
            let mut machines = state.machines.values();
            machines.find(|m| m.is(vm)).map(|m| m.instance.clone())
        })
    }

    /// PATCH of a Node.
    ///
    /// # Errors
    /// As an API server has them.
    pub fn edit_now(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        self.change(|state| state.edit(edit))
    }

    /// POST of an Event: one of the same name is there already.
    pub fn note_event(&self, event: &KubeEvent) {
        self.look(|state| {
            let known = state.events.entry(event.name.clone());
            known.or_insert_with(|| event.clone());
        });
    }

    /// The Events that were written, by name.
    #[must_use]
    pub fn events(&self) -> Vec<KubeEvent> {
        self.look(|state| state.events.values().cloned().collect())
    }

    /// The Eviction API.
    pub fn evict_now(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        self.change(|state| state.evict(pod, grace_s))
    }

    /// DELETE of a pod, with its UID as precondition.
    pub fn delete_now(&self, pod: &PodRef, grace_s: Option<u32>, way: Way) -> Outcome {
        self.change(|state| {
            if state.names_another(pod) {
                return Outcome::Stale;
            }
            let refused = state.guards(pod).filter(|_| way != Way::Platform);
            let Some(found) = state.pod_mut(pod) else {
                return Outcome::Done;
            };
            if let Some(refused) = refused {
                return refused;
            }
            let grace_s = grace_s.unwrap_or(found.pod.grace_s);
            state.tell(pod, grace_s, way);
            Outcome::Done
        })
    }
}
