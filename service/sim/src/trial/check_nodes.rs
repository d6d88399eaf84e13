//! The rules on writes to Nodes. Each write has the version that was read as
//! its precondition, so what it is based on is what was there: no allowance
//! for time is made.

use std::collections::BTreeMap;

use drainwell_app::intake::Verify;
use drainwell_core::intent::{Intent, Stored};
use drainwell_core::keys;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Node, Taint};
use drainwell_core::time::shift;
use jiff::Timestamp;

use super::check_pods::LAG_S;
use super::ledger::Ledger;

/// For how long an answer of Compute may count, and how far it may lag.
const OLD_ANSWER_S: i64 = 150 + 60 + 30;

/// Keys that the service may write.
const OURS: [&str; 3] = [
    keys::MAINTENANCE_LABEL,
    keys::MANAGED_LABEL,
    keys::INTENT_ANNOTATION,
];

impl Ledger {
    /// Checks a write that was carried out.
    pub(super) fn check_edit(
        &mut self,
        instance: usize,
        before: &Node,
        after: &Node,
        now: Timestamp,
    ) {
        let broken = self.broken_by_edit(instance, before, after, now);
        for what in broken {
            let node = &before.name;
            self.breach(now, format!("{what}: instance {instance} writes {node}"));
        }
        self.learn_marks(before, after);
    }

    /// Learns whose the marks are.
    pub(super) fn learn_marks(&mut self, before: &Node, after: &Node) {
        let Some(facts) = self.model.nodes.get_mut(&before.name) else {
            return;
        };
        let label = |node: &Node| node.labels.contains_key(keys::MAINTENANCE_LABEL);
        let taint = |node: &Node| node.termination_taint().is_some();
        facts.ours_label |= label(after) && !label(before);
        facts.ours_taint |= taint(after) && !taint(before);
        if open(after).is_none() {
            (facts.ours_label, facts.ours_taint) = (false, false);
        }
    }

    fn broken_by_edit(
        &self,
        instance: usize,
        before: &Node,
        after: &Node,
        now: Timestamp,
    ) -> Vec<String> {
        let mut broken = foreign(before, after);
        let mut rule = |holds: bool, what: &str| {
            if !holds {
                broken.push(what.to_owned());
            }
        };
        let unreadable = matches!(Stored::on(before), Stored::Unreadable(_));
        rule(before.uid == after.uid, "another Node is written");
        rule(!unreadable, "an unreadable intent is written over");
        self.check_marks(before, after, &mut rule);
        let (was, is) = (open(before), open(after));
        match (&was, &is) {
            (Some(was), Some(is)) => self.check_course(before, was, is, now, &mut rule),
            (Some(was), None) => self.check_unmark(before, after, was, now, &mut rule),
            (None, Some(_)) => rule(!before.skipped(), "a node to be skipped is marked"),
            (None, None) => {}
        }
        let drains = |i: &&Intent| i.phase == Phase::Ongoing && i.source != Source::Manual;
        if let (None, Some(is)) = (was.as_ref().filter(drains), is.as_ref().filter(drains)) {
            let reopened = was.as_ref().is_some_and(|i| i.phase == Phase::Completed);
            let shown = reopened || is.stopping || self.shown_lately(before, now);
            let trusted = self.verify != Verify::Required;
            rule(shown || trusted, "marked, and Compute shows no maintenance");
        }
        let newly = was.is_none_or(|was| was.drained_at.is_none());
        if let Some(is) = is.filter(|is| newly && is.drained_at.is_some()) {
            let left = self.holds_pods(instance, &before.name, &is, now);
            rule(!left, "drained, and pods are left");
        }
        broken
    }

    /// Label, taint and intent come in one write; those of others stay.
    fn check_marks(&self, before: &Node, after: &Node, rule: &mut impl FnMut(bool, &str)) {
        let label = |node: &Node| node.labels.get(keys::MAINTENANCE_LABEL).cloned();
        let taint = |node: &Node| node.termination_taint().is_some();
        let facts = self.model.nodes.get(&before.name);
        let ours_label = facts.is_some_and(|f| f.ours_label);
        let ours_taint = facts.is_some_and(|f| f.ours_taint);
        if label(before).is_some() && label(after) != label(before) {
            let own = ours_label && label(before).as_deref() == Some("true");
            let removed = label(after).is_none();
            rule(own && removed, "somebody else's label is changed");
        }
        let stays = !taint(before) || taint(after);
        rule(stays || ours_taint, "somebody else's taint is removed");
        let labelled = label(after).is_some() && label(before).is_none();
        let appears = labelled || taint(after) && !taint(before);
        let ongoing = |node| open(node).is_some_and(|i| i.phase == Phase::Ongoing);
        rule(
            !appears || open(after).is_some(),
            "a mark without an intent",
        );
        if ongoing(after) && !ongoing(before) {
            let both = label(after).is_some() && taint(after);
            rule(both, "an ongoing intent without both marks");
        }
        let managed = after.labels.get(keys::MANAGED_LABEL);
        let managed = managed.is_some_and(|value| value == "true");
        let in_step = open(after).is_some() == managed;
        rule(in_step, "intent and managed label are not in step");
    }

