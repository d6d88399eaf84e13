//! One step of a history: what happens to the world, to the mail, to the
//! calls of the service or to its instances, and when.

use std::fmt;

/// Something that happens at a moment, in milliseconds from the begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Compute announces a maintenance, or begins it at once.
    Announce {
        /// Of which node's host.
        node: String,
        /// Seconds until it begins.
        in_s: u32,
        /// Seconds from its begin to the stop of the host.
        notice_s: u32,
        /// Seconds that the host is down.
        repair_s: u32,
        /// Seconds until Compute shows it no more.
        cleared_s: u32,
    },
    /// A window that lies ahead gets another begin.
    Move {
        /// Of which node's host.
        node: String,
        /// Seconds until it begins.
        in_s: u32,
    },
    /// A maintenance is called off, before its begin or after it.
    Cancel(String),
    /// An entry that no maintenance of now has caused, or an old one.
    Forge {
        /// About which node.
        node: String,
        /// What it says.
        entry: Forged,
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
    /// What becomes of calls in the next seconds.
    Fault {
        /// Of which instance; of all if none is given.
        instance: Option<usize>,
        /// What.
        kind: Fault,
        /// For how long.
        for_s: u32,
    },
    /// An instance dies and comes back.
    Crash {
        /// Which.
        instance: usize,
        /// Whether it gets the time to end its work.
        gently: bool,
        /// After how long it comes back.
        down_s: u32,
    },
    /// A pod appears on a node.
    Pod {
        /// On which.
        node: String,
        /// Which of the scene's templates.
        template: usize,
    },
    /// Something happens to one of a node's pods.
    Change {
        /// On which node.
        node: String,
        /// The how manieth.
        pick: usize,
        /// What.
        how: PodChange,
    },
    /// A budget for an app's pods appears, or goes.
    Budget {
        /// Which app.
        app: String,
        /// How many must stay; none: it goes.
        min: Option<u32>,
    },
    /// Another component or a person rewrites a Node.
    Touch {
        /// Which.
        node: String,
        /// How.
        how: Touch,
    },
    /// A node is built anew under its name, after being away for a while.
    Rebuild {
        /// Which.
        node: String,
        /// For how long it is away.
        away_s: u32,
    },
    /// Somebody begins to drain a node by hand.
    ByHand {
        /// Which.
        node: String,
        /// Seconds until all is to be gone.
        window_s: u32,
    },
    /// A drain by hand is undone.
    Undo(String),
}

/// What an entry without a cause says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forged {
    Scheduled,
    Ongoing,
    Completed,
    Terminated,
    Restarted,
}

/// What becomes of entries on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mail {
    /// They never arrive.
    Lost,
    /// They arrive this much later, each a little different.
    Late(u32),
    /// They arrive twice.
    Twice,
}

/// What becomes of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This share in a hundred fails without effect.
    Errors(u32),
    /// This share is throttled, with a time to wait.
    Throttled(u32),
    /// This share takes effect, and the answer is lost.
    LostAnswers(u32),
    /// Each takes up to this many milliseconds more.
    Slow(u64),
    /// Changes are answered with a conflict, this share.
    Conflicts(u32),
    /// All fail.
    Partition,
    /// The instance dies in this share of calls, before or after their effect.
    Deaths(u32),
    /// Watches tell nothing.
    DeafWatches,
    /// Watches end early.
    ShortWatches,
    /// Compute shows what was up to this many seconds ago.
    OldCompute(u32),
    /// The other cluster answers nothing.
    FarDead,
    /// The other cluster takes seconds for an answer.
    FarSlow,
}

impl Fault {
    /// Whether it concerns the other cluster.
    pub(super) fn is_far(self) -> bool {
        matches!(self, Self::FarDead | Self::FarSlow)
    }
}

/// What happens to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodChange {
    Finish,
    Delete,
    Skip,
}

/// How a Node is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    StripLabel,
    StripTaint,
    Relabel,
    Taint,
    Untaint,
    Cordon,
    Uncordon,
    TerminationTaint,
    Skip,
    Unskip,
    Scramble,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at_ms / 1000, self.at_ms % 1000);
        write!(f, "{seconds:>6}.{millis:03} {:?}", self.what)
    }
}
