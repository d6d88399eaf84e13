//! The scene of a trial: a cluster with GPU, TPU and plain nodes and pods of
//! every sort, different for each seed.

use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::ClusterId;
use drainwell_app::intake::Verify;
use drainwell_core::keys;
use drainwell_core::policy::Policies;
use fastrand::Rng;
use jiff::SignedDuration;

pub(super) use crate::script::stage::{NODES, node};
use crate::spec::{BudgetSpec, NodeSpec, Owner, PodSpec};
use crate::world::{World, WorldOptions};

/// The project of the VMs.
pub(super) const PROJECT: &str = "trial";

/// Nodes of the other cluster.
pub(super) const FAR_NODES: [&str; 2] = ["far-1", "far-2"];
/// Its pods are kept by admission.
const GUARDED: &str = "guarded";
/// Apps that may have a budget, with their namespace.
pub(super) const APPS: [(&str, &str); 3] =
    [("chat", "serving"), ("train", "ml"), ("dns", "kube-system")];

/// Graces that pods ask for.
const GRACES_S: [u32; 9] = [0, 1, 5, 30, 30, 60, 120, 600, 2400];

/// How the service is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setup {
    Usual,
    ForceNever,
    ForceAtDeadline,
    GangsByNode,
}

impl Setup {
    pub(super) fn of(seed: u64) -> Self {
        match seed % 10 {
            0 => Self::ForceNever,
            1 => Self::ForceAtDeadline,
            2 => Self::GangsByNode,
            _ => Self::Usual,
        }
    }

    pub(super) fn policies(self) -> anyhow::Result<Policies> {
        let text = match self {
            Self::Usual => "",
            Self::ForceNever => "force: never\n",
            Self::ForceAtDeadline => "force: deadline\n",
            Self::GangsByNode => "gangs: node\n",
        };
        Ok(Policies::from_yaml(text)?)
    }
}

/// How far the service trusts notices: mostly as little as by default.
pub(super) fn verify(seed: u64) -> Verify {
    match seed % 8 {
        3 => Verify::Prefer,
        5 => Verify::Off,
        _ => Verify::Required,
    }
}

fn cluster(name: &str, clock: Clock, seed: u64) -> World {
    let id = ClusterId {
        path: format!("{PROJECT}/us-central1/{name}"),
        name: name.to_owned(),
        location: "us-central1".to_owned(),
    };
    World::new(WorldOptions {
        id,
        project: PROJECT.to_owned(),
        clock,
        seed,
        latency: SignedDuration::ZERO,
    })
}

/// The world of a seed, before anything runs in it.
pub(super) fn bare(clock: Clock, seed: u64) -> World {
    let world = cluster("c", clock, seed);
    for name in NODES {
        world.add_node(node(name, 0));
    }
    world
}

/// The other cluster: a little work, which may be slow or never answered.
pub(super) fn far(clock: Clock, seed: u64) -> World {
    let world = cluster("far", clock, !seed);
    for (index, name) in FAR_NODES.iter().enumerate() {
        world.add_node(NodeSpec::new(name, "us-central1-b", 90_000 + index as u64));
        for app in ["shop", "mill"] {
            let pod = PodSpec::new("default", &format!("{app}-{name}"), Owner::Nobody);
            world.add_pod(Some(name), pod.stops(20, 5));
        }
    }
    world
}

/// Builds the world of a seed.
pub(super) fn build(clock: Clock, seed: u64) -> World {
    let world = bare(clock, seed);
    let mut rng = Rng::with_seed(seed ^ 0x5ce9e);
    for (index, name) in NODES.iter().enumerate() {
        for template in 0..TEMPLATES {
            let copies = usize::from(rng.u32(0..10) < 6) + usize::from(rng.u32(0..10) < 2);
            for _ in 0..copies {
                world.add_pod(Some(name), pod(name, template, index, &mut rng));
            }
        }
        let proxy = PodSpec::new("kube-system", &format!("kube-proxy-{name}"), Owner::Static);
        world.add_pod(
            Some(name),
            proxy.tolerates("").priority("system-node-critical"),
        );
    }
    for (app, _) in APPS {
        if rng.bool() {
            world.add_budget(budget(app, rng.u32(1..4)));
        }
    }
    world.guard(GUARDED);
    for name in NODES {
        for template in TEMPLATES..MORE_TEMPLATES {
            if rng.u32(0..4) == 0 {
                world.add_pod(Some(name), pod(name, template, 0, &mut rng));
            }
        }
    }
    world
}

/// A budget for the pods of an app.
pub(super) fn budget(app: &str, min: u32) -> BudgetSpec {
    BudgetSpec {
        namespace: namespace(app).to_owned(),
        name: format!("{app}-budget"),
        selector: [("app".to_owned(), app.to_owned())].into(),
        min_available: min,
    }
}

pub(super) fn namespace(app: &str) -> &'static str {
    let found = APPS.iter().find(|(name, _)| *name == app);
    found.map_or("default", |(_, namespace)| namespace)
}

/// How many templates of pods there are.
pub(super) const TEMPLATES: usize = 9;
/// And those that are added to them.
pub(super) const MORE_TEMPLATES: usize = 12;

/// A pod for a node, by template.
pub(super) fn pod(node: &str, template: usize, index: usize, rng: &mut Rng) -> PodSpec {
    let grace_s = *rng.choice(GRACES_S.iter()).unwrap_or(&30);
    let takes_s = rng.u32(0..=grace_s + 20);
    let serial = rng.u32(..);
    let spec = match template {
        0 => PodSpec::new("ml", &format!("train-{node}-{serial:08x}"), Owner::Job)
            .label("app", "train")
            .label("batch.kubernetes.io/job-name", "train")
            .annotation(
                "batch.kubernetes.io/job-completion-index",
                &index.to_string(),
            )
            .needs(0, &NODES),
        1 => PodSpec::new("serving", "chat-6f7d8c9b5", Owner::ReplicaSet)
            .label("app", "chat")
            .needs(0, &NODES),
        2 => PodSpec::new("serving", &format!("db-{serial:08x}"), Owner::StatefulSet)
            .needs(0, &NODES),
        3 => PodSpec::new("ml", &format!("notebook-{serial:08x}"), Owner::Nobody),
        // It tolerates everything, and comes back to the same node.
        4 => PodSpec::new("ml", &format!("stubborn-{node}"), Owner::ReplicaSet)
            .tolerates("")
            .needs(0, &[node]),
        5 => PodSpec::new("logging", "collector", Owner::DaemonSet),
        6 => PodSpec::new("kube-system", "device-plugin", Owner::DaemonSet).tolerates(""),
        7 => PodSpec::new("kube-system", "dns-85b6c7d4f", Owner::ReplicaSet)
            .label("app", "dns")
            .priority("system-cluster-critical")
            .needs(0, &NODES),
        8 => PodSpec::new("ml", &format!("done-{serial:08x}"), Owner::Nobody).finished(),
        9 => PodSpec::new(GUARDED, &format!("sealed-{serial:08x}"), Owner::Nobody),
        10 => PodSpec::new("ml", &format!("tiered-{serial:08x}"), Owner::Nobody).annotation(
            keys::TIER_ANNOTATION,
            ["system", "daemon", "workload", "nonsense"][serial as usize % 4],
        ),
        _ => PodSpec::new("serving", &format!("ring-{serial:08x}"), Owner::StatefulSet)
            .label("app", ["chat", "ring"][serial as usize % 2])
            .annotation(keys::GANG_ANNOTATION, "ring")
            .needs(0, &NODES),
    };
    spec.stops(grace_s, takes_s)
}
