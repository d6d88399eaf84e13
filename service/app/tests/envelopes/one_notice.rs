//! The same entry gives the same notice, in whatever it comes.

use drainwell_app::ingress::envelope::Letter;
use drainwell_core::notice::{Phase, Reading, Source};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::forms::{self, AT, PUBLISHED, Sent, entry, time};

fn source(reading: &mut Reading) -> Option<Source> {
    match reading {
        Reading::Notice(notice) => Some(std::mem::replace(&mut notice.source, Source::Manual)),
        Reading::WakeUp(_) | Reading::LiveMigration | Reading::NotMaintenance => None,
    }
}

/// What a form makes of an entry, apart from the way by which it came. `Err`
/// has the fault as text.
fn read(sent: &Sent, by: Source) -> Result<Reading, String> {
    let Letter {
        mut reading,
        source: from,
        doubts,
        ..
    } = sent.read().map_err(|fault| fault.to_string())?;
    assert_eq!(doubts, Vec::<String>::new(), "the envelope itself is sound");
    assert_eq!(from, by);
    if let Some(source) = source(&mut reading) {
        assert_eq!(source, by);
    }
    Ok(reading)
}

#[test]
fn every_form_of_an_entry_gives_the_whole_notice() {
    for (form, source, sent) in forms::all(&entry()) {
        let notice = sent.notice();
        let vm = notice.vm.to_string();
        assert_eq!(vm, "helios-ml/europe-west4-b/gke-burst-a3-4410", "{form}");
        assert_eq!(notice.vm.id, Some(5_530_172_964_408_819_273), "{form}");
        let read = (notice.phase, notice.at, notice.at_known, notice.source);
        assert_eq!(read, (Phase::Ongoing, time(AT), true, source), "{form}");
        assert_eq!(notice.reasons, ["PLANNED_UPDATE"], "{form}");
        assert_eq!(notice.doubts, Vec::<String>::new(), "{form}");
        let id = sent.read().unwrap().id.unwrap_or_default();
        assert!(
            id.contains("1357924680") || id.contains("x-4tz1ve9"),
            "{form}: {id}"
        );
    }
}

#[test]
fn every_form_tells_when_an_undated_entry_was_published() {
    let mut undated = entry();
    undated.as_object_mut().unwrap().remove("timestamp");
    for (form, _, sent) in forms::all(&undated) {
        let notice = sent.notice();
        assert_eq!(
            (notice.at, notice.at_known),
            (time(PUBLISHED), false),
            "{form}"
        );
        assert!(!notice.undated, "{form}");
    }
    // Without metadata, Logging's own time is left; without that, nothing.
    let received = Sent::json(&undated).notice();
    assert_eq!(received.at, time("2026-11-03T08:15:30.801Z"));
    assert!(!received.undated && !received.at_known);
    undated.as_object_mut().unwrap().remove("receiveTimestamp");
    assert!(Sent::json(&undated).notice().undated);
}

/// Pointers to the fields of an entry that are read, and some that are not.
const FIELDS: &[&str] = &[
    "/protoPayload",
    "/protoPayload/@type",
    "/protoPayload/methodName",
    "/protoPayload/serviceName",
    "/protoPayload/resourceName",
    "/protoPayload/status",
    "/protoPayload/status/message",
    "/protoPayload/metadata",
    "/protoPayload/metadata/maintenanceStatus",
    "/protoPayload/metadata/maintenanceReasons",
    "/protoPayload/metadata/windowStartTime",
    "/protoPayload/metadata/windowEndTime",
    "/resource",
    "/resource/labels",
    "/resource/labels/instance_id",
    "/timestamp",
    "/receiveTimestamp",
    "/insertId",
    "/split",
    "/labels",
];

fn values() -> impl Strategy<Value = Option<Value>> {
    let texts = [
        "",
        "ONGOING",
        "PENDING",
        "COMPLETE",
        "completed",
        "2026-11-03T08:15:31Z",
        "1959-01-01T00:00:00Z",
        "compute.instances.terminateOnHostMaintenance",
        "compute.instances.migrateOnHostMaintenance",
        "compute.instances.automaticRestart",
        "compute.instances.hostError",
        "projects/p/zones/z/instances/77",
        "99999999999999999999",
        "bell \u{7} and \u{2028}",
        "größer",
    ];
    prop_oneof![
        Just(None),
        select(texts.map(|text| json!(text)).to_vec()).prop_map(Some),
        any::<i64>().prop_map(|n| Some(json!(n))),
        any::<f64>().prop_map(|n| Some(json!(n))),
        select(vec![
            Value::Null,
            json!(true),
            json!([]),
            json!({}),
            json!({"index": 1, "totalSplits": 2}),
            json!(["FAILURE_GPU", 7]),
        ])
        .prop_map(Some),
        ".{0,40}".prop_map(|text| Some(json!(text))),
    ]
}

fn put(entry: &mut Value, pointer: &str, value: Option<Value>) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    // An earlier change may have put something else in its parent's place.
    let Some(Value::Object(parent)) = entry.pointer_mut(parent) else {
        return;
    };
    match value {
        Some(value) => drop(parent.insert(key.to_owned(), value)),
        None => drop(parent.remove(key)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_form_makes_no_difference(
        changes in proptest::collection::vec((select(FIELDS), values()), 0..5)
    ) {
        let mut entry = entry();
        for (pointer, value) in changes {
            put(&mut entry, pointer, value);
        }
        let mut forms = forms::all(&entry).into_iter();
        let (_, source, sent) = forms.next().unwrap();
        let first = read(&sent, source);
        for (form, source, sent) in forms {
            prop_assert_eq!(&read(&sent, source), &first, "{}", form);
        }
    }

    #[test]
    fn no_bytes_are_the_end_of_it(
        form in 0_usize..13,
        cuts in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        end in proptest::option::of(any::<proptest::sample::Index>()),
        header in proptest::option::of((
            select(&["ce-type", "ce-specversion", "ce-time", "content-type"][..]),
            proptest::collection::vec(0x20_u8..0x7f, 0..30),
        )),
    ) {
        let (_, _, mut sent) = forms::all(&entry()).swap_remove(form);
        for (at, byte) in cuts {
            let at = at.index(sent.body.len());
            sent.body[at] = byte;
        }
        if let Some(end) = end {
            let end = end.index(sent.body.len());
            sent.body.truncate(end);
        }
        if let Some((name, value)) = header {
            sent = sent.raw_header(name, &value);
        }
        // What matters is that it returns.
        if let Err(fault) = sent.read() {
            let text = fault.to_string();
            prop_assert!(text.len() < 200 && !text.contains("helios"), "{text}");
        }
    }
}
