//! Reads a log entry field by field. Logging writes its entries as proto3 JSON,
//! in which null is the same as a field that isn't there.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::vm::read_vm;
use super::{Malformed, Notice, Phase, Reading, Received, Vm};
use crate::time::shift;

pub(super) type Object = Map<String, Value>;

/// Clocks of Google's services and ours may differ by this much; a timestamp
/// later than that is not believed.
const SKEW_S: i64 = 300;

/// Pub/Sub keeps no message longer than 31 days.
const RETENTION_S: i64 = 31 * 86_400;

/// Reasons are copied to the Node's annotation: the API has 18 of them.
const REASONS_MAX: usize = 18;

/// Reads a log entry.
///
/// # Errors
/// When it is no log entry, or one of ours without a usable VM.
pub fn read(entry: &Value, received: &Received) -> Result<Reading, Malformed> {
    let Some(entry) = entry.as_object() else {
        return Err(Malformed::at("entry", "not a JSON object"));
    };
    let part = part_of_a_split(entry);
    read_entry(entry, part.as_deref(), received).map_err(|mut fault| {
        // A part may lack what the whole entry has.
        if let Some(part) = part {
            fault.problem = format!("{} ({part})", fault.problem);
        }
        fault
    })
}

fn read_entry(
    entry: &Object,
    part: Option<&str>,
    received: &Received,
) -> Result<Reading, Malformed> {
    let payload = match field(entry, "protoPayload") {
        Some(Value::Object(payload)) => payload,
        Some(_) => return Err(Malformed::at("protoPayload", "not a JSON object")),
        // What the other parts are about isn't known.
        None if part.is_some() => return Err(Malformed::at("protoPayload", "missing")),
        None if ["logName", "insertId", "jsonPayload", "textPayload"]
            .iter()
            .any(|key| entry.contains_key(*key)) =>
        {
            return Ok(Reading::NotMaintenance);
        }
        None => return Err(Malformed::at("entry", "no log entry")),
    };
    let service = field(payload, "serviceName").and_then(Value::as_str);
    if service.is_some_and(|name| name != "compute.googleapis.com") {
        return Ok(Reading::NotMaintenance);
    }
    let place = "protoPayload.methodName";
    let method = match field(payload, "methodName") {
        Some(Value::String(method)) => method.as_str(),
        Some(_) => return Err(Malformed::at(place, "not a string")),
        None if part.is_some() => return Err(Malformed::at(place, "missing")),
        None => return Ok(Reading::NotMaintenance),
    };
    // The singular stands in one of Google's own alert queries.
    let event = method
        .strip_prefix("compute.instances.")
        .or_else(|| method.strip_prefix("compute.instance."))
        .unwrap_or_default();
    let split = part.map(|part| format!("entry.split: this is {part}, and no other is looked at"));
    let mut doubts = Vec::from_iter(split);
    let stopping = match event {
        "upcomingMaintenance" | "upcomingInfraMaintenance" => false,
        "terminateOnHostMaintenance" => true,
        "migrateOnHostMaintenance" => return Ok(Reading::LiveMigration),
        "automaticRestart" => return Ok(Reading::WakeUp(read_vm(entry, payload, &mut doubts)?)),
        _ => return Ok(Reading::NotMaintenance),
    };
    let vm = read_vm(entry, payload, &mut doubts)?;
    let notice = read_notice(entry, payload, vm, stopping, doubts, received);
    Ok(Reading::Notice(Box::new(notice)))
}

/// Logging splits large audit entries (`LogEntry.split`). Ours are small; a
/// part is read for what it has.
fn part_of_a_split(entry: &Object) -> Option<String> {
    let split = field(entry, "split")?;
    // The index counts from 0, and proto3 JSON leaves a 0 out.
    let number = |key: &str| split.get(key).map_or(Some(0), Value::as_u64);
    Some(match (number("index"), number("totalSplits")) {
        // An entry that is its own only part is whole.
        (Some(0), Some(1)) => return None,
        (Some(index), Some(total)) if index < total => {
            format!("part {} of {total} of a split entry", index + 1)
        }
        _ => "part of a split entry".to_owned(),
    })
}

/// A field's value, unless it is unset.
pub(super) fn field<'a>(from: &'a Object, key: &str) -> Option<&'a Value> {
    from.get(key).filter(|value| !value.is_null())
}

