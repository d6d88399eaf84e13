//! The wake loop: one pass at a time, when a notice, a tick, a watch or the
//! clock asks for one. A wake-up carries no data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drainwell_core::time::shift;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;

use super::memory::Memory;
use super::pass::Driver;
use super::ports::{Changed, Watching};
use super::report::PassReport;

/// With nothing to do, clusters are still looked at once a minute: an intent
/// may have been written by another instance.
const IDLE_S: i64 = 60;
/// Deletions come in swarms; one pass serves all that come within this time.
const GATHER: Duration = Duration::from_millis(50);

/// The handle by which everyone else asks for a pass and reads its report.
#[derive(Debug, Clone)]
pub struct Wake {
    requests: Arc<watch::Sender<u64>>,
    look: Arc<AtomicBool>,
    reports: watch::Receiver<Arc<PassReport>>,
}

/// The loop's own end of the handle.
#[derive(Debug)]
pub struct Loop {
    requests: watch::Receiver<u64>,
    look: Arc<AtomicBool>,
    reports: watch::Sender<Arc<PassReport>>,
}

/// Both ends. Requests count from one: the first pass, which finds what an
/// earlier instance left, comes before any request.
#[must_use]
pub fn channel() -> (Wake, Loop) {
    let (requests, requested) = watch::channel(1);
    let (report, reports) = watch::channel(Arc::new(PassReport::default()));
    let look = Arc::new(AtomicBool::new(false));
    let wake = Wake {
        requests: Arc::new(requests),
        look: Arc::clone(&look),
        reports,
    };
    (
        wake,
        Loop {
            requests: requested,
            look,
            reports: report,
        },
    )
}

impl Wake {
    /// Asks for a pass; with `look`, one that asks Compute about every VM.
    /// Returns the number that [`Self::pass_after`] waits for.
    #[must_use]
    pub fn request(&self, look: bool) -> u64 {
        if look {
            self.look.store(true, Ordering::Release);
        }
        let mut serial = 0;
        self.requests.send_modify(|n| {
            *n += 1;
            serial = *n;
        });
        serial
    }

    /// The report of a pass that began after request `serial`. `None` when
    /// the loop has ended.
    pub async fn pass_after(&self, serial: u64) -> Option<Arc<PassReport>> {
        let mut reports = self.reports.clone();
        let report = reports
            .wait_for(|report| report.serial >= serial)
            .await
            .ok()?;
        Some(Arc::clone(&report))
    }

    /// The next report after `seen`.
    pub async fn next_report(&self, seen: &Arc<PassReport>) -> Option<Arc<PassReport>> {
        let mut reports = self.reports.clone();
        let report = reports
            .wait_for(|report| !Arc::ptr_eq(report, seen))
            .await
            .ok()?;
        Some(Arc::clone(&report))
    }

    /// The newest report.
    #[must_use]
    pub fn report(&self) -> Arc<PassReport> {
        Arc::clone(&self.reports.borrow())
    }
}

enum Reason {
    Asked,
    Due,
    Watch(String, Changed),
    Stop,
}

/// Runs passes until `stop` returns. A pass under way is finished.
pub async fn run(driver: &Driver, mut ends: Loop, stop: impl Future<Output = ()>) {
    let mut memory = Memory::default();
    tokio::pin!(stop);
    loop {
        // Seen before looking for work, so that no request is lost.
        let serial = *ends.requests.borrow_and_update();
        if ends.look.swap(false, Ordering::AcqRel) {
            memory.forget_looks();
        }
        let report = Arc::new(driver.pass(&mut memory, serial).await);
        let idle = shift(driver.clock().now(), IDLE_S);
        let wake_at = report.wake_at.map_or(idle, |at| at.min(idle));
        ends.reports.send_replace(report);
        let watching = memory.watching();
        let reason = tokio::select! {
            biased;
            () = &mut stop => Reason::Stop,
            changed = ends.requests.changed() => match changed {
                Ok(()) => Reason::Asked,
                Err(_) => Reason::Stop,
            },
            (cluster, change) = watched(driver, &watching) => Reason::Watch(cluster, change),
            () = driver.clock().sleep_until(wake_at) => Reason::Due,
        };
        match reason {
            Reason::Stop => return,
            Reason::Asked | Reason::Due => {}
            Reason::Watch(cluster, change) => {
                if let Changed::Budget(namespace) = change {
                    memory.forget_blocks(&cluster, &namespace);
                }
                tokio::time::sleep(GATHER).await;
            }
        }
    }
}

async fn watched(driver: &Driver, watching: &[(String, Watching)]) -> (String, Changed) {
    let mut watches = FuturesUnordered::new();
    for (path, watching) in watching {
        if let Some(cluster) = driver.cluster(path) {
            watches.push(async move { (path.clone(), cluster.changed(watching).await) });
        }
    }
    match watches.next().await {
        Some(changed) => changed,
        None => std::future::pending().await,
    }
}
