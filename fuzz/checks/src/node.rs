//! A Node's JSON, and what a patch makes of it: by a library that knows
//! nothing of the code that made the patch.

use std::collections::BTreeMap;

use drainwell_core::edit::NodeEdit;
use drainwell_core::keys;
use drainwell_core::observed::{Node, Taint};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The id of the VM behind [`bare`].
pub(crate) const ID: u64 = 4_087_551_932_006_118;

/// The moment that all is relative to.
pub(crate) fn t0() -> Timestamp {
    Timestamp::constant(1_790_000_000, 0)
}

/// A Ready GPU node without marks.
pub(crate) fn bare() -> Node {
    Node {
        name: "gke-sea-a3-7f31".to_owned(),
        uid: "5b0f3c1e".to_owned(),
        resource_version: "8812".to_owned(),
        labels: [(keys::GPU_LABEL.to_owned(), "nvidia-h200-141gb".to_owned())].into(),
        annotations: [(keys::INSTANCE_ID_ANNOTATION.to_owned(), ID.to_string())].into(),
        ready: true,
        boot_id: Some("boot-1".to_owned()),
        ..Node::default()
    }
}

/// The taint that this service writes.
pub(crate) fn termination_taint() -> Taint {
    Taint {
        key: keys::TERMINATION_TAINT.to_owned(),
        value: String::new(),
        effect: keys::NO_SCHEDULE.to_owned(),
    }
}

/// `node` as it is after `edit`.
pub(crate) fn patched(node: &Node, edit: &NodeEdit) -> Node {
    let mut object = to_json(node);
    let patch = serde_json::from_value::<json_patch::Patch>(edit.patch.clone());
    let patch = patch.expect("an edit is an RFC 6902 patch");
    json_patch::patch(&mut object, &patch).expect("an edit fits the node that it was made for");
    let taints = object["spec"]["taints"].as_array();
    Node {
        labels: texts(&object["metadata"]["labels"]),
        annotations: texts(&object["metadata"]["annotations"]),
        taints: taints.map_or(vec![], |list| list.iter().map(taint).collect()),
        ..node.clone()
    }
}

/// Like the API, without the lists and maps that are empty.
fn to_json(node: &Node) -> Value {
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), json!(node.uid));
    metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
    for (field, map) in [("labels", &node.labels), ("annotations", &node.annotations)] {
        if !map.is_empty() {
            metadata.insert(field.to_owned(), json!(map));
        }
    }
    let taints = node
        .taints
        .iter()
        .map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect}));
    let taints: Vec<Value> = taints.collect();
    let spec = if taints.is_empty() {
        json!({})
    } else {
        json!({ "taints": taints })
    };
    json!({"metadata": metadata, "spec": spec})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let map = value.as_object().into_iter().flatten();
    map.map(|(key, value)| (key.clone(), text(value))).collect()
}

fn taint(value: &Value) -> Taint {
    Taint {
        key: text(&value["key"]),
        value: text(&value["value"]),
        effect: text(&value["effect"]),
    }
}
