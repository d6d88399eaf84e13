//! What is read from log entries, good and bad.

use drainwell_core::notice::{Malformed, Notice, Phase, Reading, Received, Source, read};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::worlds::{ID, at, t0};

/// An entry of Compute's system event log, ongoing unless changed.
pub(super) fn entry() -> Value {
    json!({
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "status": {"message": "Maintenance window is ongoing for this instance."},
            "serviceName": "compute.googleapis.com",
            "methodName": "compute.instances.upcomingMaintenance",
            "resourceName": "projects/acme-ml/zones/us-east5-a/instances/gke-train-a3-0001",
            "metadata": {
                "type": "SCHEDULED",
                "windowStartTime": "2026-03-01T10:00:00Z",
                "windowEndTime": "2026-03-01T14:00:00Z",
                "maintenanceStatus": "ONGOING",
                "maintenanceReasons": ["PLANNED_UPDATE"],
            },
        },
        "insertId": "-k3v9e2",
        "resource": {
            "type": "gce_instance",
            "labels": {
                "instance_id": ID.to_string(), "project_id": "acme-ml", "zone": "us-east5-a"
            },
        },
        "timestamp": "2026-03-01T10:00:00.251846Z",
        "severity": "INFO",
        "logName": "projects/acme-ml/logs/cloudaudit.googleapis.com%2Fsystem_event",
    })
}

/// The same with the value at a JSON pointer set.
pub(super) fn with(pointer: &str, value: Value) -> Value {
    let mut entry = entry();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    entry.pointer_mut(parent).unwrap()[key] = value;
    entry
}

pub(super) fn without(pointer: &str) -> Value {
    let mut entry = entry();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    entry
        .pointer_mut(parent)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove(key);
    entry
}

pub(super) fn received() -> Received {
    Received {
        source: Source::Pubsub,
        published: Some(at(4)),
        now: at(9),
    }
}

pub(super) fn reading(entry: &Value) -> Result<Reading, Malformed> {
    read(entry, &received())
}

pub(super) fn noticed(entry: &Value) -> Notice {
    match reading(entry) {
        Ok(Reading::Notice(notice)) => *notice,
        other => panic!("no notice but {other:?} in {entry}"),
    }
}

fn place(entry: &Value) -> String {
    reading(entry).expect_err(&entry.to_string()).place
}

#[test]
fn a_whole_entry_is_read() {
    let notice = noticed(&entry());
    assert_eq!(
        notice.vm.to_string(),
        "acme-ml/us-east5-a/gke-train-a3-0001"
    );
    assert_eq!((notice.vm.id, notice.phase), (Some(ID), Phase::Ongoing));
    assert_eq!(
        notice.at,
        "2026-03-01T10:00:00.251846Z".parse::<Timestamp>().unwrap()
    );
    assert!(notice.at_known && !notice.stopping);
    assert_eq!(
        (notice.window_start, notice.window_end),
        (Some(t0()), Some(at(14_400)))
    );
    assert_eq!(
        (notice.reasons, notice.doubts),
        (vec!["PLANNED_UPDATE".to_owned()], vec![])
    );
}

#[test]
fn phases_are_told_by_status_and_by_message() {
    let phase = |status: Value, message: &str| {
        let mut entry = with("/protoPayload/status/message", json!(message));
        entry["protoPayload"]["metadata"]["maintenanceStatus"] = status;
        noticed(&entry).phase
    };
    assert_eq!(
        phase(json!("PENDING"), "Maintenance is scheduled"),
        Phase::Scheduled
    );
    assert_eq!(phase(Value::Null, ""), Phase::Scheduled);
    assert_eq!(
        phase(Value::Null, "the window is ONGOING now"),
        Phase::Ongoing
    );
    assert_eq!(phase(json!("ONGOING"), ""), Phase::Ongoing);
    assert_eq!(
        phase(json!("ONGOING"), "will be completed by noon"),
        Phase::Ongoing
    );
    assert_eq!(phase(json!("COMPLETE"), ""), Phase::Completed);
    assert_eq!(phase(json!("A_NEW_ONE"), "scheduled"), Phase::Scheduled);
    let mut done = with(
        "/protoPayload/status/message",
        json!("window has completed"),
    );
    done["protoPayload"]
        .as_object_mut()
        .unwrap()
        .remove("metadata");
    assert_eq!(noticed(&done).phase, Phase::Completed);
}

#[test]
fn other_entries_are_told_apart() {
    let method = |name: &str| reading(&with("/protoPayload/methodName", json!(name))).unwrap();
    for name in [
        "compute.instances.terminateOnHostMaintenance",
        "compute.instance.terminateOnHostMaintenance",
    ] {
        assert!(
            matches!(method(name), Reading::Notice(n) if n.stopping && n.phase == Phase::Ongoing)
        );
    }
    assert!(matches!(
        method("compute.instances.upcomingInfraMaintenance"),
        Reading::Notice(_)
    ));
    assert_eq!(
        method("compute.instances.migrateOnHostMaintenance"),
        Reading::LiveMigration
    );
    let restart = method("compute.instances.automaticRestart");
    assert!(matches!(restart, Reading::WakeUp(vm) if vm.id == Some(ID)));
    for name in [
        "compute.instances.hostError",
        "compute.instances.preempted",
        "",
        "v1.compute.instances.insert",
    ] {
        assert_eq!(method(name), Reading::NotMaintenance, "{name}");
    }
    let other = with(
        "/protoPayload/serviceName",
        json!("container.googleapis.com"),
    );
    assert_eq!(reading(&other), Ok(Reading::NotMaintenance));
    assert_eq!(
        reading(&without("/protoPayload")),
        Ok(Reading::NotMaintenance)
    );
    assert_eq!(
        reading(&without("/protoPayload/methodName")),
        Ok(Reading::NotMaintenance)
    );
}

