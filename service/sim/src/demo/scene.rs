//! The scene: a cluster with a GPU node, a spare one, a node of ordinary
//! machines, and a TPU slice of two hosts.
//!
//! The numbers leave room: between what a pod asks for and its deadline lie
//! three simulated minutes at the least, so that a slow machine plays the same
//! story.

use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::ClusterId;

use crate::spec::{BudgetSpec, MaintenanceSpec, NodeSpec, Owner, PodSpec};
use crate::world::{USUAL_LATENCY, World, WorldOptions};

/// The project of the cluster and its VMs.
pub(super) const PROJECT: &str = "drainwell-demo";
/// The GPU node whose host is maintained.
pub(super) const GPU_NODE: &str = "gke-train-a3-2f9c61d8-7k2m";
/// Another one, which stays.
const SPARE_NODE: &str = "gke-train-a3-2f9c61d8-q9rt";
/// A node without accelerators, which stays.
const PLAIN_NODE: &str = "gke-train-default-b04e77a1-x3wd";
/// The two hosts of a TPU slice.
pub(super) const TPU_NODES: [&str; 2] = ["gke-tpu-5ab0c9e3-h1fz", "gke-tpu-5ab0c9e3-m8tv"];
/// Nodes that no maintenance concerns.
pub(super) const OTHER_NODES: [&str; 2] = [SPARE_NODE, PLAIN_NODE];

const ZONE: &str = "us-central1-a";
/// Somebody keeps new pods off the GPU node, for a reason of their own.
const CORDON: &str = "example.com/cordoned";
const GPU_TAINT: &str = "nvidia.com/gpu";
const TPU_TAINT: &str = "google.com/tpu";

/// The maintenance of the GPU node's host.
pub(super) fn gpu_maintenance() -> MaintenanceSpec {
    MaintenanceSpec {
        notice_s: 3600,
        repair_s: 600,
        cleared_s: 90,
        reasons: vec!["PLANNED_UPDATE".to_owned()],
    }
}

/// The maintenance of both hosts of the TPU slice.
pub(super) fn tpu_maintenance() -> MaintenanceSpec {
    MaintenanceSpec {
        notice_s: 300,
        repair_s: 360,
        ..gpu_maintenance()
    }
}

/// Builds it.
pub(super) fn build(clock: Clock, seed: u64) -> World {
    let id = ClusterId {
        path: format!("{PROJECT}/us-central1/train"),
        name: "train".to_owned(),
        location: "us-central1".to_owned(),
    };
    let latency = USUAL_LATENCY;
    let project = PROJECT.to_owned();
    let world = World::new(WorldOptions {
        id,
        project,
        clock,
        seed,
        latency,
    });
    add_nodes(&world);
    add_gpu_workload(&world);
    add_gpu_system(&world);
    add_bystanders(&world);
    for (index, node) in TPU_NODES.iter().enumerate() {
        add_tpu_pods(&world, node, index);
    }
    world
}

fn add_nodes(world: &World) {
    let gpu = |name: &str, id: u64| {
        NodeSpec::new(name, ZONE, id)
            .gpus("nvidia-h100-80gb", 8)
            .label("cloud.google.com/gke-nodepool", "a3")
            .label("node.kubernetes.io/instance-type", "a3-highgpu-8g")
            .taint(GPU_TAINT, "present", "NoSchedule")
    };
    let cordoned = gpu(GPU_NODE, 4_629_817_350_276_448_190);
    world.add_node(cordoned.taint(CORDON, "disk-check", "NoSchedule"));
    world.add_node(gpu(SPARE_NODE, 4_629_817_350_276_448_191));
    world.add_node(
        NodeSpec::new(PLAIN_NODE, ZONE, 7_310_045_889_126_630_522)
            .label("cloud.google.com/gke-nodepool", "default")
            .label("node.kubernetes.io/instance-type", "e2-standard-4"),
    );
    for (name, id) in TPU_NODES.iter().zip(2_884_190_467_715_530_016_u64..) {
        world.add_node(
            NodeSpec::new(name, ZONE, id)
                .tpus("tpu-v5-lite-podslice", "2x4", 4)
                .label("cloud.google.com/gke-nodepool", "tpu")
                .label("node.kubernetes.io/instance-type", "ct5lp-hightpu-4t")
                .taint(TPU_TAINT, "present", "NoSchedule"),
        );
    }
}

