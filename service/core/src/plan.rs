//! The plan: what to do now about one node, what is being waited for and why,
//! and when to look again. Pure: the same input gives the same plan.

mod drain;
mod view;

use jiff::Timestamp;

use self::drain::Drain;
pub use self::view::{PodState, PodView, TierState, TierView};
use crate::action::{Action, Change};
use crate::edit::{self, NodeEdit};
use crate::intent::Intent;
use crate::lifecycle::{self, Next};
use crate::notice::{Phase, Source};
use crate::observed::Observed;
use crate::policy::{Gangs, Policy};
use crate::slice;
use crate::time::shift;

/// The plan for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How the node's marks and intent are to be rewritten, and why. Comes
    /// before the actions.
    pub edit: Option<(NodeEdit, Change)>,
    /// Pods to tell to stop now.
    pub actions: Vec<Action>,
    /// Every pod that matters, by tier: what it waits for and why.
    pub tiers: Vec<TierView>,
    /// Nothing is left to evict.
    pub drained: bool,
    /// The pods that will not be gone by the deadline, each with the reason;
    /// said shortly before it, while somebody can still act.
    pub at_risk: Option<String>,
    /// When to look again, if nothing wakes us before.
    pub wake_at: Timestamp,
}

/// Plans for one node with an intent. A drain by hand is only followed: the one
/// who began it evicts.
#[must_use]
pub fn plan(seen: &Observed, intent: &Intent, policy: &Policy, now: Timestamp) -> Plan {
    planned(seen, intent, policy, now, false)
}

/// For the service, or for one who drains by hand.
pub(crate) fn planned(
    seen: &Observed,
    intent: &Intent,
    policy: &Policy,
    now: Timestamp,
    by_hand: bool,
) -> Plan {
    let manual = intent.source == Source::Manual;
    let next = lifecycle::next(intent, &seen.node, &seen.look, policy, now);
    let ending = matches!(next, Next::Complete(_) | Next::Unmark(_));
    let mut drain = Drain::new(seen, intent, policy, now);
    drain.classify();
    if intent.phase == Phase::Ongoing && !ending && manual == by_hand {
        match waits_for_peers(seen, intent, policy, now) {
            Some(until) => drain.wake_at.push(until),
            None => drain.act(),
        }
    }
    let drained = drain.is_drained();
    let at_risk = if drain.acted { drain.at_risk() } else { None };
    let edit = (manual || !by_hand)
        .then(|| edit_for(next, seen, intent, policy, drained, now))
        .flatten();
    let look = lifecycle::look_due(intent, &seen.node, &seen.look, now);
    let wake_at = look
        .into_iter()
        .chain(drain.wake_at)
        .chain(lifecycle::reassert_due(intent, &seen.node).filter(|at| *at > now))
        .min()
        .unwrap_or_else(|| shift(now, 60));
    let Drain { actions, tiers, .. } = drain;
    Plan {
        edit,
        actions,
        tiers,
        drained,
        at_risk,
        wake_at: wake_at.max(now),
    }
}

fn edit_for(
    next: Next,
    seen: &Observed,
    intent: &Intent,
    policy: &Policy,
    drained: bool,
    now: Timestamp,
) -> Option<(NodeEdit, Change)> {
    let newly = drained && intent.phase == Phase::Ongoing && intent.drained_at.is_none();
    let noted = match next {
        Next::Unmark(why) => {
            let (edit, stays) = edit::unmark(&seen.node, intent);
            let why = stays.map_or_else(|| why.clone(), |stays| format!("{why}; {stays}"));
            return Some((edit, Change::Unmarked(why)));
        }
        Next::Begin(begun) => {
            let (edit, _) = edit::write(&seen.node, &begun, &policy.label_value);
            return Some((edit, Change::Marked));
        }
        Next::Reassert(intent) => {
            let (edit, _) = edit::write(&seen.node, &intent, &intent.label_value);
            return Some((edit, Change::Reasserted));
        }
        Next::Yield(intent) => {
            return Some((edit::rewrite(&seen.node, &intent), Change::Yielded));
        }
        Next::Complete(done) => {
            return Some((edit::rewrite(&seen.node, &done), Change::Completed));
        }
        Next::Note(noted) => noted,
        Next::Keep if newly => intent.clone(),
        Next::Keep => return None,
    };
    let (noted, change) = if newly {
        (
            Intent {
                drained_at: Some(now),
                ..noted
            },
            Change::Drained,
        )
    } else if intent.phase == Phase::Completed && noted.phase == Phase::Ongoing {
        (noted, Change::Resumed)
    } else {
        (noted, Change::Updated)
    };
    Some((edit::rewrite(&seen.node, &noted), change))
}

/// Until when the evictions wait for the marks of the slice's other nodes.
fn waits_for_peers(
    seen: &Observed,
    intent: &Intent,
    policy: &Policy,
    now: Timestamp,
) -> Option<Timestamp> {
    let (slice, marked) = seen.slice.as_ref()?;
    let together = policy.gangs == Gangs::Slice && !intent.stopping;
    slice::waits_until(slice, *marked, now).filter(|_| together)
}