fn read_notice(
    entry: &Object,
    payload: &Object,
    vm: Vm,
    stopping: bool,
    mut doubts: Vec<String>,
    received: &Received,
) -> Notice {
    let empty = Object::new();
    let mut object = |key: &str, place: &str| match field(payload, key) {
        Some(Value::Object(object)) => object,
        Some(_) => {
            doubts.push(format!("{place}: not a JSON object"));
            &empty
        }
        None => &empty,
    };
    let metadata = object("metadata", METADATA);
    let status = object("status", STATUS);
    let window_start = read_time(metadata, "windowStartTime", METADATA, &mut doubts);
    let window_end = read_time(metadata, "windowEndTime", METADATA, &mut doubts);
    let ends_first = matches!((window_start, window_end), (Some(start), Some(end)) if end < start);
    if ends_first {
        doubts.push(format!("{METADATA}.windowEndTime: before windowStartTime"));
    }
    let phase = read_phase(status, metadata, &mut doubts);
    let age = read_age(entry, received, &mut doubts);
    Notice {
        vm,
        phase: if stopping { Phase::Ongoing } else { phase },
        stopping,
        source: received.source,
        at: age.at,
        at_known: age.own,
        undated: age.unknown,
        window_start,
        window_end: window_end.filter(|_| !ends_first),
        reasons: read_reasons(metadata, &mut doubts),
        doubts,
    }
}

const METADATA: &str = "protoPayload.metadata";
const STATUS: &str = "protoPayload.status";

/// When an entry was written, and how well that is known.
struct Age {
    at: Timestamp,
    own: bool,
    unknown: bool,
}

/// The entry's own timestamp; else when its message was published; else when
/// Logging received it. All three are the same at each redelivery.
fn read_age(entry: &Object, received: &Received, doubts: &mut Vec<String>) -> Age {
    let latest = shift(received.now, SKEW_S);
    let mut read = |key: &str| {
        let claimed = read_time(entry, key, "entry", doubts)?;
        let credible = (Timestamp::UNIX_EPOCH..=latest).contains(&claimed);
        if !credible {
            doubts.push(format!("entry.{key}: {claimed} is not credible"));
        }
        credible.then_some(claimed)
    };
    if let Some(at) = read("timestamp") {
        return Age {
            at,
            own: true,
            unknown: false,
        };
    }
    let retained = shift(received.now, -RETENTION_S)..=latest;
    let published = received.published.filter(|t| retained.contains(t));
    let told = published.or_else(|| read("receiveTimestamp"));
    Age {
        at: told.unwrap_or(received.now),
        own: false,
        unknown: told.is_none(),
    }
}

/// Google's own alert queries tell the phases apart by the status message;
/// the metadata has a status too, but a completed entry has no metadata.
fn read_phase(status: &Object, metadata: &Object, doubts: &mut Vec<String>) -> Phase {
    let mut text = |from: &Object, key: &str, place: &str| match field(from, key) {
        Some(Value::String(text)) => text.to_ascii_uppercase(),
        Some(_) => {
            doubts.push(format!("{place}.{key}: not a string"));
            String::new()
        }
        None => String::new(),
    };
    let message = text(status, "message", STATUS);
    let status = text(metadata, "maintenanceStatus", METADATA);
    match status.as_str() {
        // The text of an ongoing entry isn't known: it may speak of a completion.
        "ONGOING" => return Phase::Ongoing,
        "COMPLETE" | "COMPLETED" => return Phase::Completed,
        "PENDING" | "UNKNOWN" | "" => {}
        _ => doubts.push(format!("{METADATA}.maintenanceStatus: not a known one")),
    }
    if message.contains("COMPLETED") {
        Phase::Completed
    } else if message.contains("ONGOING") {
        Phase::Ongoing
    } else {
        Phase::Scheduled
    }
}

fn read_time(from: &Object, key: &str, place: &str, doubts: &mut Vec<String>) -> Option<Timestamp> {
    let problem = match field(from, key) {
        Some(Value::String(text)) => match text.parse() {
            Ok(time) => return Some(time),
            Err(_) => "not an RFC 3339 time",
        },
        Some(_) => "not a string",
        None => return None,
    };
    doubts.push(format!("{place}.{key}: {problem}"));
    None
}

fn read_reasons(metadata: &Object, doubts: &mut Vec<String>) -> Vec<String> {
    let key = "maintenanceReasons";
    let list = match field(metadata, key) {
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => {
            doubts.push(format!("{METADATA}.{key}: not a list"));
            &[]
        }
        None => &[],
    };
    let usable = list
        .iter()
        .filter_map(Value::as_str)
        .filter(|text| is_reason(text));
    let odd = list.len() - usable.clone().count();
    if odd > 0 {
        doubts.push(format!("{METADATA}.{key}: {odd} that can't be reasons"));
    }
    known_reasons(usable)
}

/// Reasons in the form of the API's enum, without duplicates, bounded.
pub fn known_reasons<'a>(reasons: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for reason in reasons {
        if is_reason(reason) && kept.len() < REASONS_MAX && !kept.iter().any(|k| k == reason) {
            kept.push(reason.to_owned());
        }
    }
    kept
}

fn is_reason(text: &str) -> bool {
    (1..=80).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}
