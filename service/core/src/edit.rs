//! One PATCH that takes a Node from the marks it has to those it should have.
//!
//! A JSON patch (RFC 6902) whose first operations `test` UID and
//! resourceVersion: taints are an atomic list, so that merge or apply would
//! take over other people's.

use serde_json::{Value, json};

use crate::intent::{Intent, Mark};
use crate::keys;
use crate::notice::Phase;
use crate::observed::Node;

/// The patch, with the identity it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEdit {
    /// Name of the Node.
    pub node: String,
    /// RFC 6902 operations.
    pub patch: Value,
}

/// Writes `intent`, and label and taint with it unless it is only scheduled.
/// Returns the intent as written: `ours` lists the marks that were missing.
#[must_use]
pub fn write(node: &Node, intent: &Intent, label_value: &str) -> (NodeEdit, Intent) {
    let mut intent = intent.clone();
    let mut ops = Ops::for_node(node);
    if intent.phase != Phase::Scheduled && !node.labels.contains_key(keys::MAINTENANCE_LABEL) {
        add_once(&mut intent.ours, Mark::Label);
        label_value.clone_into(&mut intent.label_value);
        ops.set("labels", keys::MAINTENANCE_LABEL, label_value);
    }
    if intent.phase != Phase::Scheduled && node.termination_taint().is_none() {
        add_once(&mut intent.ours, Mark::Taint);
        let taint = json!({"key": keys::TERMINATION_TAINT, "effect": keys::NO_SCHEDULE});
        if node.taints.is_empty() {
            ops.push("add", "/spec/taints", json!([taint]));
        } else {
            ops.push("add", "/spec/taints/-", taint);
        }
    }
    if node
        .labels
        .get(keys::MANAGED_LABEL)
        .is_none_or(|v| v != "true")
    {
        ops.set("labels", keys::MANAGED_LABEL, "true");
    }
    ops.set("annotations", keys::INTENT_ANNOTATION, &intent.to_json());
    (ops.finish(node), intent)
}

/// Rewrites the annotation alone: bookkeeping that puts no marks back.
#[must_use]
pub fn rewrite(node: &Node, intent: &Intent) -> NodeEdit {
    let mut ops = Ops::for_node(node);
    ops.set("annotations", keys::INTENT_ANNOTATION, &intent.to_json());
    ops.finish(node)
}

/// Takes off what is ours, and says what stays though we put it there.
///
/// The label goes only while its value is still the one that we wrote. When
/// another component has given it another, label and taint are its own now.
#[must_use]
pub fn unmark(node: &Node, intent: &Intent) -> (NodeEdit, Option<String>) {
    let mut ops = Ops::for_node(node);
    let label = node.labels.get(keys::MAINTENANCE_LABEL);
    let taken_over = intent.ours.contains(&Mark::Label)
        && label.is_some_and(|value| *value != intent.label_value);
    if intent.ours.contains(&Mark::Label) && label.is_some() && !taken_over {
        ops.remove("labels", keys::MAINTENANCE_LABEL);
    }
    if intent.ours.contains(&Mark::Taint)
        && !taken_over
        && let Some(index) = node.termination_taint()
    {
        ops.push("remove", &format!("/spec/taints/{index}"), Value::Null);
    }
    if node.labels.contains_key(keys::MANAGED_LABEL) {
        ops.remove("labels", keys::MANAGED_LABEL);
    }
    if node.annotations.contains_key(keys::INTENT_ANNOTATION) {
        ops.remove("annotations", keys::INTENT_ANNOTATION);
    }
    let stays = taken_over.then(|| {
        format!(
            "label {} has the value {:?} of another component: label and taint stay",
            keys::MAINTENANCE_LABEL,
            label.map_or("", String::as_str)
        )
    });
    (ops.finish(node), stays)
}

fn add_once(marks: &mut Vec<Mark>, mark: Mark) {
    if !marks.contains(&mark) {
        marks.push(mark);
    }
}

struct Ops {
    list: Vec<Value>,
    /// `labels` and `annotations`, when the object has none of them yet.
    missing: Vec<&'static str>,
}

impl Ops {
    fn for_node(node: &Node) -> Self {
        let mut missing = Vec::new();
        if node.labels.is_empty() {
            missing.push("labels");
        }
        if node.annotations.is_empty() {
            missing.push("annotations");
        }
        let mut ops = Self {
            list: Vec::new(),
            missing,
        };
        ops.push("test", "/metadata/uid", json!(node.uid));
        ops.push(
            "test",
            "/metadata/resourceVersion",
            json!(node.resource_version),
        );
        ops
    }

    fn push(&mut self, op: &str, path: &str, value: Value) {
        self.list.push(if op == "remove" {
            json!({"op": op, "path": path})
        } else {
            json!({"op": op, "path": path, "value": value})
        });
    }

    fn set(&mut self, field: &'static str, key: &str, value: &str) {
        if let Some(index) = self.missing.iter().position(|f| *f == field) {
            self.missing.remove(index);
            self.push("add", &format!("/metadata/{field}"), json!({}));
        }
        self.push(
            "add",
            &format!("/metadata/{field}/{}", escape(key)),
            json!(value),
        );
    }

    fn remove(&mut self, field: &str, key: &str) {
        self.push(
            "remove",
            &format!("/metadata/{field}/{}", escape(key)),
            Value::Null,
        );
    }

    fn finish(self, node: &Node) -> NodeEdit {
        NodeEdit {
            node: node.name.clone(),
            patch: Value::Array(self.list),
        }
    }
}

/// A key as a JSON pointer's token (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
