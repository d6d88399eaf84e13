//! The world behaves as API servers, kubelets, controllers and hosts do.
//! Time is virtual: a test waits for hours in milliseconds.

mod hosts;
mod lanes;
mod nodes;
mod pods;

use std::time::Duration;

use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::ClusterId;
use drainwell_core::observed::PodRef;
use drainwell_core::time::{seconds_between, shift};
use drainwell_sim::World;
use drainwell_sim::journal::{Entry, NodeChange, PodChange, What};
use drainwell_sim::spec::{NodeSpec, Owner, PodSpec};
use drainwell_sim::world::WorldOptions;
use jiff::{SignedDuration, Timestamp};

const NODE: &str = "gpu-1";
const SPARE: &str = "gpu-2";

/// When each world begins.
fn begin() -> Timestamp {
    shift(Timestamp::UNIX_EPOCH, 1_800_000_000)
}

/// Two GPU nodes, in a world whose calls take no time.
fn world() -> World {
    world_of_seed(7)
}

fn world_of_seed(seed: u64) -> World {
    world_of(seed, SignedDuration::ZERO)
}

/// The same with calls that take so many milliseconds.
fn world_with_latency(latency: i64) -> World {
    world_of(7, SignedDuration::from_millis(latency))
}

fn world_of(seed: u64, latency: SignedDuration) -> World {
    let id = ClusterId {
        path: "p/us-central1/c".to_owned(),
        name: "c".to_owned(),
        location: "us-central1".to_owned(),
    };
    let world = World::new(WorldOptions {
        id,
        project: "p".to_owned(),
        clock: Clock::scaled(begin(), 1.0),
        seed,
        latency,
    });
    for (name, id) in [(NODE, 11), (SPARE, 12)] {
        world.add_node(NodeSpec::new(name, "us-central1-a", id).gpus("nvidia-l4", 4));
    }
    world
}

/// A pod that needs one GPU and may run on either node.
fn pod(name: &str, owner: Owner) -> PodSpec {
    PodSpec::new("ml", name, owner).needs(1, &[NODE, SPARE])
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// What has happened to this very pod.
fn course(world: &World, pod: &PodRef) -> Vec<PodChange> {
    let about = |entry: Entry| match entry.what {
        What::Pod { pod: of, change } => (of == *pod).then_some(change),
        What::Node { .. } | What::BudgetFreed { .. } => None,
    };
    world.journal().into_iter().filter_map(about).collect()
}

/// What has happened to a node, with seconds since the world's begin.
fn node_course(world: &World, name: &str) -> Vec<(i64, NodeChange)> {
    let about = |entry: Entry| match entry.what {
        What::Node { node, change } => {
            (node == name).then_some((seconds_between(begin(), entry.at), change))
        }
        What::Pod { .. } | What::BudgetFreed { .. } => None,
    };
    world.journal().into_iter().filter_map(about).collect()
}

/// Where the pods of a controller are now, those that wait last.
fn places(world: &World, beginning: &str) -> Vec<String> {
    let mut all = Vec::new();
    for node in [NODE, SPARE] {
        let pods = world.pods_on(node).into_iter();
        all.extend(
            pods.filter(|p| p.id.name.starts_with(beginning))
                .map(|_| node.to_owned()),
        );
    }
    let waiting = world.pods_waiting().into_iter();
    all.extend(
        waiting
            .filter(|p| p.id.name.starts_with(beginning))
            .map(|_| "none".to_owned()),
    );
    all
}

#[test]
fn the_same_seed_gives_the_same_ids() {
    let uid = |seed| world_of_seed(seed).find_node(NODE).unwrap().uid;
    // The clock of a world needs a runtime only to sleep.
    assert_eq!(uid(1), uid(1));
    assert_ne!(uid(1), uid(2));
}
