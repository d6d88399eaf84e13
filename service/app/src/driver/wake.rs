//! The wake loops, one a cluster, so that a slow or dead cluster takes nothing
//! from the others. Each runs one pass at a time, when a notice, a tick, a
//! watch or the clock asks for one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use drainwell_core::notice::Phase;
use drainwell_core::time::shift;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::Instant;

use super::calls::{Call, Called};
use super::events::{self, Outbox};
use super::memory::ClusterMemory;
use super::pass::Driver;
use super::ports::{Changed, Cluster, ClusterId};
use super::report::PassReport;
use crate::telemetry::metrics::Metrics;

/// With nothing to do, clusters are still looked at once a minute: an intent
/// may have been written by another instance.
const IDLE_S: i64 = 60;
/// How long a pass waits for the answers to its calls. Within the two seconds
/// that a notice's own first step may take.
const SETTLE: Duration = Duration::from_millis(1200);

/// The newest report of each cluster, by path. A cluster that no pass has
/// worked on yet isn't in it.
pub type Reports = BTreeMap<String, Arc<PassReport>>;

/// Requests for a pass, counted.
#[derive(Debug, Clone)]
struct Requests {
    /// The number of the last one.
    serial: u64,
    /// Nodes whose VM is to be looked at, by the request that wants it.
    looks: VecDeque<(u64, String)>,
}

/// Looks that are remembered for loops in the middle of a pass. One that is
/// forgotten is made within a minute all the same.
const LOOKS_MAX: usize = 256;

/// The handle by which everyone else asks for passes and reads the reports.
#[derive(Debug, Clone)]
pub struct Wake {
    requests: Arc<watch::Sender<Requests>>,
    reports: watch::Receiver<Reports>,
    clusters: usize,
}

/// The loops' own end of the handle.
#[derive(Debug)]
pub struct Loops {
    requests: watch::Receiver<Requests>,
    reports: watch::Sender<Reports>,
}

/// Both ends. Requests count from one: the first pass, which finds what an
/// earlier instance left, comes before any request.
#[must_use]
pub fn channel(clusters: usize) -> (Wake, Loops) {
    let (requests, requested) = watch::channel(Requests {
        serial: 1,
        looks: VecDeque::new(),
    });
    let (report, reports) = watch::channel(Reports::new());
    let requests = Arc::new(requests);
    let wake = Wake {
        requests,
        reports,
        clusters,
    };
    (
        wake,
        Loops {
            requests: requested,
            reports: report,
        },
    )
}

impl Wake {
    /// Asks for a pass over every cluster. Returns the number that the waits
    /// take.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.request_with(None)
    }

    /// The same, and Compute is asked about the VM of this name at once.
    #[must_use]
    pub fn request_look(&self, name: &str) -> u64 {
        self.request_with(Some(name))
    }

    fn request_with(&self, look: Option<&str>) -> u64 {
        let mut serial = 0;
        self.requests.send_modify(|requests| {
            requests.serial += 1;
            serial = requests.serial;
            requests
                .looks
                .extend(look.map(|name| (serial, name.to_owned())));
            if requests.looks.len() > LOOKS_MAX {
                requests.looks.pop_front();
            }
        });
        serial
    }

    /// Returns once a pass that began after request `serial` has ended on one
    /// cluster, or the loops have ended.
    pub async fn pass_over(&self, cluster: &str, serial: u64) {
        let mut reports = self.reports.clone();
        let over = reports.wait_for(|all| all.get(cluster).is_some_and(|r| r.serial >= serial));
        drop(over.await);
    }

    /// The same for all clusters.
    pub async fn passes_over_all(&self, serial: u64) {
        let mut reports = self.reports.clone();
        let over = reports
            .wait_for(|all| all.len() == self.clusters && all.values().all(|r| r.serial >= serial));
        drop(over.await);
    }

    /// Tells of every new report from now on.
    #[must_use]
    pub fn watcher(&self) -> watch::Receiver<Reports> {
        let mut reports = self.reports.clone();
        reports.mark_unchanged();
        reports
    }

    /// The newest reports.
    #[must_use]
    pub fn reports(&self) -> Reports {
        self.reports.borrow().clone()
    }

    /// The metrics as text, with the state of things as of the newest reports.
    #[must_use]
    pub fn measure(&self, metrics: &Metrics) -> String {
        let reports = self.reports();
        let all = || reports.values().flat_map(|report| &report.maintenances);
        let phases = [Phase::Scheduled, Phase::Ongoing, Phase::Completed];
        let counted = phases.map(|phase| {
            let there = all().filter(|m| m.ended.is_none() && m.phase == phase);
            (phase.name(), there.count())
        });
        metrics.set_maintenances(counted);
        metrics.text()
    }

    /// Whether every cluster has been worked on, or been found unreachable.
    #[must_use]
    pub fn all_seen(&self) -> bool {
        self.reports.borrow().len() == self.clusters
    }
}

