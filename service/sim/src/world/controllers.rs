//! The controllers that make pods anew, and a scheduler that knows taints and
//! accelerators and nothing else.

use drainwell_core::observed::{Taint, Toleration};

use super::pods::{Life, PodState};
use super::state::{Event, State};
use crate::journal::PodChange;
use crate::spec::{Owner, PodSpec};

/// A Job's replacement comes this much after its pod is gone.
const JOB_DELAY_S: u32 = 10;

impl State {
    /// A `ReplicaSet` doesn't count pods that are terminating.
    pub(super) fn replace_told(&mut self, spec: &PodSpec) {
        if spec.owner == Owner::ReplicaSet {
            self.make_pod(spec.clone(), None);
        }
    }

    pub(super) fn replace_gone(&mut self, gone: PodState) {
        let PodState {
            spec,
            node,
            life,
            told_at,
            ..
        } = gone;
        match spec.owner {
            Owner::Static => self.make_pod(spec, node),
            Owner::StatefulSet => self.make_pod(spec, None),
            Owner::Job if life != Life::Finished => {
                self.plan(
                    JOB_DELAY_S,
                    Event::MakePod {
                        spec: Box::new(spec),
                    },
                );
            }
            Owner::ReplicaSet if told_at.is_none() && life != Life::Finished => {
                self.make_pod(spec, None);
            }
            // A DaemonSet's turn comes when the world settles.
            Owner::Job | Owner::ReplicaSet | Owner::DaemonSet | Owner::Nobody => {}
        }
    }

    /// A `DaemonSet` puts a pod on each of its nodes that has none of its own,
    /// as long as the taints are tolerated.
    pub(super) fn make_daemons(&mut self) {
        let mut missing = Vec::new();
        for (spec, nodes) in self.daemon_sets.values() {
            for node in nodes {
                let theirs = |p: &&PodState| {
                    p.spec.owner == Owner::DaemonSet
                        && p.spec.namespace == spec.namespace
                        && p.spec.name == spec.name
                };
                let there = self.pods_on(node).any(|p| theirs(&p));
                if !there
                    && self
                        .nodes
                        .get(node)
                        .is_some_and(|n| admits(&n.node.taints, spec))
                {
                    missing.push((spec.clone(), node.clone()));
                }
            }
        }
        for (spec, node) in missing {
            self.make_pod(spec, Some(node));
        }
    }

    /// Binds the pods that wait, the oldest first.
    pub(super) fn bind_waiting(&mut self) {
        let mut waiting: Vec<_> = self
            .pods
            .values()
            .filter(|p| p.life == Life::Waiting)
            .map(|p| (p.number, p.pod.id.clone(), p.spec.clone()))
            .collect();
        waiting.sort_by_key(|(number, ..)| *number);
        for (_, pod, spec) in waiting {
            let Some(node) = self.place_for(&spec) else {
                continue;
            };
            if let Some(state) = self.pod_mut(&pod) {
                state.node = Some(node.clone());
                state.life = Life::Starting;
                self.bump();
                self.touch(Some(&node));
                self.note_pod(&pod, PodChange::Bound { node });
                self.plan(spec.starts_in_s, Event::PodReady { pod });
            }
        }
    }

    /// The first of a pod's places that is Ready, tolerated, and has room.
    pub(super) fn place_for(&self, spec: &PodSpec) -> Option<String> {
        spec.places
            .iter()
            .find(|name| self.has_room(name, spec))
            .cloned()
    }

    fn has_room(&self, name: &str, spec: &PodSpec) -> bool {
        let Some(node) = self.nodes.get(name) else {
            return false;
        };
        let running = self.pods_on(name).filter(|p| p.life != Life::Finished);
        let used: u64 = running.map(|p| u64::from(p.spec.accelerators)).sum();
        node.node.ready
            && admits(&node.node.taints, spec)
            && used + u64::from(spec.accelerators) <= node.accelerators
    }
}

/// Whether a new pod may be put on a node with these taints. Those of
/// a `DaemonSet` tolerate what the cluster says of a node's health.
fn admits(taints: &[Taint], spec: &PodSpec) -> bool {
    taints
        .iter()
        .filter(|t| t.effect != "PreferNoSchedule")
        .all(|taint| {
            let own =
                spec.owner == Owner::DaemonSet && taint.key.starts_with("node.kubernetes.io/");
            own || spec.tolerations.iter().any(|t| tolerates(t, taint))
        })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key == taint.key || (toleration.key.is_empty() && toleration.exists);
    let value = toleration.exists || toleration.value == taint.value;
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    key && value && effect
}
