//! A log sink and a Pub/Sub push subscription: each audit log entry of the
//! world's Compute Engine is pushed to the service, and pushed again until it
//! is acknowledged.

use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drainwell_app::clock::Clock;
use drainwell_core::time::shift;
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::audit::{self, Subject};
use super::scene::PROJECT;
use super::screen::{Colour, Screen};
use crate::journal::{Entry, NodeChange, What};
use crate::seed::Seed;
use crate::world::World;

/// From an entry's timestamp to its first push.
const SINK_S: i64 = 2;
/// The subscription's retry policy: Pub/Sub's default bounds.
const BACKOFF_MIN_S: i64 = 10;
const BACKOFF_MAX_S: i64 = 600;
/// A push without an answer counts as refused. In real time, because HTTP is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A message on its way to one subscription.
struct Message {
    node: String,
    subject: Subject,
    body: Value,
    at: Timestamp,
}

/// Pushes all entries, for as long as the demo lasts.
pub(super) async fn run(
    world: World,
    base: String,
    seed: u64,
    screen: Screen,
) -> anyhow::Result<()> {
    let client = reqwest::Client::builder()
        .timeout(ANSWER_TIMEOUT)
        .no_proxy()
        .build()
        .context("no HTTP client")?;
    let mut pushes: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let mut seen = 0;
    loop {
        tokio::select! {
            biased;
            Some(ended) = pushes.join_next() => ended.context("a push failed")??,
            entries = world.journal_after(seen) => {
                seen += entries.len();
                // A handful a maintenance: each message has a task of its own.
                for message in entries.iter().filter_map(|e| message(&world, Seed(seed), e)) {
                    let (client, base, screen) = (client.clone(), base.clone(), screen.clone());
                    let clock = world.clock();
                    pushes.spawn(push(client, base, clock, message, screen));
                }
            }
        }
    }
}

/// The message that a journal entry causes, if Compute Engine logs such things.
fn message(world: &World, seed: Seed, entry: &Entry) -> Option<Message> {
    let What::Node { node, change } = &entry.what else {
        return None;
    };
    let subject = match change {
        NodeChange::MaintenanceAnnounced { .. } => Subject::Scheduled,
        NodeChange::MaintenanceBegan { .. } => Subject::Ongoing,
        NodeChange::MaintenanceEnded => Subject::Completed,
        NodeChange::HostStopped => Subject::Terminated,
        NodeChange::HostStarted => Subject::Restarted,
        NodeChange::MaintenanceCancelled
        | NodeChange::Marked { .. }
        | NodeChange::Unmarked
        | NodeChange::Ready
        | NodeChange::NotReady => return None,
    };
    let (vm, instance) = world.find_vm(node)?;
    let at = entry.at;
    let log_entry = audit::entry(seed, subject, &vm, instance.maintenance.as_ref(), at);
    let published = shift(at, SINK_S).to_string();
    let id = fastrand::Rng::with_seed(seed.0 ^ at.as_millisecond().unsigned_abs() ^ instance.id)
        .u64(1_000_000_000_000_000..10_000_000_000_000_000)
        .to_string();
    let body = json!({
        "message": {
            "attributes": {"logging.googleapis.com/timestamp": at.to_string()},
            "data": STANDARD.encode(log_entry.to_string()),
            "messageId": id,
            "message_id": id,
            "publishTime": published,
            "publish_time": published,
        },
        "subscription": format!("projects/{PROJECT}/subscriptions/drainwell"),
    });
    Some(Message {
        node: node.clone(),
        subject,
        body,
        at,
    })
}

async fn push(
    client: reqwest::Client,
    base: String,
    clock: Clock,
    message: Message,
    screen: Screen,
) -> anyhow::Result<()> {
    let Message {
        node,
        subject,
        body,
        at,
    } = message;
    clock.sleep_until(shift(at, SINK_S)).await;
    let what = subject.phrase();
    screen.line(
        clock.now(),
        Colour::Plain,
        "pub/sub",
        &format!("{node}: pushed to the service: {what}"),
    )?;
    let mut backoff_s = BACKOFF_MIN_S;
    loop {
        let answer = match client.post(&base).json(&body).send().await {
            Ok(response) if acknowledges(response.status()) => return Ok(()),
            Ok(response) => format!("HTTP {}", response.status().as_u16()),
            Err(error) => format!("no answer ({error})"),
        };
        let text = format!("not acknowledged: {answer}; pushed again in {backoff_s} s: {node}");
        screen.line(clock.now(), Colour::Warn, "pub/sub", &text)?;
        clock.sleep_until(shift(clock.now(), backoff_s)).await;
        backoff_s = (2 * backoff_s).min(BACKOFF_MAX_S);
    }
}

/// The answers that Pub/Sub takes for an acknowledgement.
fn acknowledges(status: StatusCode) -> bool {
    matches!(status.as_u16(), 102 | 200 | 201 | 202 | 204)
}
