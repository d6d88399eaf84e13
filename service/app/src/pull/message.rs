//! One message: what is in it, and what becomes of it.

use std::time::Duration;

use drainwell_core::notice::{self, Malformed, Reading, Received, Source, Vm};
use google_cloud_pubsub::model::Message;
use google_cloud_pubsub::subscriber::handler::Handler;
use jiff::Timestamp;
use serde_json::Value;

use crate::clock::Clock;
use crate::intake::{Ack, Later, Told};
use crate::reception::{Arrival, Reception};
use crate::telemetry::log::{self, Event, Subject};

/// As for a pushed notice: audit entries have a few kilobytes.
const DATA_MAX: usize = 1 << 20;
/// With exactly-once delivery the acknowledgement itself is acknowledged.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// What is to become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its effect is durable, or there is nothing to do.
    Done,
    /// It can't be decided now, or it can't be read. What can't be read is not
    /// acknowledged either: so it ends in the dead-letter topic, where somebody
    /// sees it, and not nowhere.
    Again,
}

/// Works on a message.
pub(super) async fn judge(message: &Message, reception: &Reception, clock: Clock) -> Fate {
    let received = Received {
        source: Source::Pull,
        published: published(message),
        now: clock.now(),
    };
    let reading = open(&message.data).and_then(|entry| notice::read(&entry, &received));
    let id = &message.message_id;
    match reading {
        Ok(reading) => take(id, &reading, reception).await,
        Err(fault) => {
            reception.count_malformed(Some(Source::Pull));
            let what = format!("Message {id} can't be read and has to come again: {fault}.");
            log::event(Event::NoticeRejected, &Subject::default(), &what);
            Fate::Again
        }
    }
}

fn published(message: &Message) -> Option<Timestamp> {
    let time = message.publish_time.as_ref()?;
    Timestamp::new(time.seconds(), time.nanos()).ok()
}

/// The log entry that a message is.
fn open(data: &[u8]) -> Result<Value, Malformed> {
    if data.len() > DATA_MAX {
        return Err(Malformed::at("data", format!("over {DATA_MAX} bytes")));
    }
    serde_json::from_slice(data).map_err(|e| Malformed::at("data", format!("no JSON: {e}")))
}

async fn take(id: &str, reading: &Reading, reception: &Reception) -> Fate {
    let arrival = Arrival {
        reading,
        source: Source::Pull,
        id: Some(id),
        doubts: &[],
    };
    let vm = reading.vm();
    match reception.receive(&arrival).await {
        Ok(taken) => {
            if taken.ack.outcome == Told::Ignored {
                tell_ignored(&taken.ack, &vm.map(Vm::key).unwrap_or_default());
            }
            Fate::Done
        }
        Err(Later(why)) => {
            let vm = vm.map(Vm::to_string).unwrap_or_default();
            tracing::warn!("Message {id}, for {vm}, has to come again: {why}.");
            Fate::Again
        }
    }
}

fn tell_ignored(ack: &Ack, node: &str) {
    let subject = Subject {
        node,
        ..Subject::default()
    };
    let reason = serde_json::to_value(ack.reason).unwrap_or_default();
    let what = format!("Nothing to do: {}.", reason.as_str().unwrap_or("unknown"));
    log::event(Event::NoticeIgnored, &subject, &what);
}

/// Acknowledges a message.
pub(super) async fn acknowledge(handler: Handler) {
    let handler = match handler {
        Handler::ExactlyOnce(handler) => handler,
        other @ (Handler::AtLeastOnce(_) | _) => return other.ack(),
    };
    // Until it is confirmed, a stop would throw the acknowledgement away. When
    // it can't be, the message comes again, and changes nothing.
    match tokio::time::timeout(CONFIRM_TIMEOUT, handler.confirmed_ack()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::info!("An acknowledgement is not confirmed: {error}"),
        Err(_) => tracing::info!(
            "An acknowledgement is not confirmed within {} s",
            CONFIRM_TIMEOUT.as_secs()
        ),
    }
}
