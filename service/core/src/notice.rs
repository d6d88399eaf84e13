//! What an audit log entry claims about one VM: parsed, not trusted.
//!
//! Only the VM's identity is needed. A bad value in any other field is left
//! unset and named in `doubts`: a node is marked all the same.
//! Shapes: Compute Engine's entries in the `system_event` audit log (Cloud
//! Logging, `LogEntry` with an `AuditLog` as `protoPayload`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::shift;

/// The VM that an entry speaks of. Holds only values that are safe in a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vm {
    /// Project id.
    pub project: String,
    /// Zone.
    pub zone: String,
    /// The instance's name; some entries have only its numeric id.
    pub name: Option<String>,
    /// The numeric id, if the entry has it.
    pub id: Option<u64>,
}

impl Vm {
    /// What to ask Compute for. The name comes first, so that a VM rebuilt
    /// under it is seen as replaced rather than as gone.
    #[must_use]
    pub fn key(&self) -> String {
        self.name
            .clone()
            .or_else(|| self.id.map(|id| id.to_string()))
            .unwrap_or_default()
    }
}

impl std::fmt::Display for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.project, self.zone, self.key())
    }
}

/// Where a notice stands in a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It lies ahead.
    Scheduled,
    /// It is on.
    Ongoing,
    /// It is over.
    Completed,
}

impl Phase {
    /// As the annotation, the API and the metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ongoing => "ongoing",
            Self::Completed => "completed",
        }
    }
}

/// By which way we learned of a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Pub/Sub push.
    Pubsub,
    /// Eventarc.
    Eventarc,
    /// Pub/Sub pull.
    Pull,
    /// Our own look at Compute.
    Sweep,
    /// A notice for another host of the same TPU slice.
    Slice,
    /// A person.
    Manual,
}

impl Source {
    /// As the annotation, the API and the metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pubsub => "pubsub",
            Self::Eventarc => "eventarc",
            Self::Pull => "pull",
            Self::Sweep => "sweep",
            Self::Slice => "slice",
            Self::Manual => "manual",
        }
    }
}

/// A maintenance of one VM, as claimed by one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Which VM.
    pub vm: Vm,
    /// Where the maintenance stands.
    pub phase: Phase,
    /// The entry says that the host stops now (`terminateOnHostMaintenance`).
    pub stopping: bool,
    /// By which way it came.
    pub source: Source,
    /// When the entry was written, or the best that we know instead.
    pub at: Timestamp,
    /// Whether `at` is the entry's own timestamp.
    pub at_known: bool,
    /// `metadata.windowStartTime`.
    pub window_start: Option<Timestamp>,
    /// `metadata.windowEndTime`.
    pub window_end: Option<Timestamp>,
    /// `metadata.maintenanceReasons`.
    pub reasons: Vec<String>,
    /// Fields whose values could not be used, with the reason.
    pub doubts: Vec<String>,
}

/// What an entry turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A maintenance.
    Notice(Box<Notice>),
    /// The VM came back or was rebuilt: no notice, but worth a look.
    WakeUp(Vm),
    /// A live migration: the node stays up.
    LiveMigration,
    /// Another entry.
    NotMaintenance,
}

/// What can't be read, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Malformed {
    /// Path in the body, such as `protoPayload.resourceName`.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Malformed {
    /// A fault at a place.
    pub fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

/// What is known of an entry besides its text.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// By which way it came.
    pub source: Source,
    /// When the message that holds it was published.
    pub published: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

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
    let payload = match entry.get("protoPayload") {
        Some(Value::Object(payload)) => payload,
        Some(_) => return Err(Malformed::at("protoPayload", "not a JSON object")),
        None if ["logName", "insertId", "jsonPayload", "textPayload"]
            .iter()
            .any(|key| entry.contains_key(*key)) =>
        {
            return Ok(Reading::NotMaintenance);
        }
        None => return Err(Malformed::at("entry", "no log entry")),
    };
    let method = match payload.get("methodName") {
        Some(Value::String(method)) => method.as_str(),
        Some(_) => return Err(Malformed::at("protoPayload.methodName", "not a string")),
        None => return Ok(Reading::NotMaintenance),
    };
    let service = payload.get("serviceName").and_then(Value::as_str);
    if service.is_some_and(|name| name != "compute.googleapis.com") {
        return Ok(Reading::NotMaintenance);
    }
    // The singular stands in one of Google's own alert queries.
    let event = method
        .strip_prefix("compute.instances.")
        .or_else(|| method.strip_prefix("compute.instance."))
        .unwrap_or_default();
    let stopping = match event {
        "upcomingMaintenance" | "upcomingInfraMaintenance" => false,
        "terminateOnHostMaintenance" => true,
        "migrateOnHostMaintenance" => return Ok(Reading::LiveMigration),
        "automaticRestart" => {
            return Ok(Reading::WakeUp(read_vm(
                entry,
                payload.get("resourceName"),
            )?));
        }
        _ => return Ok(Reading::NotMaintenance),
    };
    let vm = read_vm(entry, payload.get("resourceName"))?;
    Ok(Reading::Notice(Box::new(read_notice(
        entry, payload, vm, stopping, received,
    ))))
}

type Object = serde_json::Map<String, Value>;