#[test]
fn a_sample_that_nests_its_envelope_in_the_payload_is_read() {
    let mut payload = entry()["protoPayload"].take();
    payload["logName"] = json!("projects/acme-ml/logs/cloudaudit.googleapis.com%2Fsystem_event");
    payload["receiveTimestamp"] = json!("2026-03-01T10:00:01Z");
    let notice = noticed(&json!({"protoPayload": payload}));
    assert_eq!(notice.vm.id, None);
    assert_eq!((notice.at, notice.at_known), (at(4), false));
}

#[test]
fn without_a_usable_vm_it_is_malformed() {
    let path = "protoPayload.resourceName";
    for name in [
        json!("projects/p/zones/z/instances/a/b"),
        json!("projects/p/zones/z/instances/../x"),
        json!("projects/p/zones/z/instances/"),
        json!("projects/p/zones/z/instances/0"),
        json!("projects/p/zones/z/instances/Upper"),
        json!("projects/p/zones/z/instances/a?b=c"),
        json!("projects/P Q/zones/z/instances/a"),
        json!("projects//zones/z/instances/a"),
        json!("projects/p/zones/z%2f/instances/a"),
        json!("a"),
        json!(""),
        json!(5),
        json!(["x"]),
        json!({}),
        json!(true),
        json!(format!("projects/p/zones/z/instances/{}", "a".repeat(64))),
    ] {
        assert_eq!(
            place(&with("/protoPayload/resourceName", name.clone())),
            path,
            "{name}"
        );
    }
    let mut nameless = without("/protoPayload/resourceName");
    assert_eq!(noticed(&nameless).vm.key(), ID.to_string());
    nameless["resource"]["labels"]["zone"] = json!(5);
    assert_eq!(place(&nameless), path);
    let numeric = json!("projects/acme-ml/zones/us-east5-a/instances/99");
    let vm = noticed(&with("/protoPayload/resourceName", numeric)).vm;
    assert_eq!((vm.name, vm.id), (None, Some(ID)));
}

#[test]
fn what_is_no_entry_is_malformed() {
    for no_entry in [
        json!({}),
        json!([]),
        json!("x"),
        json!(1),
        Value::Null,
        json!({"a": 1}),
    ] {
        assert_eq!(place(&no_entry), "entry", "{no_entry}");
    }
    assert_eq!(place(&with("/protoPayload", json!("x"))), "protoPayload");
    assert_eq!(
        place(&with("/protoPayload/methodName", json!(7))),
        "protoPayload.methodName"
    );
}

#[test]
fn a_bad_value_in_a_field_that_is_not_needed_is_left_unset() {
    let wrong = [
        json!(7),
        json!("soon"),
        json!([]),
        json!({}),
        json!(true),
        json!("2026-13-45T99:00:00Z"),
    ];
    for value in wrong {
        for field in [
            "windowStartTime",
            "windowEndTime",
            "maintenanceStatus",
            "maintenanceReasons",
        ] {
            let notice = noticed(&with(
                &format!("/protoPayload/metadata/{field}"),
                value.clone(),
            ));
            assert_eq!(notice.vm.id, Some(ID), "{field} {value}");
        }
        let notice = noticed(&with("/timestamp", value.clone()));
        assert_eq!(
            (notice.at, notice.at_known, notice.doubts.len()),
            (at(4), false, 1),
            "{value}"
        );
        for pointer in [
            "/protoPayload/metadata",
            "/protoPayload/status",
            "/resource",
            "/severity",
        ] {
            assert!(
                noticed(&with(pointer, value.clone())).at_known,
                "{pointer} {value}"
            );
        }
        let id = noticed(&with("/resource/labels/instance_id", json!(ID)))
            .vm
            .id;
        assert_eq!(id, Some(ID), "a number is understood as well");
    }
}

#[test]
fn a_label_that_says_nothing_does_not_hide_the_number_in_the_path() {
    let mut entry = with(
        "/protoPayload/resourceName",
        json!(format!("projects/acme-ml/zones/us-east5-a/instances/{ID}")),
    );
    for id in [json!("0"), json!(0), json!("unknown"), json!(null)] {
        entry["resource"]["labels"]["instance_id"] = id;
        assert_eq!(noticed(&entry).vm.key(), ID.to_string());
    }
}

#[test]
fn incredible_times_are_not_believed() {
    for time in [
        "9999-12-31T23:59:59Z",
        "1969-12-31T23:59:59Z",
        "2026-03-01T10:06:00Z",
    ] {
        let notice = noticed(&with("/timestamp", json!(time)));
        assert_eq!((notice.at, notice.at_known), (at(4), false), "{time}");
    }
    for published in [Timestamp::MAX, Timestamp::MIN, Timestamp::UNIX_EPOCH] {
        let wrong = Received {
            published: Some(published),
            ..received()
        };
        let Ok(Reading::Notice(notice)) = read(&without("/timestamp"), &wrong) else {
            panic!("no notice")
        };
        assert_eq!((notice.at, notice.at_known), (at(9), false));
        assert!(notice.undated);
    }
}

#[test]
fn reasons_are_bounded_and_clean() {
    let many: Vec<String> = (0..100).map(|n| format!("REASON_{n}")).collect();
    let reasons = |v: Value| noticed(&with("/protoPayload/metadata/maintenanceReasons", v)).reasons;
    assert_eq!(reasons(json!(many)).len(), 18);
    assert_eq!(
        reasons(json!(["A", "A", 5, "b", "", "X\n", "FAILURE_GPU"])),
        ["A", "FAILURE_GPU"]
    );
}
