//! Everything in which a notice may arrive: one parser an envelope, one letter
//! at the end.
//!
//! | envelope | known by | parser |
//! | --- | --- | --- |
//! | `CloudEvents`, structured | content type `application/cloudevents+json` | `cloudevents` |
//! | `CloudEvents`, binary | headers `ce-specversion`, `ce-type` | `cloudevents` |
//! | Pub/Sub push, wrapped | body with `message` or `subscription` | `pubsub` |
//! | Pub/Sub push, unwrapped | all else | `pubsub` |
//!
//! Nothing here trusts a sender: no input panics, nothing that a sender wrote
//! is repeated but ids and types, which are cut short.

mod cloudevents;
mod data;
mod pubsub;

use axum::http::{HeaderMap, header};
use drainwell_core::notice::{self, Malformed, Reading, Received, Source};
use jiff::Timestamp;
use serde_json::Value;

/// What a request turned out to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// What its log entry says; another's event is no maintenance.
    pub reading: Reading,
    /// How it has come.
    pub source: Source,
    /// The message's or event's id, for the log.
    pub id: Option<String>,
    /// The type of an event that isn't ours, and was not opened.
    pub foreign: Option<String>,
    /// Fields of the envelope whose values could not be used, with the reason.
    pub doubts: Vec<String>,
}

/// Why a request can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It isn't what it says that it is.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It may be right, but isn't understood here.
    #[error("{0}")]
    Unsupported(Malformed),
}

/// Reads a request to the end: envelope and log entry.
///
/// # Errors
/// With the place of the fault, when there is no readable entry in it.
pub fn read(headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Letter, Fault> {
    let envelope = match open(headers, body)? {
        Opened::Entry(envelope) => envelope,
        Opened::Foreign { kind, id } => {
            return Ok(Letter {
                reading: Reading::NotMaintenance,
                source: Source::Eventarc,
                id,
                foreign: Some(kind),
                doubts: vec![],
            });
        }
    };
    let received = Received {
        source: envelope.source,
        published: envelope.published,
        now,
    };
    Ok(Letter {
        reading: notice::read(&envelope.entry, &received)?,
        source: envelope.source,
        id: envelope.id,
        foreign: None,
        doubts: envelope.doubts,
    })
}

/// A log entry, and what its envelope says of it.
struct Envelope {
    entry: Value,
    source: Source,
    /// When the message was published.
    published: Option<Timestamp>,
    id: Option<String>,
    doubts: Vec<String>,
}

enum Opened {
    Entry(Envelope),
    /// An event of a type that isn't ours.
    Foreign {
        kind: String,
        id: Option<String>,
    },
}

/// As `CloudEvents`' HTTP binding has it, the media type comes first, and what
/// begins with theirs is theirs.
fn open(headers: &HeaderMap, body: &[u8]) -> Result<Opened, Fault> {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let media = content_type.and_then(|value| value.split(';').next());
    let media = media.unwrap_or_default().trim().to_ascii_lowercase();
    if media.starts_with("application/cloudevents-batch") {
        let what = "batched CloudEvents are not taken: one event a request";
        return Err(Fault::Unsupported(Malformed::at("content-type", what)));
    }
    match media.strip_prefix("application/cloudevents") {
        Some("+json") => Ok(cloudevents::open_structured(body)?),
        Some(_) => {
            let what = "of CloudEvents, only application/cloudevents+json is understood";
            Err(Fault::Unsupported(Malformed::at("content-type", what)))
        }
        None if cloudevents::is_binary(headers) => Ok(cloudevents::open_binary(headers, body)?),
        None => Ok(Opened::Entry(pubsub::open(headers, body)?)),
    }
}
