//! The stage of a script: six nodes on which nothing runs yet.

use drainwell_core::keys;
use drainwell_core::observed::Instance;
use jiff::Timestamp;

use crate::spec::{MaintenanceSpec, NodeSpec};
use crate::world::{World, WorldOptions};

const ZONE: &str = "us-central1-a";

/// All nodes. The two TPU nodes are one slice.
pub const NODES: [&str; 6] = ["gpu-1", "gpu-2", "tpu-1", "tpu-2", "plain-1", "plain-2"];
const SLICE: [&str; 2] = ["tpu-1", "tpu-2"];

/// A world with these nodes.
#[must_use]
pub fn bare(options: WorldOptions) -> World {
    let world = World::new(options);
    for name in NODES {
        world.add_node(node(name, 0));
    }
    world
}

/// A node of the stage; `build` counts how often it was built anew.
#[must_use]
pub fn node(name: &str, build: u64) -> NodeSpec {
    let index = NODES.iter().position(|n| *n == name).unwrap_or_default();
    let id = 1000 * (1 + u64::try_from(index).unwrap_or_default()) + build;
    let spec = NodeSpec::new(name, ZONE, id);
    match &name[..3] {
        "gpu" => spec
            .gpus("nvidia-h100-80gb", 64)
            .label(keys::POOL_LABEL, "gpu"),
        "tpu" => spec
            .tpus("tpu-v5-lite-podslice", "2x4", 4)
            .label(keys::POOL_LABEL, "tpu"),
        _ => spec.label(keys::POOL_LABEL, "plain"),
    }
}

/// Compute shows a maintenance of a node's host. A host under maintenance gets
/// no second one; both hosts of the slice are maintained together.
pub fn announce(world: &World, node: &str, starts_at: Timestamp, how: &MaintenanceSpec) {
    let alone = [node];
    let hosts = if SLICE.contains(&node) {
        &SLICE[..]
    } else {
        &alone[..]
    };
    let free = |vm: &Instance| vm.running && vm.maintenance.as_ref().is_none_or(|m| !m.ongoing);
    for host in hosts {
        if world.find_vm(host).is_some_and(|(_, vm)| free(&vm)) {
            world.announce(host, starts_at, how.clone());
        }
    }
}
