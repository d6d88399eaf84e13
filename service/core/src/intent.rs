//! The durable decision "evacuate this node by D because of notice K", and
//! its codec: the JSON of the annotation `drainwell.dev/maintenance`.
//!
//! Any version is read whose known fields parse, and unknown fields are kept,
//! so that two releases can share a node during a roll-out (of a number, what a
//! 64-bit integer or float holds).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::keys;
use crate::notice::{Phase, Source};
use crate::observed::{Kind, Node};
use crate::time::seconds_between;

/// The version that we write.
pub const VERSION: u32 = 1;

/// A mark that this service has written and so may take off again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// The maintenance label.
    Label,
    /// The termination taint.
    Taint,
}

/// The intent on one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Version of the codec.
    pub v: u32,
    /// `INSTANCE_ID/WINDOW`, minted when first written, then never changed.
    pub key: String,
    /// Where the maintenance stands.
    pub phase: Phase,
    /// When the marks (of a scheduled one: the record) were written.
    pub noticed: Timestamp,
    /// The start that the deadline counts from.
    pub since: Timestamp,
    /// When the host stops.
    pub deadline: Timestamp,
    /// `deadline - since`, for people who read it.
    pub window_s: i64,
    /// What the node computes on.
    pub kind: Kind,
    /// By which way we learned of it.
    pub source: Source,
    /// Why Google maintains the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Whether the start is an entry's timestamp. An assumed deadline orders
    /// work but shortens no grace.
    #[serde(default)]
    pub deadline_known: bool,
    /// The host is stopping at this moment: wait for no budget and no gate.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopping: bool,
    /// The node's boot when it was marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Compute has shown the maintenance as ongoing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub seen_ongoing: bool,
    /// Since the marks the VM was seen not running, or the node not Ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub seen_down: bool,
    /// First of the looks in a row at which Compute showed no maintenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_since: Option<Timestamp>,
    /// When nothing was left to evict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<Timestamp>,
    /// When it was taken for over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// The other nodes of its TPU slice have been marked because of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub slice_marked: bool,
    /// How often marks that another component took away were put back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasserted: u32,
    /// When that was last; once it has been often enough, when we gave in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasserted_at: Option<Timestamp>,
    /// The marks that are ours.
    #[serde(default)]
    pub ours: Vec<Mark>,
    /// The label's value that we wrote.
    #[serde(default = "default_label_value")]
    pub label_value: String,
    /// Fields of other releases.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn default_label_value() -> String {
    "true".to_owned()
}

/// What a Node says about its intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// It has none.
    Nothing,
    /// It has one.
    Intent(Box<Intent>),
    /// It has one that can't be read, with the reason. Never overwritten.
    Unreadable(String),
}

impl Stored {
    /// Reads a Node's annotation.
    #[must_use]
    pub fn on(node: &Node) -> Self {
        match node.annotations.get(keys::INTENT_ANNOTATION) {
            None => Self::Nothing,
            Some(text) => match serde_json::from_str::<Intent>(text) {
                Ok(intent) => Self::Intent(Box::new(intent)),
                Err(error) => Self::Unreadable(error.to_string()),
            },
        }
    }
}

impl Intent {
    /// The annotation's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The instance id in the key, if it was known when the key was minted.
    #[must_use]
    pub fn instance_id(&self) -> Option<u64> {
        let id = self.key.split('/').next()?.parse().ok();
        id.filter(|id| *id > 0)
    }

    /// Moves the deadline, with all that goes with it.
    pub fn set_deadline(&mut self, since: Timestamp, deadline: Timestamp, known: bool) {
        self.since = since;
        self.deadline = deadline;
        self.deadline_known = known;
        self.window_s = seconds_between(since, deadline);
    }
}
