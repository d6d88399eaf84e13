//! The Node of a world, its VM and its slice.

use std::collections::BTreeMap;

use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::notice::Phase;
use drainwell_core::observed::{Answer, Instance, Look, Maintenance, Observed, Taint};
use drainwell_core::slice::{Marked, Slice};

use super::Letters;
use crate::node::{ID, bare, t0, termination_taint};

pub(super) fn read(from: &mut Letters<'_>, intent: &Intent) -> Observed {
    let mut node = bare();
    let scheduled = intent.phase == Phase::Scheduled;
    let label = from.one_of(&[if scheduled { "" } else { "true" }, "", "terminating"]);
    let labels = [
        (keys::MAINTENANCE_LABEL, label),
        (keys::MANAGED_LABEL, "true"),
    ];
    let set = labels.iter().filter(|(_, value)| !value.is_empty());
    node.labels
        .extend(set.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let other = Taint {
        key: "example.com/wet".to_owned(),
        ..termination_taint()
    };
    node.taints = from.one_of(&[
        if scheduled {
            vec![]
        } else {
            vec![termination_taint()]
        },
        vec![],
        vec![other.clone()],
        vec![other.clone(), termination_taint(), other],
    ]);
    node.ready = !from.yes();
    if from.yes() {
        node.annotations
            .insert(keys::SKIP_ANNOTATION.to_owned(), "true".to_owned());
    }
    node.boot_id = from.text(&["boot-1", "boot-2", ""]);
    if let Some(id) = from.text(&["", "11", "0", "-"]) {
        node.annotations
            .insert(keys::INSTANCE_ID_ANNOTATION.to_owned(), id);
    }
    node.annotations
        .insert(keys::INTENT_ANNOTATION.to_owned(), intent.to_json());
    let look = read_look(from);
    let slice = Slice {
        pool: "tides".to_owned(),
        hosts: 4,
    };
    let marked = from.one_of(&[None, Some(1), Some(4), Some(u64::MAX)]);
    let first = from.time().unwrap_or(t0());
    Observed {
        node,
        pods: vec![],
        look,
        attempts: BTreeMap::new(),
        slice: marked.map(|count| (slice, Marked { count, first })),
        broken_gangs: from.text(&["", "training/gang/g"]).into_iter().collect(),
    }
}

fn read_look(from: &mut Letters<'_>) -> Look {
    let kind = from.one_of(&["never asked", "instance", "no instance", "off"]);
    let at = from.time().unwrap_or(t0());
    let tried_at = from.time().unwrap_or(at);
    let maintenance = Maintenance {
        ongoing: !from.yes(),
        start: from.time(),
        ..Maintenance::default()
    };
    let instance = Instance {
        maintenance: (!from.yes()).then_some(maintenance),
        running: !from.yes(),
        id: from.one_of(&[ID, 11]),
        terminates: true,
        ..Instance::default()
    };
    let answer = match kind {
        "instance" => Some((at, Answer::Instance(instance))),
        "no instance" => Some((at, Answer::NoInstance)),
        _ => None,
    };
    Look {
        tried_at: answer.is_some().then_some(tried_at),
        answer,
        off: kind == "off",
    }
}
