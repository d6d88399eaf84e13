//! Pods and the kubelets that run them: each takes its own time to stop, at
//! most its grace, and is killed at the end of it.

use drainwell_core::observed::{Pod, PodRef};
use drainwell_core::time::{seconds_between, shift};
use jiff::Timestamp;

use super::state::{Event, Key, State};
use crate::journal::{PodChange, Way};
use crate::spec::{Owner, PodSpec};

/// A Pod object and what its kubelet knows of it.
pub(super) struct PodState {
    pub(super) spec: PodSpec,
    /// As the API shows it.
    pub(super) pod: Pod,
    /// `spec.nodeName`.
    pub(super) node: Option<String>,
    pub(super) life: Life,
    /// When it was first told to stop.
    pub(super) told_at: Option<Timestamp>,
    /// How long this one takes to stop.
    pub(super) takes_s: u32,
    /// Counts the plans for its end; only the last one holds.
    pub(super) turn: u32,
    /// Order of creation.
    pub(super) number: u64,
}

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Not bound to a node.
    Waiting,
    /// Bound, its phase is Pending.
    Starting,
    /// Running and Ready.
    Ready,
    /// The API says Running, but its host is down.
    Down,
    /// Succeeded or Failed.
    Finished,
}

impl PodState {
    /// Counts for a budget: Running, Ready, not told to stop.
    pub(super) fn healthy(&self) -> bool {
        self.life == Life::Ready && self.told_at.is_none()
    }

    pub(super) fn key(&self) -> Key {
        key_of(&self.pod.id)
    }
}

pub(super) fn key_of(pod: &PodRef) -> Key {
    (pod.namespace.clone(), pod.name.clone())
}

impl State {
    /// Adds a pod that is up already, or one that waits to be bound.
    pub(super) fn add_pod(&mut self, node: Option<&str>, spec: PodSpec) -> PodRef {
        if spec.owner == Owner::DaemonSet {
            let key = (spec.namespace.clone(), spec.name.clone());
            let entry = self
                .daemon_sets
                .entry(key)
                .or_insert_with(|| (spec.clone(), vec![]));
            let new = node.filter(|node| entry.1.iter().all(|known| known != node));
            entry.1.extend(new.map(str::to_owned));
        }
        let finished = spec.finished;
        let id = self.insert_pod(spec, node.map(str::to_owned));
        if let Some(state) = self.pods.get_mut(&key_of(&id))
            && state.node.is_some()
        {
            state.life = if finished {
                Life::Finished
            } else {
                Life::Ready
            };
        }
        id
    }

    /// A controller makes a pod: on a given node, or where the scheduler finds
    /// room for it.
    pub(super) fn make_pod(&mut self, spec: PodSpec, node: Option<String>) {
        let place = node.or_else(|| self.place_for(&spec));
        let starts_in_s = spec.starts_in_s;
        let pod = self.insert_pod(spec, place.clone());
        self.note_pod(
            &pod,
            PodChange::Created {
                node: place.clone(),
            },
        );
        if place.is_some() {
            self.plan(starts_in_s, Event::PodReady { pod });
        }
    }

    fn insert_pod(&mut self, spec: PodSpec, node: Option<String>) -> PodRef {
        let made = self
            .made
            .entry((spec.namespace.clone(), spec.name.clone()))
            .or_default();
        *made += 1;
        let purpose = format!("pod {}/{} {made}", spec.namespace, spec.name);
        let name = if spec.owner.makes_names() {
            format!("{}-{}", spec.name, self.seed.suffix(&purpose))
        } else {
            spec.name.clone()
        };
        let uid = self.seed.uuid(&purpose);
        let id = PodRef {
            namespace: spec.namespace.clone(),
            name,
            uid,
        };
        let mut annotations = spec.annotations.clone();
        if spec.owner == Owner::Static {
            annotations.insert(
                drainwell_core::keys::MIRROR_ANNOTATION.to_owned(),
                id.uid.clone(),
            );
        }
        let pod = Pod {
            id: id.clone(),
            owner_kind: spec.owner.kind().map(str::to_owned),
            finished: spec.finished,
            priority_class: spec.priority_class.clone(),
            labels: spec.labels.clone(),
            annotations,
            tolerations: spec.tolerations.clone(),
            grace_s: spec.grace_s,
            // The API's creation times have whole seconds.
            created: Timestamp::from_second(self.now.as_second()).unwrap_or(self.now),
            deletion_at: None,
            deletion_grace_s: None,
        };
        let takes_s = self.seed.jitter(&purpose, spec.takes_s);
        let life = if node.is_some() {
            Life::Starting
        } else {
            Life::Waiting
        };
        let number = self.bump();
        self.touch(node.as_deref());
        let told_at = None;
        let state = PodState {
            spec,
            pod,
            node,
            life,
            told_at,
            takes_s,
            turn: 0,
            number,
        };
        self.pods.insert(key_of(&id), state);
        id
    }

