//! Draining by hand: when it may begin, who evicts then, and what is taken off
//! when it is undone.

use jiff::Timestamp;
use serde_json::Value;

use crate::edit::{self, NodeEdit};
use crate::intent::{Intent, Mark, Stored, VERSION};
use crate::keys;
use crate::notice::{Phase, Source};
use crate::observed::{Node, Observed};
use crate::plan::{Plan, planned};
use crate::policy::Policy;
use crate::time::shift;

/// Why a node is not drained by hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// People asked us to leave it alone.
    #[error("it is annotated {}=true", keys::SKIP_ANNOTATION)]
    Skipped,
    /// The service has it in hand.
    #[error("it is under a maintenance already, until {deadline}")]
    UnderMaintenance {
        /// When its host stops.
        deadline: Timestamp,
    },
    /// Its annotation is never overwritten.
    #[error("its annotation {} can't be read: {why}", keys::INTENT_ANNOTATION)]
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

/// The intent with which a drain by hand begins, or is taken up again.
///
/// # Errors
/// When the node is not to be drained by hand.
pub fn begin(
    node: &Node,
    policy: &Policy,
    window_s: i64,
    now: Timestamp,
) -> Result<Intent, Refusal> {
    if node.skipped() {
        return Err(Refusal::Skipped);
    }
    let mut intent = match Stored::on(node) {
        Stored::Nothing => fresh(node, policy, now),
        Stored::Unreadable(why) => return Err(Refusal::Unreadable { why }),
        Stored::Intent(open) => match (open.phase, open.source) {
            // Later notices belong to the intent that is open.
            (Phase::Scheduled, _) => Intent {
                key: open.key,
                reasons: open.reasons,
                unknown: open.unknown,
                ours: open.ours,
                ..fresh(node, policy, now)
            },
            (Phase::Ongoing, Source::Manual) if open.boot_id == node.boot_id => *open,
            // It ended with that boot; what it left on the node stays ours.
            (_, Source::Manual) => Intent {
                ours: open.ours,
                label_value: open.label_value,
                ..fresh(node, policy, now)
            },
            (Phase::Ongoing | Phase::Completed, _) => {
                let deadline = open.deadline;
                return Err(Refusal::UnderMaintenance { deadline });
            }
        },
    };
    intent.drained_at = None;
    intent.reasserted = 0;
    intent.reasserted_at = None;
    intent.set_deadline(now, shift(now, window_s), true);
    Ok(intent)
}

/// Plans for the one who drains by hand. Any other maintenance is only followed,
/// because the service drains it.
#[must_use]
pub fn plan(seen: &Observed, intent: &Intent, policy: &Policy, now: Timestamp) -> Plan {
    planned(seen, intent, policy, now, true)
}

/// Takes off what is ours, whatever maintenance it belongs to: the edit, and
/// what stays though we put it there. `None` when nothing on the node is ours.
///
/// # Errors
/// When the annotation can't be read, unless `force`.
pub fn undo(
    node: &Node,
    policy: &Policy,
    force: bool,
    now: Timestamp,
) -> Result<Option<(NodeEdit, Option<String>)>, Refusal> {
    let intent = match Stored::on(node) {
        Stored::Intent(intent) => *intent,
        Stored::Unreadable(_) if force => salvaged(node, policy, now),
        Stored::Unreadable(why) => return Err(Refusal::Unreadable { why }),
        Stored::Nothing if node.labels.contains_key(keys::MANAGED_LABEL) => {
            fresh(node, policy, now)
        }
        Stored::Nothing => return Ok(None),
    };
    Ok(Some(edit::unmark(node, &intent)))
}

fn fresh(node: &Node, policy: &Policy, now: Timestamp) -> Intent {
    Intent {
        v: VERSION,
        key: format!("{}/{now}", node.instance_id().unwrap_or_default()),
        phase: Phase::Ongoing,
        noticed: now,
        since: now,
        deadline: now,
        window_s: 0,
        kind: node.kind(),
        source: Source::Manual,
        reasons: vec![],
        deadline_known: true,
        stopping: false,
        boot_id: node.boot_id.clone(),
        seen_ongoing: false,
        seen_down: false,
        absent_since: None,
        drained_at: None,
        completed_at: None,
        slice_marked: false,
        reasserted: 0,
        reasserted_at: None,
        ours: vec![],
        label_value: policy.label_value.clone(),
        unknown: serde_json::Map::new(),
    }
}

/// An intent that can't be read, as far as it says which marks are ours; where
/// it doesn't, both are taken for ours.
fn salvaged(node: &Node, policy: &Policy, now: Timestamp) -> Intent {
    let text = node.annotations.get(keys::INTENT_ANNOTATION);
    let fields: Value = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let fresh = fresh(node, policy, now);
    let ours = serde_json::from_value(fields["ours"].clone());
    Intent {
        ours: ours.unwrap_or_else(|_| vec![Mark::Label, Mark::Taint]),
        label_value: fields["label_value"]
            .as_str()
            .map_or(fresh.label_value, str::to_owned),
        ..fresh
    }
}
