//! From the mark to the end: how an intent follows what Compute and the Node
//! show, and when our marks come off.

use jiff::Timestamp;

use crate::intent::{Intent, Mark};
use crate::keys;
use crate::merge::assumed_deadline;
use crate::notice::{Phase, Source};
use crate::observed::{Answer, Instance, Look, Node};
use crate::policy::Policy;
use crate::time::{seconds_between, shift};

/// Between two looks at a VM with an intent.
const LOOK_EVERY_S: i64 = 60;
/// The same when a window is about to begin or a node about to be back.
const LOOK_SOON_S: i64 = 15;
/// How near a window must be for that.
const NEAR_S: i64 = 300;
/// An answer older than this says nothing of now.
const FRESH_S: i64 = 150;
/// Two looks that agree are at least this far apart.
const APART_S: i64 = 60;
/// Absence that lasts this long needs no other sign.
const LONG_ABSENCE_S: i64 = 600;
/// Least time after the deadline before silence counts as the end.
const SILENCE_S: i64 = 600;
/// The same when Compute can't be asked.
const BLIND_SILENCE_S: i64 = 7200;

/// How often, and how far apart, marks are put back that another component
/// took away: GKE's own handler removes the taint while its metadata says NONE.
const REASSERT_MAX: u32 = 3;
const REASSERT_EVERY_S: i64 = 30;

/// What becomes of an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing changes.
    Keep,
    /// The annotation alone changes; the maintenance stays what it was.
    Note(Intent),
    /// A recorded window has begun: marks and all.
    Begin(Intent),
    /// Another component took marks of ours away: they are put back.
    Reassert(Intent),
    /// It has done so too often: it has its way, the drain goes on.
    Yield(Intent),
    /// It is over, but the node isn't back.
    Complete(Intent),
    /// Marks and intent go.
    Unmark(String),
}

/// When Compute should next be asked about a node's VM.
#[must_use]
pub fn look_due(intent: &Intent, node: &Node, look: &Look, now: Timestamp) -> Option<Timestamp> {
    if look.off {
        return None;
    }
    let Some(last) = look.tried_at else {
        return Some(now);
    };
    let near = match intent.phase {
        Phase::Scheduled => seconds_between(now, intent.since) < NEAR_S,
        Phase::Ongoing => booted_anew(intent, node),
        Phase::Completed => true,
    };
    Some(shift(last, if near { LOOK_SOON_S } else { LOOK_EVERY_S }))
}

/// Decides what becomes of an intent.
#[must_use]
pub fn next(intent: &Intent, node: &Node, look: &Look, policy: &Policy, now: Timestamp) -> Next {
    if node.skipped() {
        return Next::Unmark("the node is annotated drainwell.dev/skip=true".to_owned());
    }
    let fresh = fresh_answer(look, now);
    let noted = note_signs(intent, node, fresh);
    if intent.phase == Phase::Scheduled {
        return follow_window(intent, noted, node, look, policy, now);
    }
    let runs = match fresh {
        Some((_, Answer::Instance(vm))) => vm.running,
        Some((_, Answer::NoInstance)) => false,
        None => true,
    };
    if completed_too_early(intent, fresh) {
        // It goes on while there is time.
        let again = Intent {
            phase: Phase::Ongoing,
            completed_at: None,
            ..noted.clone()
        };
        return if now < intent.deadline {
            Next::Note(again)
        } else {
            kept(intent, noted)
        };
    }
    match over(&noted, node, look, now) {
        Some(why) if runs && node.ready => Next::Unmark(why),
        Some(_) if intent.phase == Phase::Ongoing => Next::Complete(Intent {
            phase: Phase::Completed,
            completed_at: Some(now),
            ..noted
        }),
        None if marks_lost(intent, node) => defend(noted, intent, now),
        Some(_) | None => kept(intent, noted),
    }
}

/// Whether Compute shows it ongoing well after it was taken for over: what it
/// said before, or may still say a little later, proves nothing.
fn completed_too_early(intent: &Intent, fresh: Option<(Timestamp, &Answer)>) -> bool {
    let taken = intent
        .completed_at
        .filter(|_| intent.phase == Phase::Completed);
    let later = taken
        .zip(fresh)
        .is_some_and(|(taken, (at, _))| apart(taken, at, APART_S));
    later && shown_ongoing(fresh)
}

