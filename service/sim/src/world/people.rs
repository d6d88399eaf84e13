//! What people and other components do to the cluster while the service works.

use drainwell_core::observed::{Node, PodRef};

use super::World;
use super::pods::Life;
use super::state::State;
use crate::journal::{NodeChange, Way};
use crate::spec::{MaintenanceSpec, NodeSpec, Owner};

impl World {
    /// A pod runs to its end.
    pub fn finish_pod(&self, pod: &PodRef) {
        self.change(|state| {
            let Some(found) = state.pod_mut(pod) else {
                return;
            };
            found.life = Life::Finished;
            found.pod.finished = true;
            let node = found.node.clone();
            state.bump();
            state.touch(node.as_deref());
        });
    }

    /// Somebody deletes a pod, with the grace that it asks for.
    pub fn delete_pod(&self, pod: &PodRef) {
        self.delete_now(pod, None, Way::Platform);
    }

    /// Somebody annotates a pod.
    pub fn annotate_pod(&self, pod: &PodRef, key: &str, value: &str) {
        self.change(|state| {
            if let Some(found) = state.pod_mut(pod) {
                found
                    .pod
                    .annotations
                    .insert(key.to_owned(), value.to_owned());
                state.bump();
            }
        });
    }

    /// Somebody rewrites a Node. Returns whether there is such a node.
    pub fn change_node(&self, name: &str, change: impl FnOnce(&mut Node)) -> bool {
        self.change(|state| {
            let revision = state.bump().to_string();
            let Some(found) = state.nodes.get_mut(name) else {
                return false;
            };
            change(&mut found.node);
            found.node.resource_version = revision;
            state.note_marks(name);
            true
        })
    }

    /// A maintenance is over before the host has stopped for it.
    pub fn end_early(&self, node: &str) {
        self.change(|state| state.end_early(node));
    }

    /// How a maintenance that lies ahead is going to go.
    #[must_use]
    pub fn pending(&self, node: &str) -> Option<MaintenanceSpec> {
        self.look(|state| state.machines.get(node)?.pending())
    }

    /// A node goes, with its VM and its pods.
    pub fn remove_node(&self, node: &str) {
        self.change(|state| state.remove_node(node));
    }

    /// A node is built anew under the same name, on another VM.
    pub fn rebuild_node(&self, spec: NodeSpec) {
        self.change(|state| {
            state.remove_node(&spec.name);
            state.add_node(spec);
        });
    }
}

impl State {
    /// A maintenance that has begun is called off before its host stops.
    fn end_early(&mut self, node: &str) {
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        let shown = machine.instance.maintenance.as_ref();
        if machine.instance.running && shown.is_some_and(|m| m.ongoing) {
            machine.turn += 1;
            let turn = machine.turn;
            self.maintenance_ends(node, turn);
        }
    }

    fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_none() {
            return;
        }
        self.machines.remove(name);
        *self.removed.entry(name.to_owned()).or_default() += 1;
        let bound: Vec<PodRef> = self.pods_on(name).map(|p| p.pod.id.clone()).collect();
        for pod in bound {
            // The image of a static pod goes with its kubelet.
            if let Some(state) = self.pod_mut(&pod) {
                let key = state.key();
                let gone = self.pods.remove(&key);
                self.bump();
                if let Some(gone) = gone.filter(|p| p.spec.owner != Owner::Static) {
                    self.replace_gone(gone);
                }
            }
        }
        self.note_node(name, NodeChange::NotReady);
    }
}
