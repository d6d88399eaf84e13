//! One node's part of a pass: look at Compute if that is due, list the pods,
//! plan, and have the plan carried out.

use std::sync::Arc;

use drainwell_core::intent::Intent;
use drainwell_core::notice::{Phase, Vm};
use drainwell_core::observed::{Answer, Node, Observed, Pod};
use drainwell_core::plan::plan;
use drainwell_core::policy::Policy;
use drainwell_core::time::shift;
use drainwell_core::{lifecycle, manual, pod};

use super::apply::{Step, Stepped};
use super::memory::NodeMemory;
use super::pass::{Driver, RETRY_S};
use super::ports::{CallError, Cluster, PodList};
use crate::telemetry::log::{self, Event, Subject};

impl Driver {
    pub(super) async fn node_step(
        &self,
        cluster: &Arc<dyn Cluster>,
        policy: &Policy,
        node: Node,
        intent: Intent,
        mut memory: NodeMemory,
    ) -> (NodeMemory, Stepped) {
        memory.resource_version.clone_from(&node.resource_version);
        memory.intent = Some(intent.clone());
        self.look(&node, &intent, &mut memory).await;
        let mut list = PodList::default();
        memory.version = None;
        if intent.phase == Phase::Ongoing {
            match cluster.pods(&node.name).await {
                Ok(listed) => list = listed,
                Err(error) => {
                    let stepped = self.node_failed(cluster, &node, &intent, &error, &mut memory);
                    return (memory, stepped);
                }
            }
            memory.mentioned.remove("pods");
            memory.version = Some(list.version);
            note_gangs(&list.pods, &mut memory);
        }
        let now = self.clock().now();
        let freed_at = memory.try_freed(now);
        let seen = Observed {
            node,
            pods: list.pods,
            look: memory.look.clone(),
            attempts: memory.attempts.clone(),
            slice: memory.slice.clone(),
            broken_gangs: memory
                .broken_elsewhere
                .union(&memory.broken_gangs)
                .cloned()
                .collect(),
        };
        let mut plan = if self.is_by_hand() {
            manual::plan(&seen, &intent, policy, now)
        } else {
            plan(&seen, &intent, policy, now)
        };
        plan.wake_at = freed_at.map_or(plan.wake_at, |at| at.min(plan.wake_at));
        let step = Step {
            driver: self,
            cluster,
            intent: &intent,
            seen: &seen,
            now,
        };
        let stepped = step.take(plan, &mut memory).await;
        (memory, stepped)
    }

    /// Asks Compute about the node's VM, if that is due.
    async fn look(&self, node: &Node, intent: &Intent, memory: &mut NodeMemory) {
        let Some(cloud) = self.cloud() else {
            memory.look.off = true;
            return;
        };
        let now = self.clock().now();
        let due = lifecycle::look_due(intent, node, &memory.look, now);
        if due.is_none_or(|at| at > now) {
            return;
        }
        memory.look.tried_at = Some(now);
        let Some(vm) = vm_of(node) else {
            if memory.first_mention("compute".to_owned()) {
                tracing::warn!("{} has no providerID of Compute Engine", node.name);
            }
            return;
        };
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
        memory: &mut NodeMemory,
    ) -> Stepped {
        let now = self.clock().now();
        let subject = Subject {
            cluster: Some(cluster.id()),
            node: &node.name,
            key: &intent.key,
        };
        if memory.first_mention("pods".to_owned()) {
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
        }
        memory.trouble = Some(error.to_string());
        Stepped {
            calls: vec![],
            actions: 0,
            wake_at: shift(now, RETRY_S),
            unmarked: false,
        }
    }
}

/// Remembers who belongs to which gang, and which gang has a member that stops.
fn note_gangs(pods: &[Pod], memory: &mut NodeMemory) {
    for pod in pods {
        let Some(gang) = pod::gang(pod) else { continue };
        if pod.deletion_at.is_some() && !pod::gone(pod) {
            memory.broken_gangs.insert(gang.clone());
        }
        memory.gangs.insert(pod.id.uid.clone(), gang);
    }
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