/// Nothing happens but what was noted, if anything was.
fn kept(intent: &Intent, noted: Intent) -> Next {
    if noted == *intent {
        Next::Keep
    } else {
        Next::Note(noted)
    }
}

fn shown_ongoing(fresh: Option<(Timestamp, &Answer)>) -> bool {
    match fresh {
        Some((_, Answer::Instance(vm))) => vm.maintenance.as_ref().is_some_and(|m| m.ongoing),
        Some((_, Answer::NoInstance)) | None => false,
    }
}

/// Whether a mark that we wrote is no longer there. A label with another
/// value isn't lost: it belongs to someone else now, and the taint with it.
fn marks_lost(intent: &Intent, node: &Node) -> bool {
    let label = node.labels.get(keys::MAINTENANCE_LABEL);
    if label.is_some_and(|value| *value != intent.label_value) {
        return false;
    }
    intent.ours.iter().any(|mark| match mark {
        Mark::Label => label.is_none(),
        Mark::Taint => node.termination_taint().is_none(),
    })
}

/// Puts lost marks back three times, half a minute apart, then gives in.
fn defend(noted: Intent, intent: &Intent, now: Timestamp) -> Next {
    let rested = intent
        .reasserted_at
        .is_none_or(|at| apart(at, now, REASSERT_EVERY_S));
    let count = intent.reasserted;
    if intent.phase != Phase::Ongoing || count > REASSERT_MAX || !rested {
        return kept(intent, noted);
    }
    let next = Intent {
        reasserted: count + 1,
        reasserted_at: Some(now),
        ..noted
    };
    if count < REASSERT_MAX {
        Next::Reassert(next)
    } else {
        Next::Yield(next)
    }
}

/// When lost marks are next put back, if they are to be.
#[must_use]
pub fn reassert_due(intent: &Intent, node: &Node) -> Option<Timestamp> {
    let fights = intent.phase == Phase::Ongoing && intent.reasserted <= REASSERT_MAX;
    (fights && marks_lost(intent, node)).then(|| {
        shift(
            intent.reasserted_at.unwrap_or(intent.noticed),
            REASSERT_EVERY_S,
        )
    })
}

/// Adds what the newest look and the Node show to the intent, so that another
/// instance of the service knows it too.
fn note_signs(intent: &Intent, node: &Node, fresh: Option<(Timestamp, &Answer)>) -> Intent {
    let mut noted = intent.clone();
    let vm = match fresh {
        Some((_, Answer::Instance(vm))) => Some(vm),
        Some((_, Answer::NoInstance)) | None => None,
    };
    if let Some((at, _)) = fresh {
        if shown_ongoing(fresh) {
            noted.seen_ongoing = true;
            noted.absent_since = None;
        } else if intent.phase != Phase::Scheduled || vm.is_none_or(|vm| vm.maintenance.is_none()) {
            noted.absent_since.get_or_insert(at);
        } else {
            noted.absent_since = None;
        }
    }
    if intent.phase != Phase::Scheduled && (!node.ready || vm.is_some_and(|vm| !vm.running)) {
        noted.seen_down = true;
    }
    noted
}

