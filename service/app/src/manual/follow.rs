//! Follows a drain by hand to its end, by the reports of its passes.

use std::collections::BTreeSet;
use std::time::Duration;

use drainwell_core::intent::Intent;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::time::shift;
use jiff::Timestamp;

use crate::clock::Clock;
use crate::driver::report::{MaintenanceView, PassReport, PodReport};
use crate::driver::wake::Wake;

/// A pod whose grace ends with the window is taken away a moment later.
const AFTERMATH_S: i64 = 3;
/// The last pass lists a node's pods, which has a bound of five seconds.
const LAST_PASS: Duration = Duration::from_secs(6);

/// How a drain by hand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// No pod is left that is to leave.
    Drained {
        /// Pods that went meanwhile.
        gone: usize,
        /// Pods that stay, because they may.
        left_alone: usize,
    },
    /// The window is over, and pods are left.
    WindowOver {
        /// Which, and why.
        left: Vec<PodLeft>,
    },
    /// It was stopped; the marks stay.
    Stopped,
    /// The marks went before the node was drained.
    MarksGone,
    /// The node has booted anew before it was drained.
    Booted,
}

/// A pod that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLeft {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    /// Why.
    pub why: String,
}

/// What the reports have told so far.
struct Followed {
    key: String,
    deadline: Timestamp,
    taken_over: bool,
    last: Option<MaintenanceView>,
}

/// Returns at the end of the drain, or of its window.
pub(super) async fn to_the_end(wake: &Wake, clock: &Clock, intent: &Intent) -> End {
    let mut reports = wake.watcher();
    let mut followed = Followed {
        key: intent.key.clone(),
        deadline: intent.deadline,
        taken_over: false,
        last: None,
    };
    loop {
        if let Some(end) = followed.look(wake) {
            return end;
        }
        tokio::select! {
            changed = reports.changed() => if changed.is_err() {
                return End::Stopped;
            },
            () = clock.sleep_until(shift(followed.deadline, AFTERMATH_S)) => break,
        }
    }
    let serial = wake.request();
    // Without an answer in time, the report before it has to do.
    drop(tokio::time::timeout(LAST_PASS, wake.passes_over_all(serial)).await);
    let end = followed.look(wake);
    end.unwrap_or_else(|| End::WindowOver {
        left: followed.last.iter().flat_map(left).collect(),
    })
}

impl Followed {
    /// Looks at the newest report, and says whether the drain has ended.
    fn look(&mut self, wake: &Wake) -> Option<End> {
        let reports = wake.reports();
        let report = reports.values().next()?;
        self.judge(report)
    }

    fn judge(&mut self, report: &PassReport) -> Option<End> {
        let mut views = report.maintenances.iter();
        let view = views.find(|view| view.key == self.key && view.ended.is_none());
        let Some(view) = view else {
            // A pass that couldn't read the node says nothing of it.
            return (report.status == "ok").then_some(End::MarksGone);
        };
        self.deadline = view.deadline;
        if view.source != Source::Manual && !self.taken_over {
            self.taken_over = true;
            tracing::info!(
                "A notice of a maintenance has come for this node: the service goes on with the \
                 drain, which is only watched from here."
            );
        }
        self.last = Some(view.clone());
        if view.phase != Phase::Ongoing {
            return Some(End::Booted);
        }
        let known = view.trouble.is_none() && !view.tiers.is_empty();
        // One that has finished and one that is deleted are the same pod.
        let gone = || pods(view).filter(|pod| pod.gone_at.is_some());
        (known && view.waiting() == 0).then(|| End::Drained {
            gone: gone().map(|pod| &pod.uid).collect::<BTreeSet<_>>().len(),
            left_alone: pods(view).filter(|pod| pod.state == "skipped").count(),
        })
    }
}

fn pods(view: &MaintenanceView) -> impl Iterator<Item = &PodReport> {
    view.tiers.iter().flat_map(|tier| &tier.pods)
}

fn left(view: &MaintenanceView) -> impl Iterator<Item = PodLeft> {
    pods(view).filter_map(|pod| {
        let why = match pod.state {
            "gone" | "skipped" => return None,
            "evicted" | "forced" => "still stopping",
            "blocked" => pod.reason.as_str(),
            _ if pod.reason.is_empty() => "waiting for its turn",
            _ => pod.reason.as_str(),
        };
        Some(PodLeft {
            pod: format!("{}/{}", pod.namespace, pod.name),
            why: why.to_owned(),
        })
    })
}
