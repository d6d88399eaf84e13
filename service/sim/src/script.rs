//! Scripts: maintenances that an operator can read, one step a line.
//!
//! ```text
//! at 0 pod gpu-1 job train grace 600 takes 240
//! at 5 begin gpu-1 notice 3600 repair 600
//! at 20 expect marked gpu-1
//! ```
//!
//! Two runners play them: trials in the simulated world, and the end-to-end
//! tests on a real control plane. Both come to the same end.

mod end;
mod read;
pub mod stage;
mod touch;

use std::collections::BTreeSet;

use anyhow::Context as _;

pub use self::end::{End, Told, UNANSWERED, outcome, split_end};
pub use self::touch::{CORDON, Touch};
use crate::journal::NodeChange;
use crate::spec::{BudgetSpec, MaintenanceSpec, PodSpec};

/// A script, read.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its steps, in the order of time.
    pub lines: Vec<Line>,
}

/// A step, when it happens, and how it is written.
#[derive(Debug, Clone)]
pub struct Line {
    /// Without the time.
    pub text: String,
    /// Seconds from the begin.
    pub at_s: i64,
    /// What happens.
    pub step: Step,
}

/// What happens, or is looked at.
#[derive(Debug, Clone)]
pub enum Step {
    /// A pod, or a workload of one pod, runs on a node.
    Pod {
        /// Which node.
        node: String,
        /// What runs there.
        pod: PodSpec,
    },
    /// A budget appears.
    Budget(BudgetSpec),
    /// The budget of this app goes.
    Free(String),
    /// A maintenance is announced, or begins at once.
    Begin {
        /// Of which node's host.
        node: String,
        /// Seconds until it begins.
        in_s: u32,
        /// How it goes.
        how: MaintenanceSpec,
    },
    /// A window that lies ahead gets another begin.
    Move {
        /// Of which node's host.
        node: String,
        /// Seconds until it begins.
        in_s: u32,
    },
    /// A maintenance is called off.
    Cancel(String),
    /// An entry that nothing of now has caused, or an old one.
    Notice {
        /// About which node.
        node: String,
        /// What it says.
        entry: Entry,
        /// How old it is.
        age_s: u32,
    },
    /// What becomes of the entries of the next seconds.
    Mail {
        /// What.
        how: Mail,
        /// For how long.
        for_s: u32,
    },
    /// An instance of the service dies and comes back.
    Crash {
        /// Which of the two.
        instance: usize,
        /// Whether it gets the time to end its work.
        gently: bool,
        /// After how long it comes back.
        down_s: u32,
    },
    /// Nothing reaches API server and Compute for so many seconds.
    Partition(u32),
    /// Somebody rewrites a Node.
    Touch {
        /// Which.
        node: String,
        /// How.
        how: Touch,
    },
    /// A node goes, with its VM and its pods.
    Remove(String),
    /// A node is built anew under its name, on another VM.
    Rebuild(String),
    /// It is looked at whether this holds.
    Expect {
        /// What.
        what: State,
        /// Of which node or app.
        object: String,
    },
}

/// What an audit log entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A maintenance lies ahead.
    Scheduled,
    /// It has begun.
    Ongoing,
    /// It is over.
    Completed,
    /// The VM is stopped for it.
    Terminated,
    /// The VM has been started again.
    Restarted,
}

impl Entry {
    /// What Compute writes when this happens to a node's VM or host.
    #[must_use]
    pub fn of(change: &NodeChange) -> Option<Self> {
        Some(match change {
            NodeChange::MaintenanceAnnounced { .. } => Self::Scheduled,
            NodeChange::MaintenanceBegan { .. } => Self::Ongoing,
            NodeChange::MaintenanceEnded => Self::Completed,
            NodeChange::HostStopped => Self::Terminated,
            NodeChange::HostStarted => Self::Restarted,
            NodeChange::MaintenanceCancelled
            | NodeChange::Marked { .. }
            | NodeChange::Unmarked
            | NodeChange::Ready
            | NodeChange::NotReady => return None,
        })
    }

    /// The word for it in a script.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ongoing => "ongoing",
            Self::Completed => "completed",
            Self::Terminated => "terminated",
            Self::Restarted => "restarted",
        }
    }
}

/// What becomes of entries on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mail {
    /// They never arrive.
    Lost,
    /// They arrive twice.
    Twice,
    /// They arrive up to so many seconds later.
    Late(u32),
}

/// What can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum State {
    Marked,
    Clean,
    Ready,
    Gone,
    There,
    Stopping,
}

impl Script {
    /// Reads a script. What follows a `#` is for people.
    ///
    /// # Errors
    /// When a line can't be read; the error names it.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut lines = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                lines.push(read::line(line).with_context(|| format!("line `{line}`"))?);
            }
        }
        anyhow::ensure!(
            lines.is_sorted_by_key(|line: &Line| line.at_s),
            "the lines are not in the order of time"
        );
        Ok(Self { lines })
    }

    /// The nodes that it speaks of.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<&'static str> {
        let named = |node: &&&str| {
            let mut lines = self.lines.iter();
            lines.any(|line| line.text.split_whitespace().any(|word| word == **node))
        };
        stage::NODES.iter().filter(named).copied().collect()
    }

    /// The app of a pod with this name: the script's word for it.
    #[must_use]
    pub fn app_of(&self, pod: &str) -> String {
        let apps = self.pods().map(|pod| &pod.name);
        let theirs = apps.filter(|app| {
            let rest = pod.strip_prefix(app.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        theirs
            .max_by_key(|app| app.len())
            .map_or_else(|| pod.to_owned(), Clone::clone)
    }
    fn pods(&self) -> impl Iterator<Item = &PodSpec> {
        self.lines.iter().filter_map(|line| {
            if let Step::Pod { pod, .. } = &line.step {
                Some(pod)
            } else {
                None
            }
        })
    }

    /// The grace that a pod with this name asks for.
    #[must_use]
    pub fn grace_of(&self, pod: &str) -> u32 {
        let app = self.app_of(pod);
        let theirs = self.pods().filter(|pod| pod.name == app);
        theirs.map(|pod| pod.grace_s).max().unwrap_or_default()
    }
}