/// A recorded window follows Compute: begun, moved, or shown no more.
fn follow_window(
    intent: &Intent,
    mut noted: Intent,
    node: &Node,
    look: &Look,
    policy: &Policy,
    now: Timestamp,
) -> Next {
    if replaced(intent, node, None) {
        return Next::Unmark("the node has another VM now".to_owned());
    }
    let window_s = policy.windows.of(intent.kind);
    match fresh_answer(look, now) {
        Some((_, Answer::Instance(vm))) if replaced(intent, node, Some(vm)) => {
            Next::Unmark("the name belongs to another VM now".to_owned())
        }
        Some((
            _,
            Answer::Instance(Instance {
                maintenance: Some(m),
                ..
            }),
        )) if m.ongoing => {
            let since = m.start.filter(|start| *start <= now).unwrap_or(now);
            let counted = shift(since, window_s);
            let deadline = if counted > now {
                counted
            } else {
                assumed_deadline(now, intent.kind, window_s)
            };
            noted.set_deadline(since, deadline, false);
            noted.phase = Phase::Ongoing;
            noted.source = Source::Sweep;
            noted.noticed = now;
            noted.boot_id.clone_from(&node.boot_id);
            Next::Begin(noted)
        }
        Some((
            _,
            Answer::Instance(Instance {
                maintenance: Some(m),
                ..
            }),
        )) => {
            if let Some(start) = m.start.filter(|start| *start != intent.since) {
                noted.set_deadline(start, shift(start, window_s), false);
            }
            kept(intent, noted)
        }
        Some((at, _))
            if noted
                .absent_since
                .is_some_and(|first| apart(first, at, APART_S)) =>
        {
            Next::Unmark("the scheduled maintenance is shown no more".to_owned())
        }
        None if now > shift(intent.deadline, BLIND_SILENCE_S.max(window_s)) => {
            Next::Unmark("the scheduled window is long over".to_owned())
        }
        Some(_) | None => kept(intent, noted),
    }
}

/// Why the maintenance is over, if it is.
fn over(intent: &Intent, node: &Node, look: &Look, now: Timestamp) -> Option<String> {
    let fresh = fresh_answer(look, now);
    let booted = booted_anew(intent, node);
    let silent = |least: i64| now >= shift(intent.deadline, intent.window_s.max(least));
    let vm = match fresh {
        Some((_, Answer::Instance(vm))) => Some(vm),
        // One odd answer is no proof: it takes two, a minute apart.
        Some((at, Answer::NoInstance)) => {
            let gone = intent
                .absent_since
                .is_some_and(|first| apart(first, at, APART_S));
            return gone.then(|| "the VM no longer exists".to_owned());
        }
        None if look.off => None,
        None => {
            let blind = silent(BLIND_SILENCE_S) && node.ready && booted;
            return blind.then(|| {
                "Compute Engine can't be asked, but the node has booted and is Ready long after \
                 its deadline"
                    .to_owned()
            });
        }
    };
    let shown = vm.and_then(|vm| vm.maintenance.as_ref());
    if shown.is_some_and(|m| m.ongoing) {
        return None;
    }
    if replaced(intent, node, vm) {
        return Some("the node has another VM now".to_owned());
    }
    if booted {
        return Some("the node has booted since it was marked".to_owned());
    }
    if intent.source == Source::Manual {
        return None;
    }
    if intent.phase == Phase::Completed {
        // By a notice, or found to be so before the node was back.
        return Some("the maintenance is completed".to_owned());
    }
    if look.off {
        let long_past = silent(BLIND_SILENCE_S) && node.ready;
        return long_past.then(|| "its deadline is long past".to_owned());
    }
    let (last, _) = fresh?;
    let absent_for = |least: i64| {
        intent
            .absent_since
            .is_some_and(|first| apart(first, last, least))
            && intent.seen_ongoing
    };
    if absent_for(APART_S) && intent.seen_down || absent_for(LONG_ABSENCE_S) {
        return Some("Compute Engine shows the maintenance no more".to_owned());
    }
    // A window that lies ahead is another maintenance, or this one postponed.
    let announced = shown.is_some_and(|m| m.start.is_none_or(|start| start <= now));
    (silent(SILENCE_S) && !announced)
        .then(|| "the deadline is long past and nothing is announced".to_owned())
}

fn apart(first: Timestamp, last: Timestamp, least_s: i64) -> bool {
    seconds_between(first, last) >= least_s
}

fn fresh_answer(look: &Look, now: Timestamp) -> Option<(Timestamp, &Answer)> {
    let (at, answer) = look.answer.as_ref()?;
    (seconds_between(*at, now) <= FRESH_S).then_some((*at, answer))
}

fn booted_anew(intent: &Intent, node: &Node) -> bool {
    match (&intent.boot_id, &node.boot_id) {
        (Some(then), Some(now)) => then != now,
        _ => false,
    }
}

fn replaced(intent: &Intent, node: &Node, vm: Option<&Instance>) -> bool {
    let Some(id) = intent.instance_id() else {
        return false;
    };
    node.instance_id().is_some_and(|now| now != id) || vm.is_some_and(|vm| vm.id != id)
}