enum Reason {
    Asked,
    Due,
    Answered(Box<Called>),
    Watch(Changed),
    Stop,
}

/// Runs the loops of all clusters until `stop` shows true. Passes under way
/// are finished.
pub async fn run(driver: &Driver, ends: Loops, stop: watch::Receiver<bool>) {
    let loops = driver.clusters().iter().map(|cluster| {
        let passes = |outbox| run_one(driver, cluster, &ends, &stop, outbox);
        events::beside(cluster, driver.metrics(), passes)
    });
    let mut loops: FuturesUnordered<_> = loops.collect();
    while loops.next().await.is_some() {}
}

async fn run_one(
    driver: &Driver,
    cluster: &Arc<dyn Cluster>,
    ends: &Loops,
    stop: &watch::Receiver<bool>,
    outbox: Outbox,
) {
    let metrics = driver.metrics();
    let id = cluster.id();
    let mut memory = ClusterMemory::default();
    let mut calls: FuturesUnordered<Call> = FuturesUnordered::new();
    let mut requests = ends.requests.clone();
    let mut stop = stop.clone();
    let mut seen = 0;
    loop {
        // Seen before looking for work, so that no request is lost.
        let asked = requests.borrow_and_update().clone();
        let looks = asked.looks.iter().filter(|(serial, _)| *serial > seen);
        looks.for_each(|(_, name)| memory.forget_look(name));
        seen = asked.serial;
        let started = Instant::now();
        let passed = driver.pass(cluster, &mut memory).await;
        metrics.pass(started.elapsed().as_secs_f64());
        calls.extend(passed.calls);
        settle_some(&mut calls, id, metrics, &mut memory).await;
        outbox.put(memory.events.drain(..));
        let now = driver.clock().now();
        let mut report = PassReport::new(id, &memory, now);
        report.serial = asked.serial;
        report.actions = passed.actions;
        report.status = passed.status;
        match passed.again_at {
            // What is due must wait as well, or a cluster that is down would be
            // asked in a hot loop.
            Some(at) if passed.unreachable => report.put_off(at),
            Some(at) => report.again_at(at),
            None => {}
        }
        let idle = shift(now, IDLE_S);
        let wake_at = report.wake_at.map_or(idle, |at| at.min(idle));
        ends.reports.send_modify(|reports| {
            reports.insert(id.path.clone(), Arc::new(report));
        });
        let watching = memory.watching();
        let reason = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Reason::Stop,
            changed = requests.changed() => match changed {
                Ok(()) => Reason::Asked,
                Err(_) => Reason::Stop,
            },
            Some(called) = calls.next() => Reason::Answered(Box::new(called)),
            changed = cluster.changed(&watching) => Reason::Watch(changed),
            () = driver.clock().sleep_until(wake_at) => Reason::Due,
        };
        match reason {
            Reason::Stop => break,
            Reason::Asked | Reason::Due => {}
            Reason::Answered(called) => memory.settle(*called, id, metrics),
            Reason::Watch(change) => memory.note_change(&change, driver.clock().now()),
        }
    }
    // A call that is given up may still be carried out, and burns a budget's
    // disruption if it isn't: those under way are waited for, within the time
    // that stopping may take.
    while let Some(called) = calls.next().await {
        memory.settle(called, id, metrics);
    }
    outbox.put(memory.events.drain(..));
}

/// Most calls are answered within a tenth of a second: a pass waits for them
/// a little, so that its report and the next plan know of them.
async fn settle_some(
    calls: &mut FuturesUnordered<Call>,
    cluster: &ClusterId,
    metrics: &Metrics,
    memory: &mut ClusterMemory,
) {
    let until = Instant::now() + SETTLE;
    while let Ok(Some(called)) = tokio::time::timeout_at(until, calls.next()).await {
        memory.settle(called, cluster, metrics);
    }
}
