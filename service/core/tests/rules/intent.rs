//! The annotation's codec, and the one PATCH that writes it with the marks.

use drainwell_core::edit;
use drainwell_core::intent::{Intent, Mark, Stored};
use drainwell_core::keys;
use drainwell_core::observed::{Node, Taint};

use super::worlds::{intent, marked, node, patched};

fn annotated(text: &str) -> Node {
    let mut node = node();
    node.annotations
        .insert(keys::INTENT_ANNOTATION.to_owned(), text.to_owned());
    node
}

#[test]
fn an_intent_reads_back_with_the_fields_of_other_releases() {
    let mut json: serde_json::Value = serde_json::from_str(&intent().to_json()).unwrap();
    json["v"] = 7.into();
    json["invented_later"] = serde_json::json!({"a": [1, 2]});
    let Stored::Intent(read) = Stored::on(&annotated(&json.to_string())) else {
        panic!("not read")
    };
    assert_eq!((read.v, &read.key), (7, &intent().key));
    let again: serde_json::Value = serde_json::from_str(&read.to_json()).unwrap();
    assert_eq!(again, json);
}

#[test]
fn what_is_no_intent_is_unreadable() {
    for text in [
        "",
        "x",
        "{}",
        "[]",
        r#"{"v":1,"key":"k","phase":"unheard_of"}"#,
        "null",
    ] {
        assert!(
            matches!(Stored::on(&annotated(text)), Stored::Unreadable(_)),
            "{text}"
        );
    }
    assert_eq!(Stored::on(&node()), Stored::Nothing);
}

#[test]
fn marks_go_on_and_come_off_without_a_trace() {
    let (patch, written) = edit::write(
        &node(),
        &Intent {
            ours: vec![],
            ..intent()
        },
        "true",
    );
    assert_eq!(written.ours, [Mark::Label, Mark::Taint]);
    let on = patched(&node(), &patch);
    assert_eq!(on.labels[keys::MAINTENANCE_LABEL], "true");
    assert_eq!(on.termination_taint(), Some(0));
    assert_eq!(Stored::on(&on), Stored::Intent(Box::new(written.clone())));
    let off = patched(&on, &edit::unmark(&on, &written).0);
    assert_eq!(
        Node {
            resource_version: node().resource_version,
            ..off
        },
        node()
    );
}

#[test]
fn a_node_without_labels_and_annotations_can_be_marked() {
    let bare = Node {
        labels: [].into(),
        annotations: [].into(),
        ..node()
    };
    let on = patched(&bare, &edit::write(&bare, &intent(), "true").0);
    assert_eq!(on.labels[keys::MANAGED_LABEL], "true");
    assert!(on.annotations.contains_key(keys::INTENT_ANNOTATION));
}

#[test]
fn taints_and_cordons_of_others_stay() {
    let taint = |key: &str, effect: &str| Taint {
        key: key.to_owned(),
        value: "v".to_owned(),
        effect: effect.to_owned(),
    };
    let others = vec![
        taint("node.kubernetes.io/unschedulable", "NoSchedule"),
        taint(keys::TERMINATION_TAINT, "PreferNoSchedule"),
    ];
    let before = Node {
        taints: others.clone(),
        ..node()
    };
    let (patch, written) = edit::write(
        &before,
        &Intent {
            ours: vec![],
            ..intent()
        },
        "true",
    );
    let on = patched(&before, &patch);
    assert_eq!(on.taints.len(), 3);
    assert_eq!(patched(&on, &edit::unmark(&on, &written).0).taints, others);
}

#[test]
fn marks_that_others_made_first_are_not_ours() {
    let mut before = marked(&intent());
    before.annotations.remove(keys::INTENT_ANNOTATION);
    let (patch, written) = edit::write(
        &before,
        &Intent {
            ours: vec![],
            ..intent()
        },
        "true",
    );
    assert_eq!(written.ours, []);
    let on = patched(&before, &patch);
    let off = patched(&on, &edit::unmark(&on, &written).0);
    assert_eq!(off.labels[keys::MAINTENANCE_LABEL], "true");
    assert!(off.termination_taint().is_some());
}

#[test]
fn a_label_with_another_value_belongs_to_another_and_so_does_the_taint() {
    let mut on = marked(&intent());
    on.labels
        .insert(keys::MAINTENANCE_LABEL.to_owned(), "terminating".to_owned());
    let (patch, stays) = edit::unmark(&on, &intent());
    assert!(stays.unwrap().contains("terminating"));
    let off = patched(&on, &patch);
    assert_eq!(off.labels[keys::MAINTENANCE_LABEL], "terminating");
    assert!(off.termination_taint().is_some());
    assert!(!off.labels.contains_key(keys::MANAGED_LABEL));
}

#[test]
fn a_label_that_another_took_away_does_not_hold_the_taint() {
    let mut on = marked(&intent());
    on.labels.remove(keys::MAINTENANCE_LABEL);
    let (patch, stays) = edit::unmark(&on, &intent());
    assert_eq!((stays, patched(&on, &patch).taints), (None, vec![]));
}