    pub(super) fn pods_on(&self, node: &str) -> impl Iterator<Item = &PodState> {
        self.pods
            .values()
            .filter(move |p| p.node.as_deref() == Some(node))
    }

    /// The pod with this very UID.
    pub(super) fn pod_mut(&mut self, pod: &PodRef) -> Option<&mut PodState> {
        self.pods
            .get_mut(&key_of(pod))
            .filter(|state| state.pod.id.uid == pod.uid)
    }

    /// Whether the name belongs to a pod with another UID: an API server
    /// answers 409 then.
    pub(super) fn names_another(&self, pod: &PodRef) -> bool {
        let there = self.pods.get(&key_of(pod));
        there.is_some_and(|state| state.pod.id.uid != pod.uid)
    }

    pub(super) fn pod_ready(&mut self, pod: &PodRef) {
        if let Some(state) = self.pod_mut(pod)
            && state.life == Life::Starting
        {
            state.life = Life::Ready;
        }
    }

    /// A DELETE with a grace: the API server keeps the object until the
    /// kubelet reports that the containers have stopped. A second DELETE can
    /// only shorten the grace: the API server counts it from the first one, and
    /// makes it one second if it is over by then; the kubelet gives all of it
    /// from when it hears of it.
    pub(super) fn tell(&mut self, pod: &PodRef, grace_s: u32, way: Way) {
        let now = self.now;
        let Some(state) = self.pod_mut(pod) else {
            return;
        };
        if state.node.is_none() {
            return self.remove(pod);
        }
        if state.life == Life::Finished {
            self.note_pod(pod, PodChange::Told { way, grace_s: 0 });
            return self.remove(pod);
        }
        if state.pod.deletion_grace_s.is_some_and(|had| had <= grace_s) {
            return;
        }
        let first = state.told_at.is_none();
        let told_at = *state.told_at.get_or_insert(now);
        let counted = shift(told_at, i64::from(grace_s));
        let grace_s = if counted < now {
            1.min(grace_s)
        } else {
            grace_s
        };
        let end = shift(now, i64::from(grace_s));
        state.pod.deletion_at = Some(counted.max(now));
        state.pod.deletion_grace_s = Some(grace_s);
        state.turn += 1;
        let turn = state.turn;
        let ends_at = shift(told_at, i64::from(state.takes_s)).min(end).max(now);
        let (life, spec) = (state.life, state.spec.clone());
        self.bump();
        self.note_pod(pod, PodChange::Told { way, grace_s });
        if spec.owner == Owner::Static {
            // Only the image in the API goes: the kubelet puts it straight back.
            return self.remove(pod);
        }
        if life != Life::Down {
            self.plan_at(
                ends_at,
                Event::PodEnds {
                    pod: pod.clone(),
                    turn,
                },
            );
        }
        if first {
            self.replace_told(&spec);
        }
    }

    pub(super) fn pod_ends(&mut self, pod: &PodRef, turn: u32) {
        let now = self.now;
        let Some(state) = self
            .pod_mut(pod)
            .filter(|s| s.turn == turn && s.life != Life::Down)
        else {
            return;
        };
        let Some(told_at) = state.told_at else { return };
        let after_s = u32::try_from(seconds_between(told_at, now)).unwrap_or_default();
        let by_itself = after_s >= state.takes_s;
        let change = if by_itself {
            PodChange::Stopped { after_s }
        } else {
            PodChange::Killed { after_s }
        };
        self.note_pod(pod, change);
        self.remove(pod);
    }

    /// The object goes.
    pub(super) fn remove(&mut self, pod: &PodRef) {
        let Some(state) = self.pod_mut(pod) else {
            return;
        };
        let key = state.key();
        if let Some(state) = self.pods.remove(&key) {
            self.bump();
            self.touch(state.node.as_deref());
            self.replace_gone(state);
        }
    }

    /// A pod of this node is gone, finished or new.
    pub(super) fn touch(&mut self, node: Option<&str>) {
        let revision = self.revision;
        if let Some(node) = node.and_then(|name| self.nodes.get_mut(name)) {
            node.pods_changed = revision;
        }
    }
}
