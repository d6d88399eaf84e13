//! A drain with and without a flood of requests beside it, in turns: twelve nodes
//! of eight pods in three tiers, and 64 connections on which good, bad and foreign
//! requests come without a pause. The service is a process of its own. Prints how
//! long each drain took: `cargo bench -p drainwell-sim --bench drain`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that measures ends where it can't, and prints what it finds"
)]

#[path = "../tests/http/client.rs"]
#[expect(dead_code, reason = "made for tests of more than this")]
mod client;
#[path = "../tests/http/scene.rs"]
#[expect(dead_code, reason = "made for tests of more than this")]
mod scene;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use drainwell_app::ingress::Limits;
use drainwell_sim::journal::{PodChange, What};
use drainwell_sim::spec::{Owner, PodSpec};
use jiff::Timestamp;
use tokio::task::JoinSet;

use client::Client;
use scene::{Scene, Setup, entry, node};

const SOON: Duration = Duration::from_secs(120);
const NODES: usize = 12;
const WORKERS: usize = 6;
/// Of each call to the cluster or to Compute.
const LATENCY_MS: i64 = 20;
const CONNECTIONS: usize = 64;
const ROUNDS: usize = 4;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return runtime.block_on(serve());
    }
    for round in 1..=ROUNDS {
        let (alone, _) = runtime.block_on(measure(0));
        let (flooded, answered) = runtime.block_on(measure(CONNECTIONS));
        println!(
            "round {round}: {:.2} s alone, {:.2} s beside {answered} requests ({:.0}/s)",
            alone.as_secs_f64(),
            flooded.as_secs_f64(),
            answered as f64 / flooded.as_secs_f64(),
        );
    }
}

/// The service, until all pods have stopped and its stdin ends.
async fn serve() {
    let mut setup = Setup::new(Limits::default()).latency_ms(LATENCY_MS);
    setup.nodes = NODES;
    let scene = setup.start().await;
    for id in 0..NODES {
        let pod = |namespace: &str, name: &str, owner| {
            let pod = PodSpec::new(namespace, &format!("{name}-{id}"), owner);
            scene.world.add_pod(Some(&node(id)), pod.stops(60, 2));
        };
        (0..WORKERS).for_each(|n| pod("ml", &format!("worker-{n}"), Owner::Nobody));
        pod("ml", "logs", Owner::DaemonSet);
        pod("kube-system", "metrics", Owner::Nobody);
        scene.announce(id);
    }
    println!("{} {}", scene.address, scene.world.clock().now());
    all_stopped(&scene).await;
    println!("drained");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
        .await
        .unwrap()
        .unwrap();
}

async fn all_stopped(scene: &Scene) {
    let (mut seen, mut stopped) = (0, 0);
    while stopped < NODES * (WORKERS + 2) {
        let entries = scene.world.journal_after(seen).await;
        seen += entries.len();
        let one = |what: &What| match what {
            What::Pod { change, .. } => matches!(change, PodChange::Stopped { .. }),
            What::Node { .. } | What::BudgetFreed { .. } => false,
        };
        stopped += entries.iter().filter(|entry| one(&entry.what)).count();
    }
}

/// How long a drain took, beside requests on so many connections; and how many
/// of these were answered.
async fn measure(connections: usize) -> (Duration, usize) {
    let mut service = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(service.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let (address, now) = line.trim().split_once(' ').unwrap();
    let (address, now): (SocketAddr, Timestamp) = (address.parse().unwrap(), now.parse().unwrap());
    let notice = |id| entry(&node(id), 1000 + id as u64, now).to_string();
    let drained = tokio::task::spawn_blocking(move || lines.next().unwrap().unwrap());

    let bodies = Arc::new(flood(now, (0..NODES).map(notice).collect()));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut senders = JoinSet::new();
    for from in 0..connections {
        let (bodies, answered) = (Arc::clone(&bodies), Arc::clone(&answered));
        senders.spawn(send(address, bodies, from, answered));
    }
    let began = Instant::now();
    let mut client = Client::connect(address).await;
    for id in 0..NODES {
        while client.post("/", &notice(id)).await.status != 200 {}
    }
    assert_eq!(drained.await.unwrap(), "drained");
    let took = began.elapsed();
    senders.shutdown().await;
    drop(service.stdin.take());
    service.wait().unwrap();
    (took, answered.load(Ordering::Relaxed))
}

/// Good requests, for nodes under maintenance; bad ones; and those for VMs that
/// aren't there.
fn flood(now: Timestamp, mut bodies: Vec<String>) -> Vec<String> {
    for id in 0..NODES as u64 {
        bodies.push(format!("{{\"message\": {id}}}"));
        bodies.push(entry(&format!("foreign-{id}"), 7 + id, now).to_string());
    }
    bodies
}

async fn send(address: SocketAddr, bodies: Arc<Vec<String>>, from: usize, sum: Arc<AtomicUsize>) {
    let mut client = Client::connect(address).await;
    for number in from.. {
        client.post("/", &bodies[number * 7 % bodies.len()]).await;
        sum.fetch_add(1, Ordering::Relaxed);
    }
}
