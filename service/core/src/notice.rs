//! What an audit log entry claims about one VM: parsed, not trusted.
//!
//! Only the VM's identity is needed. A bad value in any other field is left
//! unset and named in `doubts`: a node is marked all the same.
//! Shapes: Compute Engine's entries in the `system_event` audit log (Cloud
//! Logging, `LogEntry` with an `AuditLog` as `protoPayload`).

mod read;
mod vm;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use read::{known_reasons, read};

/// The VM that an entry speaks of. Holds only values that are safe in a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vm {
    /// Project id.
    pub project: String,
    /// Zone.
    pub zone: String,
    /// The instance's name; some entries have only its numeric id.
    pub name: Option<String>,
    /// The numeric id, if the entry has it.
    pub id: Option<u64>,
}

impl Vm {
    /// What to ask Compute for. The name comes first, so that a VM rebuilt
    /// under it is seen as replaced rather than as gone.
    #[must_use]
    pub fn key(&self) -> String {
        self.name
            .clone()
            .or_else(|| self.id.map(|id| id.to_string()))
            .unwrap_or_default()
    }
}

impl std::fmt::Display for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.project, self.zone, self.key())
    }
}

/// Where a notice stands in a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It lies ahead.
    Scheduled,
    /// It is on.
    Ongoing,
    /// It is over.
    Completed,
}

impl Phase {
    /// As the annotation, the API and the metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ongoing => "ongoing",
            Self::Completed => "completed",
        }
    }
}

/// By which way we learned of a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Pub/Sub push.
    Pubsub,
    /// Eventarc.
    Eventarc,
    /// Pub/Sub pull.
    Pull,
    /// Our own look at Compute.
    Sweep,
    /// A notice for another host of the same TPU slice.
    Slice,
    /// A person.
    Manual,
}

impl Source {
    /// As the annotation, the API and the metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pubsub => "pubsub",
            Self::Eventarc => "eventarc",
            Self::Pull => "pull",
            Self::Sweep => "sweep",
            Self::Slice => "slice",
            Self::Manual => "manual",
        }
    }
}

/// A maintenance of one VM, as claimed by one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Which VM.
    pub vm: Vm,
    /// Where the maintenance stands.
    pub phase: Phase,
    /// The entry says that the host stops now (`terminateOnHostMaintenance`).
    pub stopping: bool,
    /// By which way it came.
    pub source: Source,
    /// When the entry was written, or the best that we know instead.
    pub at: Timestamp,
    /// Whether `at` is the entry's own timestamp.
    pub at_known: bool,
    /// Nothing tells its age: `at` is the moment at which it came in, and
    /// another one at each redelivery. No rule may wait for it to grow old.
    pub undated: bool,
    /// `metadata.windowStartTime`.
    pub window_start: Option<Timestamp>,
    /// `metadata.windowEndTime`.
    pub window_end: Option<Timestamp>,
    /// `metadata.maintenanceReasons`.
    pub reasons: Vec<String>,
    /// Fields whose values could not be used, with the reason.
    pub doubts: Vec<String>,
}

/// What an entry turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A maintenance.
    Notice(Box<Notice>),
    /// The VM came back or was rebuilt: no notice, but worth a look.
    WakeUp(Vm),
    /// A live migration: the node stays up.
    LiveMigration,
    /// Another entry.
    NotMaintenance,
}

impl Reading {
    /// The VM that it is about, if it matters which.
    #[must_use]
    pub fn vm(&self) -> Option<&Vm> {
        match self {
            Self::Notice(notice) => Some(&notice.vm),
            Self::WakeUp(vm) => Some(vm),
            Self::LiveMigration | Self::NotMaintenance => None,
        }
    }
}

/// What can't be read, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Malformed {
    /// Path in the body, such as `protoPayload.resourceName`.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Malformed {
    /// A fault at a place.
    pub fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

/// What is known of an entry besides its text.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// By which way it came.
    pub source: Source,
    /// When the message that holds it was published.
    pub published: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}
