//! What a plan asks for, and what became of it.

use jiff::Timestamp;

use crate::observed::PodRef;

/// A call that tells a pod to stop. The one who makes it makes no choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask for a pod's eviction through the Eviction API.
    Evict(Departure),
    /// A budget has been respected for as long as it may be: condition
    /// DisruptionTarget, then DELETE.
    Force(Departure),
    /// The pod is terminating, but its grace reaches past the deadline:
    /// DELETE again with what remains.
    Shorten(Departure),
}

impl Action {
    /// Whom it tells to stop.
    #[must_use]
    pub fn departure(&self) -> &Departure {
        match self {
            Self::Evict(departure) | Self::Force(departure) | Self::Shorten(departure) => departure,
        }
    }

    /// What happens to the pod, in a word.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Evict(_) => "evicted",
            Self::Force(_) => "forced",
            Self::Shorten(_) => "cut short",
        }
    }
}

/// A pod that is told to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// Which pod.
    pub pod: PodRef,
    /// Name of its tier.
    pub tier: String,
    /// What the pod itself asks for, or was told to stop with before.
    pub grace_s: u32,
    /// What it gets, when that is less.
    pub shortened_to_s: Option<u32>,
}

/// What happens to a node's marks and intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Label, taint and intent appear.
    Marked,
    /// The open intent learned something.
    Updated,
    /// Nothing is left to evict.
    Drained,
    /// Marks that another component took away are put back.
    Reasserted,
    /// They were taken away once too often: they stay off.
    Yielded,
    /// It was taken for over too early, and goes on.
    Resumed,
    /// The maintenance is over, but the node isn't back yet: marks stay.
    Completed,
    /// Our marks and the intent go, with the reason.
    Unmarked(String),
}

/// What became of an action, grouped by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted, or there was nothing left to do (404, or another UID).
    Done,
    /// A disruption budget forbids it now. Normal, not an error.
    Blocked {
        /// In the server's words, with the budget's name.
        why: String,
    },
    /// The object has changed since we looked: look again.
    Stale,
    /// Try again later: the server is down, slow, or wants us to slow down.
    Retry {
        /// What went wrong.
        why: String,
        /// How long the server asked us to wait.
        after_s: Option<u32>,
    },
    /// It will not be allowed however often we ask.
    Refused {
        /// In the server's words.
        why: String,
    },
}

/// The last thing this process tried on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// With what result.
    pub outcome: Outcome,
    /// How many tries in a row ended with `Retry` or `Blocked`, this one too.
    pub failures: u32,
}
