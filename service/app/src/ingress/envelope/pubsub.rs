//! Pub/Sub push: wrapped (the message in JSON, its data in base64) and
//! unwrapped (the data is the body, the rest is in headers, if anywhere).
//! Shapes: Pub/Sub's `PubsubMessage` and push documentation.

use axum::http::HeaderMap;
use drainwell_core::notice::{Malformed, Source};
use jiff::Timestamp;
use serde_json::Value;

use super::Envelope;
use super::data::{self, Object};

/// A message out of its wrapper.
pub(super) struct Message {
    pub(super) entry: Value,
    pub(super) published: Option<Timestamp>,
    pub(super) id: Option<String>,
}

/// Opens a push.
pub(super) fn open(headers: &HeaderMap, body: &[u8]) -> Result<Envelope, Malformed> {
    let object = data::object(body, "body")?;
    let mut doubts = Vec::new();
    // A log entry has no such fields.
    let message = if object.contains_key("message") || object.contains_key("subscription") {
        unwrap(&object, "", &mut doubts)?
    } else {
        bare(headers, object, &mut doubts)
    };
    Ok(Envelope {
        entry: message.entry,
        source: Source::Pubsub,
        published: message.published,
        id: message.id,
        doubts,
    })
}

/// The headers are there only if the subscription writes metadata.
fn bare(headers: &HeaderMap, entry: Object, doubts: &mut Vec<String>) -> Message {
    let mut text = |name: &str| {
        let value = headers.get(name)?.to_str();
        if value.is_err() {
            doubts.push(format!("{name}: not text"));
        }
        value.ok()
    };
    let (id, time) = (
        text("x-goog-pubsub-message-id"),
        text("x-goog-pubsub-publish-time"),
    );
    Message {
        entry: Value::Object(entry),
        published: time.and_then(|t| data::time(t, "x-goog-pubsub-publish-time", doubts)),
        id: id.and_then(data::short),
    }
}

/// Takes the message out of `{"message": …, "subscription": …}`, which stands
/// at `prefix` in the body. Of a message only its data is needed.
pub(super) fn unwrap(
    wrapper: &Object,
    prefix: &str,
    doubts: &mut Vec<String>,
) -> Result<Message, Malformed> {
    let place = format!("{prefix}message");
    let message = match wrapper.get("message") {
        Some(Value::Object(message)) => message,
        Some(Value::Null) | None => return Err(Malformed::at(place, "missing")),
        Some(_) => return Err(Malformed::at(place, "not a JSON object")),
    };
    let place = format!("{prefix}message.data");
    let entry = match message.get("data") {
        Some(Value::String(text)) if !text.is_empty() => data::base64(text, &place)?,
        Some(Value::String(_) | Value::Null) | None => {
            return Err(Malformed::at(place, "missing"));
        }
        Some(_) => return Err(Malformed::at(place, "not a string")),
    };
    let entry = data::json(&entry, &place)?;
    // Push sends both spellings; one is enough.
    let mut text = |camel: &str, snake: &str| {
        let there = [message.get(camel), message.get(snake)].into_iter();
        let there: Vec<_> = there.flatten().filter(|v| !v.is_null()).collect();
        let text = there.iter().find_map(|value| value.as_str());
        if text.is_none() && !there.is_empty() {
            doubts.push(format!("{prefix}message.{camel}: not a string"));
        }
        text
    };
    let (id, time) = (
        text("messageId", "message_id"),
        text("publishTime", "publish_time"),
    );
    let place = format!("{prefix}message.publishTime");
    Ok(Message {
        entry,
        published: time.and_then(|t| data::time(t, &place, doubts)),
        id: id.and_then(data::short),
    })
}
