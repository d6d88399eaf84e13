//! What happens in the world, in words.

use drainwell_core::time::seconds_between;

use super::bench::Bench;
use crate::journal::{Entry, NodeChange, PodChange, What as Happened};

/// What happened, in words; times as seconds from the begin.
pub(super) fn phrase(entry: &Entry, bench: &Bench) -> String {
    let second = |at| seconds_between(bench.begin, at);
    match &entry.what {
        Happened::BudgetFreed { budget, .. } => format!("budget {budget} allows disruptions"),
        Happened::Pod { pod, change } => format!("pod {pod}: {}", pod_phrase(change)),
        Happened::Node { node, change } => {
            let what = match change {
                NodeChange::MaintenanceAnnounced { starts_at } => {
                    format!("maintenance is announced for {} s", second(*starts_at))
                }
                NodeChange::MaintenanceBegan { stops_at } => {
                    format!("maintenance begins, host stops at {} s", second(*stops_at))
                }
                NodeChange::Marked { deadline } => {
                    let deadline = deadline.map_or(0, second);
                    format!("is marked, with deadline {deadline} s")
                }
                NodeChange::MaintenanceCancelled => "maintenance is cancelled".to_owned(),
                NodeChange::MaintenanceEnded => "maintenance is over".to_owned(),
                NodeChange::Unmarked => "is unmarked".to_owned(),
                NodeChange::HostStopped => "host stops".to_owned(),
                NodeChange::HostStarted => "host is back".to_owned(),
                NodeChange::Ready => "is Ready".to_owned(),
                NodeChange::NotReady => "is not Ready".to_owned(),
            };
            format!("node {node}: {what}")
        }
    }
}

fn pod_phrase(change: &PodChange) -> String {
    match change {
        PodChange::Told { way, grace_s } => format!("told to stop within {grace_s} s ({way:?})"),
        PodChange::Blocked { budget } => format!("held by budget {budget}"),
        PodChange::Stopped { after_s } => format!("stopped after {after_s} s"),
        PodChange::Killed { after_s } => format!("killed after {after_s} s"),
        PodChange::Lost { told: true } => "lost with the host, having been told".to_owned(),
        PodChange::Lost { told: false } => "lost with the host, untold".to_owned(),
        PodChange::Restarted => "runs again".to_owned(),
        PodChange::Created { node } => match node {
            Some(node) => format!("made anew on {node}"),
            None => "made anew, waits for a node".to_owned(),
        },
        PodChange::Bound { node } => format!("bound to {node}"),
    }
}