    /// An open intent changes only in one direction.
    fn check_course(
        &self,
        node: &Node,
        was: &Intent,
        is: &Intent,
        now: Timestamp,
        rule: &mut impl FnMut(bool, &str),
    ) {
        rule(!node.skipped(), "a node to be skipped is written");
        if was.source == Source::Manual {
            // Another maintenance begins in its place.
            return;
        }
        let same = was.key == is.key || was.instance_id() != is.instance_id();
        rule(same, "the key changes");
        if was.phase == Phase::Ongoing && is.phase == Phase::Ongoing && was.deadline_known {
            let tighter = is.deadline <= was.deadline && is.deadline_known;
            rule(tighter, "a known deadline moves later");
        }
        if was.phase == Phase::Ongoing && is.phase == Phase::Completed {
            let on = self.shown_ongoing(node, was, now);
            rule(
                !on,
                "completed while Compute shows the maintenance as ongoing",
            );
        }
    }

    /// Whether Compute has shown it as ongoing for longer than an answer counts.
    fn shown_ongoing(&self, node: &Node, intent: &Intent, now: Timestamp) -> bool {
        let id = intent.instance_id().unwrap_or_default();
        let from = shift(now, -OLD_ANSWER_S);
        self.verify != Verify::Off && self.model.ongoing_since(&node.name, id, from)
    }

    /// Whether Compute has shown any maintenance of it, or of its slice, since
    /// the oldest answer that may count.
    fn shown_lately(&self, node: &Node, now: Timestamp) -> bool {
        let slice = ["tpu-1", "tpu-2"];
        let alone = [node.name.as_str()];
        let nodes = if node.name.starts_with("tpu") {
            &slice[..]
        } else {
            &alone[..]
        };
        let from = shift(now, -OLD_ANSWER_S);
        nodes.iter().any(|name| self.model.shown_since(name, from))
    }

    fn check_unmark(
        &self,
        before: &Node,
        after: &Node,
        was: &Intent,
        now: Timestamp,
        rule: &mut impl FnMut(bool, &str),
    ) {
        if was.phase != Phase::Scheduled && !before.skipped() {
            rule(before.ready, "unmarked before the node is Ready");
            let on = self.shown_ongoing(before, was, now);
            rule(
                !on,
                "unmarked while Compute shows the maintenance as ongoing",
            );
        }
        let facts = self.model.nodes.get(&before.name);
        let (label, taint) = facts.map_or((false, false), |f| (f.ours_label, f.ours_taint));
        let value = after
            .labels
            .get(keys::MAINTENANCE_LABEL)
            .map(String::as_str);
        let yielded = value.is_some_and(|v| v != "true");
        rule(!label || value != Some("true"), "our label is left behind");
        rule(
            !taint || yielded || after.termination_taint().is_none(),
            "our taint is left behind",
        );
    }

    fn holds_pods(&self, instance: usize, node: &str, intent: &Intent, now: Timestamp) -> bool {
        let from = shift(now, -LAG_S);
        let mut pods = self.model.pods_on(node);
        pods.any(|p| {
            p.holds_for(instance, intent) && p.since <= from && !p.came_back(intent, -LAG_S)
        })
    }
}

fn open(node: &Node) -> Option<Intent> {
    match Stored::on(node) {
        Stored::Intent(intent) => Some(*intent),
        Stored::Nothing | Stored::Unreadable(_) => None,
    }
}

/// What a write has changed that is no business of the service.
fn foreign(before: &Node, after: &Node) -> Vec<String> {
    let theirs = |all: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let all = all.iter().filter(|(key, _)| !OURS.contains(&key.as_str()));
        all.map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let taints = |node: &Node| -> Vec<Taint> {
        let all = node.taints.iter();
        all.filter(|t| t.key != keys::TERMINATION_TAINT)
            .cloned()
            .collect()
    };
    let mut broken = Vec::new();
    if theirs(&before.labels) != theirs(&after.labels) {
        broken.push("other labels are changed".to_owned());
    }
    if theirs(&before.annotations) != theirs(&after.annotations) {
        broken.push("other annotations are changed".to_owned());
    }
    if taints(before) != taints(after) {
        broken.push("other taints are changed".to_owned());
    }
    broken
}
