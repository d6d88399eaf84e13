//! What the script's hosts and nodes do, carried out on the real API server and
//! the stand-in for Compute. How a maintenance goes is the simulated world's to
//! say; it has no pods here.

use anyhow::Context as _;
use drainwell_core::keys;
use drainwell_core::observed;
use drainwell_sim::World;
use drainwell_sim::journal::{NodeChange, What};
use drainwell_sim::script::CORDON;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::Lease;
use crate::compute::{Maintenance, Vm};
use crate::fixture::NodeSpec;
use crate::journal::finished;

/// The taint of a node whose kubelet is silent; nobody else puts it there,
/// since the harness runs no node lifecycle controller.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A node's VM as Compute shows it now.
pub(super) fn vm(world: &World, node: &str) -> Option<Vm> {
    let (identity, instance) = world.find_vm(node)?;
    let mut vm = Vm::new(node, &identity.zone, instance.id);
    let status = if instance.running {
        "RUNNING"
    } else {
        "REPAIRING"
    };
    status.clone_into(&mut vm.status);
    vm.created = instance.created.unwrap_or(vm.created);
    vm.last_start = instance.last_start.unwrap_or(vm.last_start);
    vm.maintenance = match instance.maintenance {
        None => Maintenance::None,
        Some(shown) => {
            let start = shown.start.unwrap_or(vm.created);
            if shown.ongoing {
                Maintenance::ongoing(start)
            } else {
                Maintenance::pending(start)
            }
        }
    };
    Some(vm)
}

/// Creates the node that the world has under this name, and its VM.
pub(super) async fn add_node(cluster: &Lease, world: &World, name: &str) -> anyhow::Result<()> {
    let node = world.find_node(name).context("no such node")?;
    let vm = vm(world, name).context("no such VM")?;
    let mut spec = NodeSpec::plain(name);
    spec.zone.clone_from(&vm.zone);
    spec.provider_id = Some(format!("gce://{}/{}/{name}", vm.project, vm.zone));
    spec.instance_id = vm.id;
    spec.pool = node.labels[keys::POOL_LABEL].clone();
    spec.labels = node.labels;
    spec.ready_since = node.ready_since.unwrap_or(spec.ready_since);
    spec.boot_id = node.boot_id.unwrap_or(spec.boot_id);
    for (resource, amount) in node.capacity {
        spec.devices.insert(resource, amount.to_string());
    }
    cluster.add_node(&spec).await?;
    cluster.compute.put(vm);
    Ok(())
}

/// Deletes the node with its VM and its pods, of which the pod garbage
/// collector would take care after a minute.
pub(super) async fn remove_node(cluster: &Lease, name: &str) -> anyhow::Result<()> {
    cluster.compute.remove(name);
    cluster
        .nodes()
        .delete(name, &DeleteParams::default())
        .await?;
    for pod in pods_on(cluster, name).await? {
        delete_now(cluster, &pod).await?;
    }
    Ok(())
}

/// Lets the cluster follow what has happened to a host or its VM.
pub(super) async fn follow(cluster: &Lease, world: &World, what: &What) -> anyhow::Result<()> {
    let What::Node { node, change } = what else {
        return Ok(());
    };
    let (Some(vm), Some(now)) = (vm(world, node), world.find_node(node)) else {
        return Ok(());
    };
    cluster.compute.put(vm);
    match change {
        NodeChange::HostStopped => cluster.kubelet.halt(node),
        NodeChange::NotReady => {
            cluster.kubelet.set_node_ready(node, false).await?;
            rewrite(cluster, node, |node| {
                node.taints.push(observed::Taint {
                    key: UNREACHABLE.to_owned(),
                    value: String::new(),
                    effect: keys::NO_SCHEDULE.to_owned(),
                });
            })
            .await?;
        }
        NodeChange::Ready => {
            let boot_id = now.boot_id.unwrap_or_default();
            cluster.kubelet.set_boot_id(node, &boot_id).await?;
            cluster.kubelet.set_node_ready(node, true).await?;
            after_boot(cluster, node).await?;
            cluster.kubelet.resume(node);
            rewrite(cluster, node, |node| {
                node.taints.retain(|taint| taint.key != UNREACHABLE);
            })
            .await?;
        }
        NodeChange::MaintenanceAnnounced { .. }
        | NodeChange::MaintenanceBegan { .. }
        | NodeChange::MaintenanceCancelled
        | NodeChange::MaintenanceEnded
        | NodeChange::HostStarted
        | NodeChange::Marked { .. }
        | NodeChange::Unmarked => {}
    }
    Ok(())
}

