//! Any text as the annotation that holds an intent.

use drainwell_core::intent::{Intent, Mark, Stored};
use drainwell_core::observed::{Look, Node, Observed};
use drainwell_core::plan::plan;
use drainwell_core::policy::Policy;
use drainwell_core::{edit, keys};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::node::{bare, patched, t0, termination_taint};
use crate::world::pod;

/// Fields of this release; some are left out when they say nothing.
const OWN: [&str; 23] = [
    "v",
    "key",
    "phase",
    "noticed",
    "since",
    "deadline",
    "window_s",
    "kind",
    "source",
    "reasons",
    "deadline_known",
    "stopping",
    "boot_id",
    "seen_ongoing",
    "seen_down",
    "absent_since",
    "drained_at",
    "completed_at",
    "slice_marked",
    "reasserted",
    "reasserted_at",
    "ours",
    "label_value",
];

/// What is read is written again with all that it had, and can be worked with.
pub fn check(data: &[u8]) -> &'static str {
    let Ok(text) = std::str::from_utf8(data) else {
        return "no text";
    };
    let node = annotated(bare(), text);
    match Stored::on(&node) {
        Stored::Nothing => unreachable!("the annotation is there"),
        Stored::Unreadable(why) => {
            assert!(!why.is_empty());
            "unreadable"
        }
        Stored::Intent(intent) => {
            is_kept(text, &intent);
            for node in [marked(node.clone(), &intent), node] {
                comes_off(&node, &intent);
                for now in [
                    t0(),
                    intent.noticed,
                    intent.deadline,
                    Timestamp::MIN,
                    Timestamp::MAX,
                ] {
                    can_be_planned(&node, &intent, now);
                }
            }
            "read"
        }
    }
}

fn annotated(mut node: Node, text: &str) -> Node {
    node.annotations
        .insert(keys::INTENT_ANNOTATION.to_owned(), text.to_owned());
    node
}

/// With the marks that the intent claims.
fn marked(mut node: Node, intent: &Intent) -> Node {
    let yes = "true".to_owned();
    node.labels.insert(keys::MANAGED_LABEL.to_owned(), yes);
    if intent.ours.contains(&Mark::Label) {
        let value = intent.label_value.clone();
        node.labels
            .insert(keys::MAINTENANCE_LABEL.to_owned(), value);
    }
    if intent.ours.contains(&Mark::Taint) {
        node.taints.push(termination_taint());
    }
    node
}

fn is_kept(text: &str, intent: &Intent) {
    let written = intent.to_json();
    let again = Stored::on(&annotated(bare(), &written));
    assert_eq!(again, Stored::Intent(Box::new(intent.clone())), "{written}");
    let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text);
    let (before, after) = (object(text), object(&written));
    let (before, after) = before
        .and_then(|b| Ok((b, after?)))
        .expect("an intent is an object");
    for (key, value) in before
        .iter()
        .filter(|(key, _)| !OWN.contains(&key.as_str()))
    {
        assert_eq!(after.get(key), Some(value), "{key}");
    }
}

fn comes_off(node: &Node, intent: &Intent) {
    let (edit, stays) = edit::unmark(node, intent);
    let off = patched(node, &edit);
    assert!(!off.labels.contains_key(keys::MANAGED_LABEL) && Stored::on(&off) == Stored::Nothing);
    assert!(stays.is_some() || !intent.ours.contains(&Mark::Taint) || off.taints.is_empty());
}

/// Whatever times and numbers it has.
fn can_be_planned(node: &Node, intent: &Intent, now: Timestamp) {
    let seen = Observed {
        node: node.clone(),
        pods: vec![pod("training", "p0"), pod("kube-system", "p1")],
        look: Look::default(),
        attempts: [].into(),
        slice: None,
        broken_gangs: [].into(),
    };
    let plan = plan(&seen, intent, &Policy::default(), now);
    assert!(plan.wake_at >= now);
    if let Some((edit, _)) = &plan.edit {
        match Stored::on(&patched(node, edit)) {
            Stored::Intent(edited) => assert_eq!(edited.unknown, intent.unknown),
            Stored::Nothing => {}
            Stored::Unreadable(why) => unreachable!("{why}"),
        }
    }
}
