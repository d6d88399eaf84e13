//! Node objects, and patches to them: applied for real, to the JSON that an
//! API server would apply them to.

use std::collections::BTreeMap;

use drainwell_app::driver::ports::CallError;
use drainwell_core::edit::NodeEdit;
use drainwell_core::intent::Stored;
use drainwell_core::keys;
use drainwell_core::observed::{Node, Taint};
use drainwell_core::time::shift;
use json_patch::{Patch, PatchErrorKind};
use serde_json::{Map, Value, json};

use super::hosts::Machine;
use super::state::State;
use crate::journal::NodeChange;
use crate::spec::NodeSpec;

/// Taint of a Node whose kubelet is silent.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A Node object.
pub(super) struct NodeState {
    pub(super) node: Node,
    /// How many accelerators it has.
    pub(super) accelerators: u64,
    /// The resourceVersion at which its pods last changed.
    pub(super) pods_changed: u64,
    /// Whether the journal's last word is that it is marked.
    marked: bool,
}

impl State {
    pub(super) fn add_node(&mut self, spec: NodeSpec) {
        let machine = Machine::new(self, &spec);
        let NodeSpec {
            name,
            zone,
            instance_id,
            labels,
            mut annotations,
            taints,
            ..
        } = spec;
        annotations.insert(
            keys::INSTANCE_ID_ANNOTATION.to_owned(),
            instance_id.to_string(),
        );
        let revision = self.bump();
        let capacity = spec.accelerators.into_iter();
        let capacity: BTreeMap<String, u64> =
            capacity.map(|(resource, n)| (resource, n.into())).collect();
        let accelerators = capacity.values().sum();
        let earlier = self.earlier_nodes(&name);
        let boot = format!("boot {name} {}", earlier * 1000 + 1);
        let node = Node {
            uid: self.seed.uuid(&format!("node {name} {earlier}")),
            resource_version: revision.to_string(),
            provider_id: Some(format!("gce://{}/{zone}/{name}", self.project)),
            labels,
            annotations,
            taints,
            ready: true,
            ready_since: Some(shift(self.now, -86_400)),
            boot_id: Some(self.seed.uuid(&boot)),
            capacity,
            name: name.clone(),
        };
        self.machines.insert(name.clone(), machine);
        self.nodes.insert(
            name,
            NodeState {
                node,
                accelerators,
                pods_changed: revision,
                marked: false,
            },
        );
    }

    /// PATCH of a Node. A failed `test` changes nothing.
    pub(super) fn edit(&mut self, edit: &NodeEdit) -> Result<Node, CallError> {
        let refused = |why: String| CallError::Refused { why };
        let Some(state) = self.nodes.get(&edit.node) else {
            return Err(refused(format!("nodes {:?} not found", edit.node)));
        };
        let before = &state.node;
        let patch: Patch = serde_json::from_value(edit.patch.clone())
            .map_err(|error| refused(format!("no JSON patch: {error}")))?;
        let old = render(before);
        let mut new = old.clone();
        json_patch::patch(&mut new, &patch).map_err(|error| match error.kind {
            PatchErrorKind::TestFailed => CallError::Stale,
            PatchErrorKind::InvalidFromPointer
            | PatchErrorKind::InvalidPointer
            | PatchErrorKind::CannotMoveInsideItself => refused(error.to_string()),
            _ => refused(format!("the patch can't be applied: {error}")),
        })?;
        if new == old {
            return Ok(before.clone());
        }
        let mut after = read_back(before, &new).map_err(refused)?;
        after.resource_version = self.bump().to_string();
        if let Some(state) = self.nodes.get_mut(&edit.node) {
            state.node = after.clone();
        }
        self.note_marks(&edit.node);
        Ok(after)
    }

    /// How many nodes of this name there were before.
    pub(super) fn earlier_nodes(&self, name: &str) -> u32 {
        self.removed.get(name).copied().unwrap_or_default()
    }

