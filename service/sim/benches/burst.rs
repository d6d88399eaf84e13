//! A burst of notices: 500 nodes whose maintenance begins at once, twenty
//! copies of each notice, all of them at one instance of the service, which is
//! a process of its own. Prints how fast they are taken, and what it costs in
//! memory: `cargo bench -p drainwell-sim --bench burst`.
//!
//! `BURST_CONNECTIONS` says how many are sent at once (default 64; a service
//! that is full puts them off, and they come again).

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
use std::time::{Duration, Instant};

use drainwell_app::ingress::Limits;
use drainwell_sim::spec::{Owner, PodSpec};
use jiff::Timestamp;
use tokio::task::JoinSet;

use client::Client;
use scene::{Setup, entry, node};

const SOON: Duration = Duration::from_secs(120);
const NODES: usize = 500;
const COPIES: usize = 20;
/// Of each call to the cluster or to Compute.
const LATENCY_MS: i64 = 20;
/// Pub/Sub's backoff begins with ten seconds; that would measure the backoff.
const BACKOFF: Duration = Duration::from_millis(100);

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if std::env::args().nth(1).as_deref() == Some("serve") {
        runtime.block_on(serve());
    } else {
        runtime.block_on(measure());
    }
}

/// The service, until its stdin ends.
async fn serve() {
    let mut setup = Setup::new(Limits::default()).latency_ms(LATENCY_MS);
    setup.nodes = NODES;
    let scene = setup.start().await;
    for id in 0..NODES {
        for pod in 0..8 {
            let pod = PodSpec::new("ml", &format!("job-{id}-{pod}"), Owner::Nobody);
            scene.world.add_pod(Some(&node(id)), pod.stops(600, 120));
        }
        scene.announce(id);
    }
    println!("{} {}", scene.address, scene.world.clock().now());
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
        .await
        .unwrap()
        .unwrap();
}

/// What `/proc` says of a process, in MiB: resident now, and at its peak.
fn memory(id: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kb >> 10
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// The processor time that it has used, in seconds; the kernel counts it in
/// hundredths.
fn processor(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let ticks: u32 = fields
        .skip(11)
        .take(2)
        .map(|f| f.parse::<u32>().unwrap())
        .sum();
    f64::from(ticks) / 100.0
}

/// How long each took, without the times it was put off; and how often it was.
async fn send(address: SocketAddr, bodies: Arc<Vec<String>>, from: usize, step: usize) -> Sent {
    let mut client = Client::connect(address).await;
    let mut sent = Sent::default();
    for number in (from..NODES * COPIES).step_by(step) {
        loop {
            let began = Instant::now();
            let answer = client.post("/", &bodies[number % NODES]).await;
            if answer.status == 200 {
                sent.times.push(began.elapsed());
                break;
            }
            assert_eq!(answer.status, 503, "{answer:?}");
            sent.put_off += 1;
            tokio::time::sleep(BACKOFF).await;
        }
    }
    sent
}

#[derive(Default)]
struct Sent {
    times: Vec<Duration>,
    put_off: usize,
}

async fn measure() {
    let connections = std::env::var("BURST_CONNECTIONS").ok();
    let connections = connections.map_or(64, |number| number.parse().unwrap());
    let mut service = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(service.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let (address, now) = line.trim().split_once(' ').unwrap();
    let (address, now): (_, Timestamp) = (address.parse().unwrap(), now.parse().unwrap());
    let bodies = (0..NODES).map(|id| entry(&node(id), 1000 + id as u64, now).to_string());
    let bodies: Arc<Vec<_>> = Arc::new(bodies.collect());

    let (before, _) = memory(service.id());
    let worked_before = processor(service.id());
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for from in 0..connections {
        senders.spawn(send(address, Arc::clone(&bodies), from, connections));
    }
    let sent = senders.join_all().await;
    let took = began.elapsed();
    let (after, peak) = memory(service.id());
    let processor = processor(service.id()) - worked_before;

    let mut times: Vec<_> = sent.iter().flat_map(|s| s.times.iter().copied()).collect();
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_millis();
    let put_off: usize = sent.iter().map(|s| s.put_off).sum();
    let rate = times.len() as f64 / took.as_secs_f64();
    println!(
        "{} notices at {connections} connections in {:.1} s: {rate:.0}/s, p50 {} ms, p99 {} ms, \
         longest {} ms; put off {put_off} times",
        times.len(),
        took.as_secs_f64(),
        at(50),
        at(99),
        at(100),
    );
    println!(
        "resident: {before} MiB before, {peak} at the peak, {after} after; {processor:.1} s of \
         processor time"
    );
    drop(service.stdin.take());
    service.wait().unwrap();
}
