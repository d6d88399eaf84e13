//! Hosts, the VMs on them, and what a maintenance does to both: the host
//! really stops at its deadline, whatever still runs.

use std::collections::BTreeMap;

use drainwell_core::keys;
use drainwell_core::notice::Vm;
use drainwell_core::observed::{Instance, Maintenance, PodRef};
use drainwell_core::time::shift;
use jiff::Timestamp;

use super::pods::Life;
use super::state::{Event, State};
use crate::journal::{NodeChange, PodChange, Way};
use crate::spec::{MaintenanceSpec, NodeSpec, Owner};

/// A kubelet that is silent for this long makes its Node not Ready.
const SILENT_S: u32 = 40;
/// Pods of an unreachable node are given up after this long.
const GIVEN_UP_S: u32 = 300;
/// From the VM's start until its kubelet reports.
const BOOT_S: u32 = 60;
/// The length of a window, as Google's samples have it.
const WINDOW_S: i64 = 4 * 3600;

/// A VM.
pub(super) struct Machine {
    project: String,
    zone: String,
    pub(super) instance: Instance,
    maintenance: Option<MaintenanceSpec>,
    /// Counts the announcements; only the last one holds.
    pub(super) turn: u32,
    boots: u32,
}

impl Machine {
    pub(super) fn new(state: &State, spec: &NodeSpec) -> Self {
        let labels = BTreeMap::from([
            (keys::VM_CLUSTER_NAME.to_owned(), state.cluster_name.clone()),
            (
                keys::VM_CLUSTER_LOCATION.to_owned(),
                state.cluster_location.clone(),
            ),
            ("goog-gke-node".to_owned(), String::new()),
        ]);
        let since = shift(state.now, -86_400);
        let earlier = state.earlier_nodes(&spec.name);
        Self {
            project: state.project.clone(),
            zone: spec.zone.clone(),
            instance: Instance {
                id: spec.instance_id,
                name: spec.name.clone(),
                running: true,
                terminates: !spec.migrates,
                labels,
                created: Some(since),
                last_start: Some(since),
                maintenance: None,
            },
            maintenance: None,
            // Events planned for an earlier VM of this name concern no later one.
            turn: earlier * 1000,
            boots: earlier * 1000 + 1,
        }
    }

    pub(super) fn vm(&self) -> Vm {
        Vm {
            project: self.project.clone(),
            zone: self.zone.clone(),
            name: Some(self.instance.name.clone()),
            id: Some(self.instance.id),
        }
    }

    pub(super) fn pending(&self) -> Option<MaintenanceSpec> {
        let ahead = self
            .instance
            .maintenance
            .as_ref()
            .is_some_and(|m| !m.ongoing);
        self.maintenance.clone().filter(|_| ahead)
    }

    /// Whether `instances.get` with this identity finds it.
    pub(super) fn is(&self, vm: &Vm) -> bool {
        let named = vm.name.as_ref().map(|name| *name == self.instance.name);
        self.project == vm.project
            && self.zone == vm.zone
            && named.unwrap_or(vm.id == Some(self.instance.id))
    }
}

impl State {
    pub(super) fn announce(
        &mut self,
        node: &str,
        starts_at: Timestamp,
        spec: MaintenanceSpec,
    ) -> bool {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else {
            return false;
        };
        machine.turn += 1;
        machine.instance.maintenance = Some(Maintenance {
            ongoing: false,
            start: Some(starts_at),
            end: Some(shift(starts_at, WINDOW_S)),
            reasons: spec.reasons.clone(),
        });
        machine.maintenance = Some(spec);
        let turn = machine.turn;
        if starts_at <= now {
            self.maintenance_begins(node, turn);
        } else {
            self.note_node(node, NodeChange::MaintenanceAnnounced { starts_at });
            let node = node.to_owned();
            self.plan_at(starts_at, Event::MaintenanceBegins { node, turn });
        }
        true
    }

    pub(super) fn cancel(&mut self, node: &str) {
        if let Some(machine) = self.machines.get_mut(node)
            && machine
                .instance
                .maintenance
                .as_ref()
                .is_some_and(|m| !m.ongoing)
        {
            machine.turn += 1;
            machine.instance.maintenance = None;
            machine.maintenance = None;
            self.note_node(node, NodeChange::MaintenanceCancelled);
        }
    }

