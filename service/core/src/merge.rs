//! What a confirmed notice makes of the intent that a Node has.
//!
//! Every later notice for an instance belongs to its open intent. A known
//! deadline only tightens, an assumed one gives way to a known one, and a
//! stale or repeated notice changes nothing.

use jiff::Timestamp;

use crate::intent::{Intent, Stored, VERSION};
use crate::notice::{Notice, Phase, Source, known_reasons};
use crate::observed::{Instance, Kind, Maintenance, Node};
use crate::policy::Policy;
use crate::time::shift;

/// All that a merge depends on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The confirmed notice.
    pub notice: &'a Notice,
    /// The Node that it is about.
    pub node: &'a Node,
    /// Its VM, if Compute was asked.
    pub instance: Option<&'a Instance>,
    /// The policy of its cluster.
    pub policy: &'a Policy,
    /// Now.
    pub now: Timestamp,
}

/// What is to be done about a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The intent says it all.
    Unchanged,
    /// The notice is older than what the intent knows.
    Stale,
    /// The intent can't be read, so nothing may be written over it.
    Unreadable(String),
    /// A new intent, or a scheduled one that became ongoing: marks and all.
    Mark(Intent),
    /// The open intent learned something.
    Update(Intent),
    /// A window that lies ahead is recorded.
    Record(Intent),
    /// A recorded window is over before it began: the record goes.
    Forget(Intent),
    /// The maintenance is over.
    Complete(Intent),
}

/// Merges a notice into what the Node says.
#[must_use]
pub fn merge(facts: &Facts<'_>, stored: &Stored) -> Merged {
    let open = match stored {
        Stored::Unreadable(why) => return Merged::Unreadable(why.clone()),
        Stored::Nothing => None,
        Stored::Intent(intent) => Some(intent.as_ref()),
    };
    let id = facts.instance_id();
    let same = open.filter(|intent| match (intent.instance_id(), id) {
        (Some(of_intent), Some(of_notice)) => of_intent == of_notice,
        _ => true,
    });
    match (facts.notice.phase, same) {
        (Phase::Completed, None) => Merged::Unchanged,
        (Phase::Completed, Some(intent)) => complete(facts, intent),
        (Phase::Scheduled, None) => Merged::Record(fresh(facts, open)),
        (Phase::Scheduled, Some(intent)) => reschedule(facts, intent),
        (Phase::Ongoing, None) => Merged::Mark(fresh(facts, open)),
        (Phase::Ongoing, Some(intent)) => begin_or_tighten(facts, intent),
    }
}

impl Facts<'_> {
    fn instance_id(&self) -> Option<u64> {
        self.instance
            .map(|i| i.id)
            .or(self.notice.vm.id)
            .or_else(|| self.node.instance_id())
    }

    fn shown(&self) -> Option<&Maintenance> {
        self.instance.and_then(|i| i.maintenance.as_ref())
    }

    /// When the window begins: Compute knows better than the notice.
    fn window_start(&self) -> Option<Timestamp> {
        self.shown()
            .and_then(|m| m.start)
            .or(self.notice.window_start)
    }
}

/// A new intent. Marks that an earlier one left on this Node stay ours.
fn fresh(facts: &Facts<'_>, earlier: Option<&Intent>) -> Intent {
    let Facts {
        notice,
        node,
        policy,
        now,
        ..
    } = *facts;
    let kind = node.kind();
    let start = facts.window_start().unwrap_or(notice.at);
    let mut intent = Intent {
        v: VERSION,
        key: format!("{}/{start}", facts.instance_id().unwrap_or_default()),
        phase: notice.phase,
        noticed: now,
        since: start,
        deadline: start,
        window_s: 0,
        kind,
        source: notice.source,
        reasons: vec![],
        deadline_known: false,
        stopping: notice.stopping,
        boot_id: node.boot_id.clone(),
        seen_ongoing: facts.shown().is_some_and(|m| m.ongoing),
        seen_down: false,
        absent_since: None,
        drained_at: None,
        completed_at: None,
        slice_marked: false,
        reasserted: 0,
        reasserted_at: None,
        ours: earlier.map(|e| e.ours.clone()).unwrap_or_default(),
        label_value: earlier.map_or_else(|| policy.label_value.clone(), |e| e.label_value.clone()),
        unknown: serde_json::Map::new(),
    };
    add_reasons(facts, &mut intent);
    if notice.phase == Phase::Scheduled {
        intent.set_deadline(start, shift(start, policy.windows.of(kind)), false);
    } else {
        let (deadline, known) = deadline(facts, kind);
        intent.set_deadline(notice.at, deadline, known);
    }
    intent
}

