//! `CloudEvents` 1.0 over HTTP, as Eventarc sends them: binary mode (attributes
//! in headers) and structured mode (one JSON object).
//! Sources: the specification's HTTP binding and JSON format; the types and
//! their data in googleapis/google-cloudevents.

use axum::http::HeaderMap;
use drainwell_core::notice::{Malformed, Source};
use jiff::Timestamp;
use serde_json::Value;

use super::data::{self, Object};
use super::{Envelope, Opened, pubsub};

/// Its data is the log entry.
const AUDIT_LOG: &str = "google.cloud.audit.log.v1.written";
/// Its data is what Pub/Sub pushes, wrapped.
const MESSAGE: &str = "google.cloud.pubsub.topic.v1.messagePublished";

/// Whether it is an event in binary mode.
pub(super) fn is_binary(headers: &HeaderMap) -> bool {
    headers.contains_key("ce-specversion") || headers.contains_key("ce-type")
}

/// Opens an event in binary mode. A sender may escape some characters of its
/// headers with `%`; none of them is in what is read here.
pub(super) fn open_binary(headers: &HeaderMap, body: &[u8]) -> Result<Opened, Malformed> {
    let attributes = Attributes::read("ce-", |name| {
        let value = headers.get(format!("ce-{name}"))?;
        Some(value.to_str().map_err(|_| "not text"))
    })?;
    attributes.open("", || data::object(body, "body"))
}

/// Opens an event in structured mode.
pub(super) fn open_structured(body: &[u8]) -> Result<Opened, Malformed> {
    let mut event = data::object(body, "body")?;
    let attributes = Attributes::read("", |name| match event.get(name)? {
        Value::String(text) => Some(Ok(text.as_str())),
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(Err("not a string"))
        }
    })?;
    attributes.open("data.", || take_data(&mut event))
}

/// The data of a structured event: JSON, or JSON in base64.
fn take_data(event: &mut Object) -> Result<Object, Malformed> {
    let mut take = |key: &str| event.remove(key).filter(|value| !value.is_null());
    match (take("data"), take("data_base64")) {
        (Some(Value::Object(data)), None) => Ok(data),
        (Some(_), None) => Err(Malformed::at("data", "not a JSON object")),
        (None, Some(Value::String(text))) => {
            data::object(&data::base64(&text, "data_base64")?, "data_base64")
        }
        (None, Some(_)) => Err(Malformed::at("data_base64", "not a string")),
        (Some(_), Some(_)) => Err(Malformed::at("data_base64", "there is data as well")),
        (None, None) => Err(Malformed::at("data", "missing")),
    }
}

/// What an event says of itself, as far as it matters.
struct Attributes {
    kind: String,
    id: Option<String>,
    time: Option<Timestamp>,
    doubts: Vec<String>,
}

impl Attributes {
    /// Reads them by name. Without version and type nobody knows what the rest
    /// means; id and source are required too, but nothing depends on them.
    fn read<'a>(
        prefix: &str,
        get: impl Fn(&str) -> Option<Result<&'a str, &'static str>>,
    ) -> Result<Self, Malformed> {
        let required = |name: &str| {
            let text = match get(name).unwrap_or(Err("missing")) {
                Ok("") => Err("empty"),
                text => text,
            };
            text.map_err(|what| Malformed::at(format!("{prefix}{name}"), what))
        };
        let version = required("specversion")?;
        if version != "1.0" {
            let what = "only version 1.0 of CloudEvents is understood";
            return Err(Malformed::at(format!("{prefix}specversion"), what));
        }
        let kind = required("type")?.to_owned();
        let mut doubts = Vec::new();
        let mut wanted = |name: &str, needed: bool| match required(name) {
            Ok(text) => Some(text),
            Err(fault) if needed || fault.problem != "missing" => {
                doubts.push(fault.to_string());
                None
            }
            Err(_) => None,
        };
        let id = wanted("id", true).and_then(data::short);
        wanted("source", true);
        let time = wanted("time", false);
        let time = time.and_then(|t| data::time(t, &format!("{prefix}time"), &mut doubts));
        Ok(Self {
            kind,
            id,
            time,
            doubts,
        })
    }

    /// Opens the data by the event's type. That of another's event may have any
    /// form, and is left alone. `prefix`: where the data stands in the body.
    fn open(
        self,
        prefix: &str,
        data: impl FnOnce() -> Result<Object, Malformed>,
    ) -> Result<Opened, Malformed> {
        let Self {
            kind,
            id,
            time,
            mut doubts,
        } = self;
        let (entry, published, id) = match kind.as_str() {
            AUDIT_LOG => (Value::Object(data()?), time, id),
            MESSAGE => {
                let message = pubsub::unwrap(&data()?, prefix, &mut doubts)?;
                (message.entry, message.published.or(time), message.id.or(id))
            }
            other => {
                let kind = data::short(other).unwrap_or_default();
                return Ok(Opened::Foreign { kind, id });
            }
        };
        Ok(Opened::Entry(Envelope {
            entry,
            source: Source::Eventarc,
            published,
            id,
            doubts,
        }))
    }
}