/// What a kubelet finds after a boot: pods that were told to stop have, and
/// those of a Job have failed.
async fn after_boot(cluster: &Lease, node: &str) -> anyhow::Result<()> {
    for pod in pods_on(cluster, node).await? {
        let owners = pod.owner_references();
        if pod.metadata.deletion_timestamp.is_some() {
            delete_now(cluster, &pod).await?;
        } else if owners.iter().any(|owner| owner.kind == "Job") && !finished(&pod) {
            cluster.kubelet.finish(&pod, false).await?;
        }
    }
    Ok(())
}

/// Somebody rewrites labels, annotations and taints of a Node.
pub(super) async fn rewrite(
    cluster: &Lease,
    name: &str,
    change: impl FnOnce(&mut observed::Node),
) -> anyhow::Result<()> {
    let there = cluster.nodes().get(name).await?;
    let mut node = read(&there);
    change(&mut node);
    let cordoned = node.taints.iter().any(|taint| taint.key == CORDON);
    let taints = node
        .taints
        .iter()
        .map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect }));
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": there.resource_version() },
        { "op": "add", "path": "/metadata/labels", "value": node.labels },
        { "op": "add", "path": "/metadata/annotations", "value": node.annotations },
        { "op": "add", "path": "/spec/taints", "value": taints.collect::<Value>() },
        { "op": "add", "path": "/spec/unschedulable", "value": cordoned },
    ]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    let params = PatchParams::default();
    cluster.nodes().patch(name, &params, &patch).await?;
    Ok(())
}

/// The parts of a Node that are rewritten.
fn read(node: &Node) -> observed::Node {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let taints = taints.map(|taint| observed::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    });
    observed::Node {
        name: node.name_any(),
        labels: node.labels().clone(),
        annotations: node.annotations().clone(),
        taints: taints.collect(),
        ..observed::Node::default()
    }
}

async fn pods_on(cluster: &Lease, node: &str) -> anyhow::Result<Vec<Pod>> {
    let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = kube::Api::<Pod>::all(cluster.admin.clone());
    Ok(pods.list(&bound).await?.items)
}

async fn delete_now(cluster: &Lease, pod: &Pod) -> anyhow::Result<()> {
    let pods = cluster.pods(&pod.namespace().unwrap_or_default());
    let at_once = DeleteParams::default().grace_period(0);
    // Its kubelet may have been faster.
    drop(pods.delete(&pod.name_any(), &at_once).await);
    Ok(())
}

/// Rewrites the times of a pod, which are the API server's, to the script's:
/// to when the journal heard of them.
pub(super) fn translate(pod: &mut Value, versions: &[(Timestamp, Pod)], now: Timestamp) {
    let whole = |at: Timestamp| {
        Timestamp::from_second(at.as_second())
            .unwrap_or(at)
            .to_string()
    };
    let meta = &mut pod["metadata"];
    let created = versions.first().map_or(now, |(at, _)| *at);
    meta["creationTimestamp"] = json!(whole(created));
    let Some(deletion) = meta["deletionTimestamp"].as_str() else {
        return;
    };
    let theirs = |pod: &Pod| {
        let at = pod.metadata.deletion_timestamp.as_ref();
        at.is_some_and(|at| deletion.parse().is_ok_and(|time: Timestamp| time == at.0))
    };
    let told = versions.iter().find(|(_, pod)| theirs(pod));
    let told = told.map_or(now, |(at, _)| *at);
    let grace_s = meta["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or_default();
    meta["deletionTimestamp"] = json!(whole(drainwell_core::time::shift(told, grace_s)));
}