    pub(super) fn maintenance_begins(&mut self, node: &str, turn: u32) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node).filter(|m| m.turn == turn) else {
            return;
        };
        let notice_s = machine.maintenance.as_ref().map_or(0, |spec| spec.notice_s);
        if let Some(shown) = &mut machine.instance.maintenance {
            // Starting a maintenance rewrites its window.
            shown.ongoing = true;
            shown.start = Some(now);
            shown.end = Some(shift(now, WINDOW_S));
        }
        let stops_at = shift(now, i64::from(notice_s));
        self.note_node(node, NodeChange::MaintenanceBegan { stops_at });
        let node = node.to_owned();
        self.plan_at(stops_at, Event::HostStops { node, turn });
    }

    pub(super) fn host_stops(&mut self, node: &str, turn: u32) {
        let Some(machine) = self.machines.get_mut(node).filter(|m| m.turn == turn) else {
            return;
        };
        machine.instance.running = false;
        let (boots, id) = (machine.boots, machine.instance.id);
        let repair_s = machine.maintenance.as_ref().map_or(0, |spec| spec.repair_s);
        self.note_node(node, NodeChange::HostStopped);
        let mut lost = Vec::new();
        for state in self
            .pods
            .values_mut()
            .filter(|p| p.node.as_deref() == Some(node))
        {
            match state.life {
                Life::Starting | Life::Ready => {
                    state.life = Life::Down;
                    lost.push((state.pod.id.clone(), state.told_at.is_some()));
                }
                Life::Waiting | Life::Down | Life::Finished => {}
            }
        }
        for (pod, told) in lost {
            self.note_pod(&pod, PodChange::Lost { told });
        }
        let node = node.to_owned();
        self.plan(
            SILENT_S,
            Event::NodeSilent {
                node: node.clone(),
                boots,
            },
        );
        self.plan(repair_s, Event::HostStarts { node, id });
    }

    fn boots(&self, node: &str) -> u32 {
        self.machines.get(node).map_or(0, |m| m.boots)
    }

    pub(super) fn node_silent(&mut self, node: &str, boots: u32) {
        if self.boots(node) == boots {
            self.set_ready(node, false);
            let node = node.to_owned();
            self.plan(GIVEN_UP_S, Event::NodeGivenUp { node, boots });
        }
    }

    /// Pods that don't stay on an unreachable node for good are deleted; their
    /// objects stay until a kubelet confirms it.
    pub(super) fn node_given_up(&mut self, node: &str, boots: u32) {
        if self.boots(node) != boots {
            return;
        }
        let leaving: Vec<(PodRef, u32)> = self
            .pods_on(node)
            .filter(|p| p.life == Life::Down && p.told_at.is_none())
            .filter(|p| !matches!(p.spec.owner, Owner::DaemonSet | Owner::Static))
            .map(|p| (p.pod.id.clone(), p.pod.grace_s))
            .collect();
        for (pod, grace_s) in leaving {
            self.tell(&pod, grace_s, Way::Platform);
        }
    }

    pub(super) fn host_starts(&mut self, node: &str, id: u64) {
        let now = self.now;
        let there = self.machines.get_mut(node);
        let Some(machine) = there.filter(|m| m.instance.id == id) else {
            return;
        };
        machine.instance.running = true;
        machine.instance.last_start = Some(now);
        machine.boots += 1;
        let (boots, turn) = (machine.boots, machine.turn);
        let cleared_s = machine
            .maintenance
            .as_ref()
            .map_or(0, |spec| spec.cleared_s);
        self.note_node(node, NodeChange::HostStarted);
        let node = node.to_owned();
        self.plan(
            BOOT_S,
            Event::NodeBack {
                node: node.clone(),
                boots,
            },
        );
        self.plan(cleared_s, Event::MaintenanceEnds { node, turn });
    }

    pub(super) fn node_back(&mut self, node: &str, boots: u32) {
        if self.boots(node) != boots {
            return;
        }
        let boot_id = self.seed.uuid(&format!("boot {node} {boots}"));
        if let Some(state) = self.nodes.get_mut(node) {
            state.node.boot_id = Some(boot_id);
        }
        self.set_ready(node, true);
        let down: Vec<(PodRef, bool)> = self
            .pods_on(node)
            .filter(|p| p.life == Life::Down)
            .map(|p| (p.pod.id.clone(), p.pod.deletion_at.is_some()))
            .collect();
        for (pod, deleted) in down {
            if deleted {
                self.remove(&pod);
            } else {
                self.restart(&pod);
            }
        }
    }

    /// What a kubelet finds after a boot starts again, but a Job's pod has failed.
    fn restart(&mut self, pod: &PodRef) {
        let Some(state) = self.pod_mut(pod) else {
            return;
        };
        if state.spec.owner == Owner::Job {
            state.life = Life::Finished;
            state.pod.finished = true;
            let (spec, node) = (Box::new(state.spec.clone()), state.node.clone());
            self.bump();
            self.touch(node.as_deref());
            self.plan(0, Event::MakePod { spec });
        } else {
            state.life = Life::Starting;
            let starts_in_s = state.spec.starts_in_s;
            self.note_pod(pod, PodChange::Restarted);
            self.plan(starts_in_s, Event::PodReady { pod: pod.clone() });
        }
    }

    pub(super) fn maintenance_ends(&mut self, node: &str, turn: u32) {
        let Some(machine) = self.machines.get_mut(node).filter(|m| m.turn == turn) else {
            return;
        };
        machine.instance.maintenance = None;
        machine.maintenance = None;
        self.note_node(node, NodeChange::MaintenanceEnded);
    }
}
