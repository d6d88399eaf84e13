//! Entries with fields that are odd, missing or split off.

use drainwell_core::notice::{Reading, Received, read};
use serde_json::{Value, json};

use super::notice::{entry, noticed, reading, received, with, without};
use super::worlds::{ID, at};

#[test]
fn the_age_is_the_entrys_own_else_the_messages_else_the_logs() {
    let age = |entry: &Value, published| {
        let received = Received {
            published,
            ..received()
        };
        let Ok(Reading::Notice(notice)) = read(entry, &received) else {
            panic!("no notice in {entry}")
        };
        (notice.at, notice.at_known, notice.undated)
    };
    let mut entry = with("/receiveTimestamp", json!("2026-03-01T10:00:02Z"));
    assert!(age(&entry, None).1);
    entry["timestamp"] = json!("soon");
    assert_eq!(age(&entry, Some(at(4))), (at(4), false, false));
    assert_eq!(age(&entry, None), (at(2), false, false));
    entry["receiveTimestamp"] = json!("9999-01-01T00:00:00Z");
    assert_eq!(age(&entry, Some(at(4))), (at(4), false, false));
    assert_eq!(age(&entry, None), (at(9), false, true));
}

#[test]
fn null_is_the_same_as_a_field_that_is_not_there() {
    for pointer in [
        "/protoPayload",
        "/protoPayload/methodName",
        "/protoPayload/serviceName",
        "/protoPayload/resourceName",
        "/protoPayload/metadata",
        "/protoPayload/metadata/windowEndTime",
        "/protoPayload/status",
        "/resource",
        "/resource/labels/instance_id",
        "/timestamp",
    ] {
        let null = reading(&with(pointer, Value::Null));
        assert_eq!(null, reading(&without(pointer)), "{pointer}");
        if let Ok(Reading::Notice(notice)) = null {
            assert_eq!(notice.doubts, Vec::<String>::new(), "{pointer}");
        }
    }
}

#[test]
fn a_part_of_a_split_entry_is_doubted_and_never_taken_for_a_whole() {
    let part = |mut entry: Value| {
        entry["split"] = json!({"uid": "u", "index": 1, "totalSplits": 3});
        reading(&entry)
    };
    let Ok(Reading::Notice(notice)) = part(entry()) else {
        panic!("what it has is read")
    };
    assert_eq!(notice.vm.id, Some(ID));
    assert!(notice.doubts[0].contains("part 2 of 3"), "{notice:?}");
    // A whole entry without these is another's; of a part nobody knows.
    for pointer in [
        "/protoPayload",
        "/protoPayload/methodName",
        "/protoPayload/resourceName",
    ] {
        let mut lacking = without(pointer);
        lacking.as_object_mut().unwrap().remove("resource");
        let fault = part(lacking).expect_err(pointer);
        assert_eq!(fault.place, pointer[1..].replace('/', "."));
        assert!(fault.problem.contains("part 2 of 3"), "{fault}");
    }
    for odd in [
        json!(7),
        json!({}),
        json!({"index": -1, "totalSplits": "x"}),
        json!({"index": 9, "totalSplits": 3}),
    ] {
        let doubts = noticed(&with("/split", odd.clone())).doubts;
        assert!(doubts[0].contains("split entry"), "{odd}: {doubts:?}");
    }
    // Another's entry stays so, and the only part of an entry is the whole.
    let mut other = with(
        "/protoPayload/serviceName",
        json!("bigquery.googleapis.com"),
    );
    other["protoPayload"]
        .as_object_mut()
        .unwrap()
        .remove("methodName");
    assert_eq!(part(other), Ok(Reading::NotMaintenance));
    let whole = noticed(&with("/split", json!({"uid": "u", "totalSplits": 1})));
    assert_eq!(whole.doubts, Vec::<String>::new());
}

#[test]
fn what_is_not_used_is_named_with_its_place_and_never_repeated() {
    let secret = "hunter2\u{7}\n\u{2028}".repeat(1000);
    for (pointer, place) in [
        ("/timestamp", "entry.timestamp"),
        ("/resource", "resource"),
        ("/resource/labels", "resource.labels"),
        (
            "/resource/labels/instance_id",
            "resource.labels.instance_id",
        ),
        ("/protoPayload/status", "protoPayload.status"),
        ("/protoPayload/metadata", "protoPayload.metadata"),
        (
            "/protoPayload/metadata/windowStartTime",
            "protoPayload.metadata.windowStartTime",
        ),
        (
            "/protoPayload/metadata/windowEndTime",
            "protoPayload.metadata.windowEndTime",
        ),
        (
            "/protoPayload/metadata/maintenanceStatus",
            "protoPayload.metadata.maintenanceStatus",
        ),
        (
            "/protoPayload/metadata/maintenanceReasons",
            "protoPayload.metadata.maintenanceReasons",
        ),
    ] {
        let doubts = noticed(&with(pointer, json!(secret))).doubts;
        let starts = format!("{place}: ");
        assert!(doubts[0].starts_with(&starts), "{pointer}: {doubts:?}");
        assert!(doubts.len() == 1 && doubts[0].len() < 120, "{doubts:?}");
        assert!(!doubts[0].contains("hunter2"), "{doubts:?}");
    }
    let backwards = with(
        "/protoPayload/metadata/windowEndTime",
        json!("2026-03-01T09:00:00Z"),
    );
    let notice = noticed(&backwards);
    assert_eq!((notice.window_end, notice.doubts.len()), (None, 1));
}

#[test]
fn ids_are_whole_numbers_above_zero() {
    let id = |v: Value| {
        let notice = noticed(&with("/resource/labels/instance_id", v));
        (notice.vm.id, notice.doubts.len())
    };
    assert_eq!(id(json!(u64::MAX)), (Some(u64::MAX), 0));
    assert_eq!(id(json!(u64::MAX.to_string())), (Some(u64::MAX), 0));
    for odd in [
        json!("18446744073709551616"),
        json!(1.5),
        json!(1e300),
        json!(-1),
        json!("-1"),
        json!(0),
        json!("0"),
        json!(""),
        json!("0x7"),
        json!(true),
    ] {
        assert_eq!(id(odd.clone()), (None, 1), "{odd}");
    }
}
