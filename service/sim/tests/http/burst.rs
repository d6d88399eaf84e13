//! Ten thousand requests, good, bad and foreign, while a drain runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use drainwell_app::ingress::Limits;
use drainwell_core::keys;
use drainwell_core::time::shift;
use drainwell_sim::journal::{PodChange, What};
use drainwell_sim::spec::{Owner, PodSpec};
use tokio::task::JoinSet;

use super::scene::{Scene, Setup, entry, node};

const REQUESTS: usize = 10_000;
const CONNECTIONS: usize = 64;
const NODES: usize = 40;
/// The first of the nodes are those that Compute shows a maintenance of.
const MAINTAINED: usize = 12;
/// What one process may grow by meanwhile: far more than the requests at 64
/// connections need, far less than ten thousand that are kept.
const GROWTH_MAX_KB: u64 = 64 << 10;

/// What is sent: a body, and the answers that it may get.
struct Sent {
    body: String,
    allowed: &'static [&'static str],
}

fn requests(scene: &Scene) -> Vec<Sent> {
    let now = scene.world.clock().now();
    let good = ["marked", "unchanged", "updated"].as_slice();
    let mut kinds = Vec::new();
    let mut add = |body: String, allowed| kinds.push(Sent { body, allowed });
    for id in 0..NODES {
        if id < MAINTAINED {
            add(scene.ongoing(id).to_string(), good);
        } else {
            // Compute shows none, and the entry is too old for it to lag.
            let old = entry(&node(id), 1000 + id as u64, shift(now, -300));
            add(old.to_string(), &["ignored"]);
        }
        let foreign = entry(&format!("foreign-{id}"), 77, now);
        add(foreign.to_string(), &["ignored"]);
        let replaced = entry(&node(id), 5, now);
        add(replaced.to_string(), &["ignored"]);
        add(format!("{{\"message\": {id}}}"), &["400"]);
        add("[".repeat(4000), &["400"]);
        let elsewhere = foreign.to_string().replace("projects/p/", "projects/q/");
        add(elsewhere, &["ignored"]);
    }
    kinds
}

/// Resident memory of this process.
fn memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends every `CONNECTIONS`th request, from this one on. Gives the answers that
/// it must not have got.
async fn send(scene: Arc<Scene>, kinds: Arc<Vec<Sent>>, first: usize) -> Vec<String> {
    let mut client = scene.client().await;
    let mut wrong = Vec::new();
    for number in (first..REQUESTS).step_by(CONNECTIONS) {
        // A step that has no divisor in common with the number of kinds.
        let sent = &kinds[number * 7 % kinds.len()];
        let answer = client.post("/", &sent.body).await;
        let outcome = match answer.status {
            200 => answer.json()["outcome"].as_str().unwrap().to_owned(),
            status => status.to_string(),
        };
        if !sent.allowed.contains(&outcome.as_str()) {
            wrong.push(format!("{}: {answer:?}", sent.body));
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_burst_every_good_notice_takes_effect_and_no_other() {
    let mut setup = Setup::new(Limits::default());
    (setup.nodes, setup.speed) = (NODES, 20.0);
    let scene = Arc::new(setup.start().await);
    for id in 0..NODES {
        let pod = |name: &str| PodSpec::new("ml", name, Owner::Nobody);
        let on = node(id);
        let long = pod(&format!("long-{id}")).stops(600, 60);
        scene.world.add_pod(Some(&on), long);
        scene.world.add_pod(Some(&on), pod(&format!("short-{id}")));
    }
    (0..MAINTAINED).for_each(|id| scene.announce(id));
    let kinds = Arc::new(requests(&scene));
    let before = memory_kb();
    let mut senders = JoinSet::new();
    for first in 0..CONNECTIONS {
        senders.spawn(send(Arc::clone(&scene), Arc::clone(&kinds), first));
    }
    let wrong = senders.join_all().await.concat();
    assert!(
        wrong.is_empty(),
        "{} wrong, first {:?}",
        wrong.len(),
        wrong[0]
    );
    let grown = memory_kb().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KB, "{grown} kB more");
    let marked = |id: &usize| {
        let found = scene.world.find_node(&node(*id)).unwrap();
        found.annotations.contains_key(keys::INTENT_ANNOTATION)
    };
    let all: Vec<_> = (0..NODES).filter(marked).collect();
    assert_eq!(all, (0..MAINTAINED).collect::<Vec<_>>());
    left_in_time(&scene).await;
}

/// The pods of the nodes under maintenance leave, and nobody else's.
async fn left_in_time(scene: &Scene) {
    let mut left = BTreeSet::new();
    let mut seen = 0;
    let all = tokio::time::timeout(super::SOON, async {
        while left.len() < 2 * MAINTAINED {
            let entries = scene.world.journal_after(seen).await;
            seen += entries.len();
            for entry in entries {
                if let What::Pod { pod, change } = entry.what {
                    assert!(is_maintained(&pod.name), "{pod:?} {change:?}");
                    if matches!(change, PodChange::Stopped { .. }) {
                        left.insert(pod.name);
                    }
                }
            }
        }
    });
    all.await.unwrap();
}

fn is_maintained(pod: &str) -> bool {
    let id: usize = pod.rsplit('-').next().unwrap().parse().unwrap();
    id < MAINTAINED
}
