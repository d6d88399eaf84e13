//! What a notice is answered.

use drainwell_core::confirm::Ignored;
use jiff::Timestamp;
use serde::Serialize;

/// What became of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Told {
    Marked,
    Updated,
    Unchanged,
    Scheduled,
    Completed,
    Ignored,
}

impl Told {
    /// As answers and metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Marked => "marked",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Scheduled => "scheduled",
            Self::Completed => "completed",
            Self::Ignored => "ignored",
        }
    }
}

/// An answer that acknowledges a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ack {
    /// What became of it.
    pub outcome: Told,
    /// Why it is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Ignored>,
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When its host stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

impl Ack {
    /// There is nothing to do.
    #[must_use]
    pub fn ignored(reason: Ignored) -> Self {
        let (cluster, node, deadline) = (None, None, None);
        Self {
            outcome: Told::Ignored,
            reason: Some(reason),
            cluster,
            node,
            deadline,
        }
    }
}

/// It can't be decided now: the notice has to come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Later(pub String);