fn read_notice(
    entry: &Object,
    payload: &Object,
    vm: Vm,
    stopping: bool,
    received: &Received,
) -> Notice {
    let mut doubts = Vec::new();
    let empty = Object::new();
    let metadata = match payload.get("metadata") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(metadata)) => metadata,
        Some(_) => {
            doubts.push("protoPayload.metadata: not a JSON object".to_owned());
            &empty
        }
    };
    let window_start = read_time(
        metadata,
        "windowStartTime",
        "protoPayload.metadata",
        &mut doubts,
    );
    let window_end = read_time(
        metadata,
        "windowEndTime",
        "protoPayload.metadata",
        &mut doubts,
    );
    let latest = shift(received.now, SKEW_S);
    let claimed = read_time(entry, "timestamp", "entry", &mut doubts);
    let own = claimed.filter(|t| (Timestamp::UNIX_EPOCH..=latest).contains(t));
    if let Some(time) = claimed.filter(|_| own.is_none()) {
        doubts.push(format!("entry.timestamp: {time} is not credible"));
    }
    let retained = shift(received.now, -RETENTION_S)..=latest;
    let published = received.published.filter(|t| retained.contains(t));
    Notice {
        vm,
        phase: if stopping {
            Phase::Ongoing
        } else {
            read_phase(payload, metadata, &mut doubts)
        },
        stopping,
        source: received.source,
        at: own.or(published).unwrap_or(received.now),
        at_known: own.is_some(),
        window_start,
        window_end,
        reasons: read_reasons(metadata, &mut doubts),
        doubts,
    }
}

/// Google's own alert queries tell the phases apart by the status message;
/// the metadata has a status too, but a completed entry has no metadata.
fn read_phase(payload: &Object, metadata: &Object, doubts: &mut Vec<String>) -> Phase {
    let message = payload
        .get("status")
        .and_then(|s| s.get("message"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let status = match metadata.get("maintenanceStatus") {
        None | Some(Value::Null) => "",
        Some(Value::String(status)) => status.as_str(),
        Some(_) => {
            doubts.push("protoPayload.metadata.maintenanceStatus: not a string".to_owned());
            ""
        }
    };
    match status {
        // The text of an ongoing entry isn't known: it may speak of a completion.
        "ONGOING" => Phase::Ongoing,
        "COMPLETE" | "COMPLETED" => Phase::Completed,
        _ if message.contains("completed") => Phase::Completed,
        _ if message.contains("ongoing") => Phase::Ongoing,
        _ => Phase::Scheduled,
    }
}

fn read_time(from: &Object, key: &str, place: &str, doubts: &mut Vec<String>) -> Option<Timestamp> {
    match from.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => match text.parse() {
            Ok(time) => Some(time),
            Err(_) => {
                doubts.push(format!("{place}.{key}: not an RFC 3339 time"));
                None
            }
        },
        Some(_) => {
            doubts.push(format!("{place}.{key}: not a string"));
            None
        }
    }
}

fn read_reasons(metadata: &Object, doubts: &mut Vec<String>) -> Vec<String> {
    let list = match metadata.get("maintenanceReasons") {
        None | Some(Value::Null) => return vec![],
        Some(Value::Array(list)) => list,
        Some(_) => {
            doubts.push("protoPayload.metadata.maintenanceReasons: not a list".to_owned());
            return vec![];
        }
    };
    known_reasons(list.iter().filter_map(Value::as_str))
}

/// Reasons in the form of the API's enum, without duplicates, bounded.
pub fn known_reasons<'a>(reasons: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for reason in reasons {
        let fits = (1..=80).contains(&reason.len())
            && reason
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if fits && kept.len() < REASONS_MAX && !kept.iter().any(|k| k == reason) {
            kept.push(reason.to_owned());
        }
    }
    kept
}

/// The VM, from `resourceName`, completed by `resource.labels`.
fn read_vm(entry: &Object, resource_name: Option<&Value>) -> Result<Vm, Malformed> {
    let place = "protoPayload.resourceName";
    let labels = entry.get("resource").and_then(|r| r.get("labels"));
    let text = |key: &str| labels?.get(key)?.as_str();
    let id = labels
        .and_then(|l| l.get("instance_id"))
        .and_then(|v| match v {
            Value::String(s) => s.parse().ok(),
            Value::Number(n) => n.as_u64(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        });
    let (project, zone, instance) = match resource_name {
        Some(Value::String(path)) => split_path(path)
            .ok_or_else(|| Malformed::at(place, "not projects/P/zones/Z/instances/NAME"))?,
        Some(Value::Null) | None => match (text("project_id"), text("zone"), text("instance_id")) {
            (Some(project), Some(zone), Some(id)) => (project, zone, id),
            _ => {
                return Err(Malformed::at(
                    place,
                    "missing, and no labels to make up for it",
                ));
            }
        },
        Some(_) => return Err(Malformed::at(place, "not a string")),
    };
    let number = instance.parse().ok().filter(|id| *id > 0);
    let named = is_instance_name(instance);
    if !is_project(project) || !is_zone(zone) || (number.is_none() && !named) {
        return Err(Malformed::at(
            place,
            "not a valid project, zone and instance",
        ));
    }
    Ok(Vm {
        project: project.to_owned(),
        zone: zone.to_owned(),
        name: named.then(|| instance.to_owned()),
        id: id.filter(|id| *id > 0).or(number),
    })
}

fn split_path(path: &str) -> Option<(&str, &str, &str)> {
    let rest = path.strip_prefix("projects/")?;
    let (project, rest) = rest.split_once("/zones/")?;
    let (zone, name) = rest.split_once("/instances/")?;
    Some((project, zone, name))
}

/// Compute's pattern for names: `[a-z]([-a-z0-9]{0,61}[a-z0-9])?`.
fn is_instance_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_zone(text: &str) -> bool {
    is_instance_name(text)
}

/// Project ids, with the domain prefix of old ones (`example.com:name`).
fn is_project(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b':')
        })
}