/// When the host stops, and whether that is known.
///
/// A deadline already past on first sight while the VM runs is contradicted
/// by the facts, and an entry that says that the host stops now may be early:
/// both get a short assumed one.
fn deadline(facts: &Facts<'_>, kind: Kind) -> (Timestamp, bool) {
    let window_s = facts.policy.windows.of(kind);
    let counted = shift(facts.notice.at, window_s);
    let running = facts.instance.is_none_or(|i| i.running);
    if running && (facts.notice.stopping || counted <= facts.now) {
        (assumed_deadline(facts.now, kind, window_s), false)
    } else {
        (counted, facts.notice.at_known && !facts.notice.stopping)
    }
}

/// The deadline where nothing better is known.
#[must_use]
pub fn assumed_deadline(now: Timestamp, kind: Kind, window_s: i64) -> Timestamp {
    let short_s = match kind {
        Kind::Gpu | Kind::Tpu => 300,
        Kind::Other => 60,
    };
    shift(now, window_s.min(short_s))
}

/// Adds the reasons that the notice and Compute give; says whether any is new.
fn add_reasons(facts: &Facts<'_>, intent: &mut Intent) -> bool {
    let shown = facts
        .shown()
        .map(|m| m.reasons.as_slice())
        .unwrap_or_default();
    let all = intent
        .reasons
        .iter()
        .chain(&facts.notice.reasons)
        .chain(shown);
    let all = known_reasons(all.map(String::as_str));
    let new = all.len() > intent.reasons.len();
    intent.reasons = all;
    new
}

fn reschedule(facts: &Facts<'_>, open: &Intent) -> Merged {
    if open.phase != Phase::Scheduled {
        return Merged::Unchanged;
    }
    let mut intent = open.clone();
    let start = facts.window_start().unwrap_or(intent.since);
    let moved = start != intent.since;
    if moved {
        intent.set_deadline(
            start,
            shift(start, facts.policy.windows.of(intent.kind)),
            false,
        );
    }
    if add_reasons(facts, &mut intent) || moved {
        Merged::Update(intent)
    } else {
        Merged::Unchanged
    }
}

fn begin_or_tighten(facts: &Facts<'_>, open: &Intent) -> Merged {
    let notice = facts.notice;
    let mut intent = open.clone();
    let reopened = open.phase == Phase::Completed;
    // Repeats of what has been completed since would bring a drain back.
    if reopened && (notice.at <= open.since || !facts.shown().is_some_and(|m| m.ongoing)) {
        return Merged::Unchanged;
    }
    let learned = add_reasons(facts, &mut intent);
    let (deadline, known) = deadline(facts, intent.kind);
    // A drain by hand is no maintenance: this one begins afresh.
    if open.phase != Phase::Ongoing || open.source == Source::Manual {
        intent.phase = Phase::Ongoing;
        intent.source = notice.source;
        intent.noticed = facts.now;
        intent.stopping = notice.stopping;
        intent.boot_id.clone_from(&facts.node.boot_id);
        intent.seen_ongoing = facts.shown().is_some_and(|m| m.ongoing);
        intent.seen_down = false;
        intent.absent_since = None;
        intent.drained_at = None;
        intent.completed_at = None;
        intent.slice_marked = false;
        intent.reasserted = 0;
        intent.reasserted_at = None;
        intent.set_deadline(notice.at, deadline, known);
        return Merged::Mark(intent);
    }
    let stopping = notice.stopping && !open.stopping;
    intent.stopping |= notice.stopping;
    // A redelivered entry that is past its own deadline only assumes one.
    let better = known && (!open.deadline_known || deadline < open.deadline);
    if better {
        intent.set_deadline(notice.at, deadline, true);
    }
    if better || stopping || learned {
        Merged::Update(intent)
    } else {
        Merged::Unchanged
    }
}

fn complete(facts: &Facts<'_>, open: &Intent) -> Merged {
    if open.source == Source::Manual || open.phase == Phase::Completed {
        return Merged::Unchanged;
    }
    if open.phase == Phase::Scheduled {
        // An entry older than the record, or a window that Compute still
        // shows, is about another maintenance.
        let older = facts.notice.at < open.noticed;
        return match facts.shown() {
            Some(_) => Merged::Unchanged,
            None if older => Merged::Stale,
            None => Merged::Forget(open.clone()),
        };
    }
    if facts.notice.at_known && facts.notice.at < open.since {
        return Merged::Stale;
    }
    Merged::Complete(Intent {
        phase: Phase::Completed,
        completed_at: Some(facts.now),
        ..open.clone()
    })
}