fn add_gpu_workload(world: &World) {
    for index in 0..3 {
        let name = format!("llama-pretrain-{index}");
        world.add_pod(
            Some(GPU_NODE),
            PodSpec::new("research", &name, Owner::Job)
                .stops(600, 240)
                .label("batch.kubernetes.io/job-name", "llama-pretrain")
                .annotation(
                    "batch.kubernetes.io/job-completion-index",
                    &index.to_string(),
                )
                .tolerates(GPU_TAINT)
                .needs(2, &[SPARE_NODE]),
        );
    }
    world.add_pod(
        Some(GPU_NODE),
        PodSpec::new("research", "protein-fold", Owner::Job)
            .stops(2400, 1770)
            .label("batch.kubernetes.io/job-name", "protein-fold")
            .tolerates(GPU_TAINT)
            .needs(1, &[SPARE_NODE]),
    );
    let chat = PodSpec::new("serving", "chat-6f7d8c9b5", Owner::ReplicaSet)
        .stops(120, 40)
        .label("app", "chat")
        .tolerates(GPU_TAINT)
        .needs(1, &[GPU_NODE]);
    world.add_pod(Some(GPU_NODE), chat.clone());
    // The second replica waits for a GPU that isn't there: the budget has
    // nothing to give.
    world.add_pod(None, chat);
    world.add_budget(BudgetSpec {
        namespace: "serving".to_owned(),
        name: "chat".to_owned(),
        selector: [("app".to_owned(), "chat".to_owned())].into(),
        min_available: 1,
    });
    world.add_pod(
        Some(GPU_NODE),
        PodSpec::new("research", "tokenize-corpus", Owner::Job)
            .label("batch.kubernetes.io/job-name", "tokenize-corpus")
            .finished(),
    );
}

fn add_gpu_system(world: &World) {
    world.add_pod(
        Some(GPU_NODE),
        PodSpec::new("logging", "log-collector", Owner::DaemonSet)
            .stops(60, 15)
            .tolerates(GPU_TAINT)
            .tolerates(CORDON),
    );
    world.add_pod(
        Some(GPU_NODE),
        PodSpec::new("kube-system", "nvidia-gpu-device-plugin", Owner::DaemonSet)
            .priority("system-node-critical")
            .tolerates(""),
    );
    add_kube_proxy(world, GPU_NODE);
    world.add_pod(
        Some(GPU_NODE),
        PodSpec::new(
            "kube-system",
            "konnectivity-agent-85b6c7d4f",
            Owner::ReplicaSet,
        )
        .priority("system-cluster-critical")
        .stops(30, 5)
        .tolerates(GPU_TAINT)
        .needs(0, &[PLAIN_NODE]),
    );
    world.add_pod(
        Some(GPU_NODE),
        PodSpec::new("gmp-system", "rule-evaluator-5d9f8b7c6", Owner::ReplicaSet)
            .stops(60, 10)
            .tolerates(GPU_TAINT)
            .needs(0, &[PLAIN_NODE]),
    );
}

fn add_kube_proxy(world: &World, node: &str) {
    world.add_pod(
        Some(node),
        PodSpec::new("kube-system", &format!("kube-proxy-{node}"), Owner::Static)
            .priority("system-node-critical")
            .tolerates(""),
    );
}

fn add_bystanders(world: &World) {
    let frontend = PodSpec::new("shop", "frontend-7c5d6f8b9", Owner::ReplicaSet);
    world.add_pod(Some(PLAIN_NODE), frontend.needs(0, &[PLAIN_NODE]));
}

fn add_tpu_pods(world: &World, node: &str, index: usize) {
    let name = format!("gemma-tune-worker-0-{index}");
    world.add_pod(
        Some(node),
        PodSpec::new("research", &name, Owner::Job)
            .stops(120, 90)
            .label("jobset.sigs.k8s.io/jobset-name", "gemma-tune")
            .label("batch.kubernetes.io/job-name", "gemma-tune-worker-0")
            .annotation(
                "batch.kubernetes.io/job-completion-index",
                &index.to_string(),
            )
            .tolerates(TPU_TAINT)
            .needs(4, &TPU_NODES),
    );
    world.add_pod(
        Some(node),
        PodSpec::new("kube-system", "tpu-device-plugin", Owner::DaemonSet)
            .priority("system-node-critical")
            .tolerates(""),
    );
    add_kube_proxy(world, node);
}
