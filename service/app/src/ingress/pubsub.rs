//! The envelopes of Pub/Sub push: wrapped (the message in JSON, its data in
//! base64) and unwrapped (the data is the body). One log entry at the end.
//! Shapes: Pub/Sub's `PubsubMessage` and push documentation.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use drainwell_core::notice::{Malformed, Source};
use jiff::Timestamp;
use serde_json::Value;

/// Standard alphabet; senders that leave out the padding are understood.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A log entry, and what its message says of it.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    /// The entry.
    pub(super) entry: Value,
    /// By which way it came.
    pub(super) source: Source,
    /// When the message was published.
    pub(super) published: Option<Timestamp>,
    /// The message's id, for the log.
    pub(super) message_id: Option<String>,
}

/// Opens the envelope of a request.
///
/// # Errors
/// When there is no log entry in it.
pub(super) fn open(headers: &HeaderMap, body: &[u8]) -> Result<Envelope, Malformed> {
    let json: Value =
        serde_json::from_slice(body).map_err(|e| Malformed::at("body", format!("no JSON: {e}")))?;
    let source = if headers.contains_key("ce-type") {
        Source::Eventarc
    } else {
        Source::Pubsub
    };
    let Some(object) = json.as_object() else {
        return Err(Malformed::at("body", "not a JSON object"));
    };
    // A LogEntry has no such field.
    let Some(message) = object.get("message") else {
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        return Ok(Envelope {
            source,
            published: header("x-goog-pubsub-publish-time").and_then(|t| t.parse().ok()),
            message_id: header("x-goog-pubsub-message-id").map(short),
            entry: json,
        });
    };
    let Some(message) = message.as_object() else {
        return Err(Malformed::at("message", "not a JSON object"));
    };
    let data = match message.get("data") {
        Some(Value::String(data)) if !data.is_empty() => data,
        Some(Value::String(_) | Value::Null) | None => {
            return Err(Malformed::at("message.data", "missing"));
        }
        Some(_) => return Err(Malformed::at("message.data", "not a string")),
    };
    let data = BASE64
        .decode(data)
        .map_err(|e| Malformed::at("message.data", format!("no base64: {e}")))?;
    let entry = serde_json::from_slice(&data)
        .map_err(|e| Malformed::at("message.data", format!("no JSON: {e}")))?;
    let field = |camel: &str, snake: &str| {
        message
            .get(camel)
            .or_else(|| message.get(snake))
            .and_then(Value::as_str)
    };
    Ok(Envelope {
        entry,
        source,
        published: field("publishTime", "publish_time").and_then(|t| t.parse().ok()),
        message_id: field("messageId", "message_id").map(short),
    })
}

/// Ids go to the log: bounded, since a sender chooses them.
fn short(id: &str) -> String {
    id.chars().filter(|c| !c.is_control()).take(64).collect()
}
