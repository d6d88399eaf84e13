//! The journal, for people: one line for each thing worth a line.

use std::collections::BTreeSet;
use std::io;

use jiff::Timestamp;

use super::screen::{Colour, Screen, offset};
use crate::journal::{Entry, NodeChange, PodChange, Way, What};
use crate::world::World;

/// Reads the journal aloud.
pub(super) struct Narrator<'a> {
    world: &'a World,
    screen: &'a Screen,
    seen: usize,
    since: Timestamp,
    /// Pods of which it was said that a budget holds them.
    blocked: BTreeSet<String>,
}

impl<'a> Narrator<'a> {
    /// Begins after what has happened so far; times are counted from `since`.
    pub(super) fn new(world: &'a World, screen: &'a Screen, since: Timestamp) -> Self {
        let seen = world.journal().len();
        Self {
            world,
            screen,
            seen,
            since,
            blocked: BTreeSet::new(),
        }
    }

    /// Goes on until it is dropped, or nothing can be written.
    pub(super) async fn read(&mut self) -> io::Error {
        loop {
            let entries = self.world.journal_after(self.seen).await;
            if let Err(error) = self.tell(&entries) {
                return error;
            }
        }
    }

    /// Tells what has happened and was not told yet.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        let entries = self.world.journal().split_off(self.seen);
        self.tell(&entries)
    }

    fn tell(&mut self, entries: &[Entry]) -> io::Result<()> {
        self.seen += entries.len();
        for entry in entries {
            if let What::Pod {
                pod,
                change: PodChange::Blocked { .. },
            } = &entry.what
                && !self.blocked.insert(pod.uid.clone())
            {
                continue;
            }
            let (colour, word, text) = self.words(&entry.what);
            self.screen.line(entry.at, colour, word, &text)?;
        }
        Ok(())
    }

    fn words(&self, what: &What) -> (Colour, &'static str, String) {
        match what {
            What::Node { node, change } => {
                let (colour, word, text) = self.words_of_node(change);
                (colour, word, format!("{node}: {text}"))
            }
            What::Pod { pod, change } => {
                let (colour, word, text) = words_of_pod(change);
                (colour, word, format!("{pod}: {text}"))
            }
            What::BudgetFreed { namespace, budget } => (
                Colour::Plain,
                "budget",
                format!("{namespace}/{budget}: allows an eviction"),
            ),
        }
    }

    fn words_of_node(&self, change: &NodeChange) -> (Colour, &'static str, String) {
        let time = |at: Timestamp| offset(self.since, at);
        let (colour, word, text) = match change {
            NodeChange::MaintenanceAnnounced { starts_at } => {
                let text = format!("a maintenance will begin at {}", time(*starts_at));
                return (Colour::Plain, "compute", text);
            }
            NodeChange::MaintenanceBegan { stops_at } => {
                let text = format!(
                    "maintenance begins, the host will stop at {}",
                    time(*stops_at)
                );
                return (Colour::Warn, "compute", text);
            }
            NodeChange::Marked { deadline } => {
                let deadline = deadline.map_or_else(|| "none".to_owned(), time);
                let text = format!("label and taint are on, deadline {deadline}");
                return (Colour::Act, "marked", text);
            }
            NodeChange::MaintenanceCancelled => {
                (Colour::Plain, "compute", "the maintenance is called off")
            }
            NodeChange::MaintenanceEnded => (Colour::Plain, "compute", "the maintenance is over"),
            NodeChange::Unmarked => (Colour::Good, "unmarked", "label and taint are off again"),
            NodeChange::HostStopped => (Colour::Warn, "host", "the host stops, the VM with it"),
            NodeChange::HostStarted => (Colour::Plain, "host", "the host is back, the VM boots"),
            NodeChange::Ready => (Colour::Plain, "node", "Ready"),
            NodeChange::NotReady => (Colour::Plain, "node", "not Ready"),
        };
        (colour, word, text.to_owned())
    }
}

fn words_of_pod(change: &PodChange) -> (Colour, &'static str, String) {
    match change {
        PodChange::Told { way, grace_s } => {
            let (word, why) = match way {
                Way::Evicted => ("evicted", ""),
                Way::Forced => (
                    "forced",
                    " and condition DisruptionTarget; its budget had its time",
                ),
                Way::Shortened => ("shortened", "; less than it was told before"),
                Way::Platform => ("deleted", "; its node has been away for long"),
            };
            (Colour::Act, word, format!("has {grace_s} s to stop{why}"))
        }
        PodChange::Blocked { budget } => (
            Colour::Warn,
            "blocked",
            format!("disruption budget {budget} forbids its eviction now"),
        ),
        PodChange::Stopped { after_s } => (
            Colour::Good,
            "stopped",
            format!("by itself, after {after_s} s"),
        ),
        PodChange::Killed { after_s } => (
            Colour::Bad,
            "killed",
            format!("its grace was over after {after_s} s"),
        ),
        PodChange::Lost { told: true } => (
            Colour::Bad,
            "lost",
            "the host stopped before the pod had".to_owned(),
        ),
        PodChange::Lost { told: false } => {
            (Colour::Plain, "down", "stopped with the host".to_owned())
        }
        PodChange::Restarted => (Colour::Plain, "up", "runs again".to_owned()),
        PodChange::Created { node: Some(node) } => (Colour::Plain, "created", format!("on {node}")),
        PodChange::Created { node: None } => {
            (Colour::Plain, "created", "waits for a node".to_owned())
        }
        PodChange::Bound { node } => (Colour::Plain, "bound", format!("to {node}")),
    }
}
