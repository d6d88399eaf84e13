//! Any JSON as a log entry.

use drainwell_core::edit;
use drainwell_core::intent::Stored;
use drainwell_core::merge::{Facts, Merged, merge};
use drainwell_core::notice::{Malformed, Notice, Phase, Reading, Received, Source, Vm, read};
use drainwell_core::policy::Policy;
use drainwell_core::time::shift;
use serde_json::{Map, Value, json};

use crate::node::{bare, patched, t0};

/// Only the VM's identity decides whether an entry can be used, and what is
/// read is safe to act on.
pub fn check(data: &[u8]) -> &'static str {
    let Ok(entry) = serde_json::from_slice::<Value>(data) else {
        return "no JSON";
    };
    let reading = read(&entry, &received());
    assert_eq!(reading, read(&entry, &received()));
    nothing_else_decides(&entry, &reading);
    match &reading {
        Err(fault) => {
            assert!(!fault.place.is_empty() && !fault.problem.is_empty());
            "malformed"
        }
        Ok(Reading::NotMaintenance) => "not maintenance",
        Ok(Reading::LiveMigration) => "live migration",
        Ok(Reading::WakeUp(vm)) => {
            can_be_asked_for(vm);
            "wake-up"
        }
        Ok(Reading::Notice(notice)) => {
            can_be_asked_for(&notice.vm);
            is_bounded(notice);
            is_written_once(notice);
            match notice.phase {
                Phase::Scheduled => "scheduled",
                Phase::Ongoing if notice.stopping => "stopping",
                Phase::Ongoing => "ongoing",
                Phase::Completed => "completed",
            }
        }
    }
}

fn received() -> Received {
    Received {
        source: Source::Pubsub,
        published: Some(shift(t0(), -3)),
        now: t0(),
    }
}

/// The VM that was read, or why none was.
fn vm_of(reading: &Result<Reading, Malformed>) -> Result<Option<&Vm>, &Malformed> {
    match reading {
        Err(fault) => Err(fault),
        Ok(Reading::Notice(notice)) => Ok(Some(&notice.vm)),
        Ok(Reading::WakeUp(vm)) => Ok(Some(vm)),
        Ok(Reading::LiveMigration | Reading::NotMaintenance) => Ok(None),
    }
}

/// The same entry with all else left out, or turned into nonsense.
fn nothing_else_decides(entry: &Value, reading: &Result<Reading, Malformed>) {
    let Some(payload) = entry.get("protoPayload").and_then(Value::as_object) else {
        return;
    };
    let names = ["methodName", "serviceName", "resourceName"];
    let kept = payload
        .iter()
        .filter(|(key, _)| names.contains(&key.as_str()));
    let kept: Map<String, Value> = kept
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let resource = entry.get("resource").cloned().unwrap_or_default();
    let bare = json!({"protoPayload": kept, "resource": resource});
    assert_eq!(vm_of(&read(&bare, &received())), vm_of(reading));
    for nonsense in [
        json!(null),
        json!(-1),
        json!("soon"),
        json!([[]]),
        json!({"a": {}}),
    ] {
        let mut spoiled = bare.clone();
        for pointer in ["/timestamp", "/severity", "/insertId"] {
            spoiled[&pointer[1..]] = nonsense.clone();
        }
        for key in ["metadata", "status", "request"] {
            spoiled["protoPayload"][key] = nonsense.clone();
        }
        assert_eq!(
            vm_of(&read(&spoiled, &received())),
            vm_of(reading),
            "{nonsense}"
        );
        spoiled["protoPayload"]["status"] = json!({ "message": nonsense });
        spoiled["protoPayload"]["metadata"] = json!({
            "maintenanceStatus": nonsense, "windowStartTime": nonsense,
            "windowEndTime": nonsense, "maintenanceReasons": nonsense,
        });
        assert_eq!(
            vm_of(&read(&spoiled, &received())),
            vm_of(reading),
            "{nonsense}"
        );
        path_needs_no_labels(bare.clone(), nonsense, reading);
    }
}

/// Labels only complete what the resource's path says.
fn path_needs_no_labels(mut entry: Value, labels: Value, reading: &Result<Reading, Malformed>) {
    if !entry["protoPayload"]["resourceName"].is_string() {
        return;
    }
    entry["resource"] = json!({ "labels": labels });
    let again = read(&entry, &received());
    let named = |vm: &Vm| (vm.project.clone(), vm.zone.clone(), vm.name.clone());
    let (before, after) = (vm_of(reading), vm_of(&again));
    assert_eq!(
        before.map(|vm| vm.map(named)),
        after.map(|vm| vm.map(named))
    );
}

/// It has a key, and nothing that changes the URL it is put into.
fn can_be_asked_for(vm: &Vm) {
    let safe = |text: &str| {
        !text.is_empty()
            && text.len() <= 100
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b))
    };
    assert!(
        safe(&vm.project) && safe(&vm.zone) && safe(&vm.key()),
        "{vm:?}"
    );
    assert_ne!(vm.id, Some(0));
}

fn is_bounded(notice: &Notice) {
    assert!(notice.at <= shift(t0(), 300), "{}", notice.at);
    assert!(notice.doubts.len() <= 8 && notice.reasons.len() <= 18);
    let short = |text: &String| !text.is_empty() && text.len() <= 120 && !text.contains('\n');
    assert!(notice.doubts.iter().all(short), "{:?}", notice.doubts);
    assert!(notice.reasons.iter().all(short), "{:?}", notice.reasons);
    assert!(!notice.stopping || notice.phase == Phase::Ongoing);
}

/// What it makes of a Node reads back, and the same notice again adds nothing.
fn is_written_once(notice: &Notice) {
    let (node, policy) = (bare(), Policy::default());
    let mut facts = Facts {
        notice,
        node: &node,
        instance: None,
        policy: &policy,
        now: t0(),
    };
    let merged = merge(&facts, &Stored::Nothing);
    if notice.phase == Phase::Completed {
        assert_eq!(merged, Merged::Unchanged);
        return;
    }
    let (Merged::Mark(intent) | Merged::Record(intent)) = merged else {
        unreachable!("{merged:?}")
    };
    let (edit, written) = edit::write(&node, &intent, &policy.label_value);
    let marked = patched(&node, &edit);
    let stored = Stored::on(&marked);
    assert_eq!(stored, Stored::Intent(Box::new(written)));
    facts.node = &marked;
    let again = merge(&facts, &stored);
    assert!(
        matches!(again, Merged::Unchanged | Merged::Stale),
        "{again:?}"
    );
}