    pub(super) fn note_marks(&mut self, name: &str) {
        let Some(state) = self.nodes.get_mut(name) else {
            return;
        };
        let label = state.node.labels.contains_key(keys::MAINTENANCE_LABEL);
        let taint = state.node.termination_taint().is_some();
        let change = if label && taint && !state.marked {
            let deadline = match Stored::on(&state.node) {
                Stored::Intent(intent) => Some(intent.deadline),
                Stored::Nothing | Stored::Unreadable(_) => None,
            };
            NodeChange::Marked { deadline }
        } else if !label && !taint && state.marked {
            NodeChange::Unmarked
        } else {
            return;
        };
        state.marked = !state.marked;
        self.note_node(name, change);
    }

    /// Condition Ready, and the taint that the cluster keeps in step with it.
    pub(super) fn set_ready(&mut self, name: &str, ready: bool) {
        let (now, revision) = (self.now, self.bump());
        let Some(state) = self.nodes.get_mut(name) else {
            return;
        };
        let node = &mut state.node;
        node.resource_version = revision.to_string();
        node.taints.retain(|t| t.key != UNREACHABLE);
        if !ready {
            node.taints.push(Taint {
                key: UNREACHABLE.to_owned(),
                value: String::new(),
                effect: keys::NO_SCHEDULE.to_owned(),
            });
        }
        if node.ready != ready {
            node.ready = ready;
            node.ready_since = Some(now);
            self.note_node(
                name,
                if ready {
                    NodeChange::Ready
                } else {
                    NodeChange::NotReady
                },
            );
        }
    }
}

/// The parts of a Node that a patch may speak of. What is empty is left out,
/// as an API server does.
fn render(node: &Node) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(node.name));
    metadata.insert("uid".to_owned(), json!(node.uid));
    metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
    if !node.labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(node.labels));
    }
    if !node.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(node.annotations));
    }
    let mut spec = Map::new();
    spec.insert("providerID".to_owned(), json!(node.provider_id));
    if !node.taints.is_empty() {
        spec.insert(
            "taints".to_owned(),
            node.taints.iter().map(render_taint).collect(),
        );
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
}

fn render_taint(taint: &Taint) -> Value {
    let mut object = Map::new();
    object.insert("key".to_owned(), json!(taint.key));
    if !taint.value.is_empty() {
        object.insert("value".to_owned(), json!(taint.value));
    }
    object.insert("effect".to_owned(), json!(taint.effect));
    Value::Object(object)
}

/// The Node that a patched document describes; says what may not be changed.
fn read_back(before: &Node, new: &Value) -> Result<Node, String> {
    for pointer in [
        "/metadata/name",
        "/metadata/uid",
        "/metadata/resourceVersion",
    ] {
        if new.pointer(pointer) != render(before).pointer(pointer) {
            return Err(format!("{pointer}: field is immutable"));
        }
    }
    let taints = match new.pointer("/spec/taints") {
        None | Some(Value::Null) => vec![],
        Some(Value::Array(list)) => list.iter().map(read_taint).collect::<Result<_, _>>()?,
        Some(_) => return Err("/spec/taints: not a list".to_owned()),
    };
    Ok(Node {
        labels: read_strings(new, "/metadata/labels")?,
        annotations: read_strings(new, "/metadata/annotations")?,
        taints,
        ..before.clone()
    })
}

fn read_taint(value: &Value) -> Result<Taint, String> {
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let taint = Taint {
        key: text("key"),
        value: text("value"),
        effect: text("effect"),
    };
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str());
    if taint.key.is_empty() || !known {
        return Err(format!("/spec/taints: invalid taint {value}"));
    }
    Ok(taint)
}

fn read_strings(new: &Value, pointer: &str) -> Result<BTreeMap<String, String>, String> {
    let Some(value) = new.pointer(pointer) else {
        return Ok(BTreeMap::new());
    };
    serde_json::from_value(value.clone()).map_err(|error| format!("{pointer}: {error}"))
}
