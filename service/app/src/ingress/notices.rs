//! `POST /` and `POST /events`: one notice.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use drainwell_core::confirm::Ignored;
use drainwell_core::notice::{self, Malformed, Notice, Reading, Received};
use http_body_util::BodyExt as _;

use super::Ingress;
use super::problem::Problem;
use super::pubsub::{self, Envelope};
use crate::intake::{Ack, Later};
use crate::reception::Taken;
use crate::telemetry::log::{self, Event, Subject};

/// Audit entries have a few kilobytes; Pub/Sub could push ten times this.
const BODY_MAX: usize = 1 << 20;
/// Pub/Sub's largest message has ten megabytes, and a third more in base64.
const BODY_READ_MAX: usize = 16 << 20;
/// A sender that needs longer for its body is cut off.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// What a notice's own first step may add to its answer.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn post(State(ingress): State<Arc<Ingress>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    let envelope = match pubsub::open(&head.headers, &body) {
        Ok(envelope) => envelope,
        Err(fault) => return reject(&fault),
    };
    let received = Received {
        source: envelope.source,
        published: envelope.published,
        now: ingress.clock.now(),
    };
    match notice::read(&envelope.entry, &received) {
        Err(fault) => reject(&fault),
        Ok(Reading::Notice(notice)) => take(&ingress, &envelope, &notice).await,
        Ok(Reading::LiveMigration) => ignore(Ignored::LiveMigration),
        Ok(Reading::NotMaintenance) => ignore(Ignored::NotMaintenance),
        Ok(Reading::WakeUp(vm)) => {
            ingress.reception.look(&vm.key());
            ignore(Ignored::NotMaintenance)
        }
    }
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY_TIMEOUT, collect(body)).await {
        Ok(collected) => collected,
        Err(_) => {
            let what = "the body took too long";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", what))
        }
    }
}

/// Reads a body. What is over the limit is thrown away, up to a second limit:
/// a sender that is cut off in mid-body doesn't see the answer.
async fn collect(mut body: Body) -> Result<Bytes, Problem> {
    let (mut kept, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let broken = |_| Problem::new(StatusCode::BAD_REQUEST, "malformed", "the body broke off");
        let Ok(data) = frame.map_err(broken)?.into_data() else {
            continue;
        };
        length += data.len();
        if length <= BODY_MAX {
            kept.extend_from_slice(&data);
        } else if length > BODY_READ_MAX {
            break;
        }
    }
    if length > BODY_MAX {
        let what = format!("the body has over {BODY_MAX} bytes");
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too large",
            what,
        ));
    }
    Ok(kept.freeze())
}

async fn take(ingress: &Ingress, envelope: &Envelope, notice: &Notice) -> Response {
    let id = envelope.message_id.as_deref().unwrap_or("without an id");
    let mut what = format!(
        "Message {id}: maintenance of {} is {:?}, by an entry of {}.",
        notice.vm, notice.phase, notice.at
    );
    for doubt in &notice.doubts {
        what = format!("{what} Not used: {doubt}.");
    }
    let node = notice.vm.key();
    let subject = Subject {
        node: &node,
        ..Subject::default()
    };
    log::event(Event::NoticeReceived, &subject, &what);
    match ingress.reception.take(notice).await {
        Ok(taken) => acknowledge(ingress, &node, taken).await,
        Err(Later(why)) => {
            tracing::warn!("The notice for {} has to come again: {why}", notice.vm);
            Problem::later(why).into_response()
        }
    }
}

/// The effect is durable. One step for the node comes before the answer, so
/// that its evictions get CPU on a platform that gives it to requests only.
async fn acknowledge(ingress: &Ingress, node: &str, taken: Taken) -> Response {
    let Taken { ack, pass } = taken;
    let Some(serial) = pass else {
        return ignore_with(ack, node);
    };
    if let Some(cluster) = &ack.cluster {
        let pass = ingress.wake.pass_over(cluster, serial);
        // Longer isn't waited for: the loop and the next tick go on with it.
        drop(tokio::time::timeout(STEP_TIMEOUT, pass).await);
    }
    Json(ack).into_response()
}

fn ignore(reason: Ignored) -> Response {
    ignore_with(Ack::ignored(reason), "")
}

fn ignore_with(ack: Ack, node: &str) -> Response {
    let reason = serde_json::to_value(ack.reason).unwrap_or_default();
    let reason = reason.as_str().unwrap_or("unknown").to_owned();
    let what = format!("Nothing to do: {reason}.");
    log::event(
        Event::NoticeIgnored,
        &Subject {
            node,
            ..Subject::default()
        },
        &what,
    );
    Json(ack).into_response()
}

fn reject(fault: &Malformed) -> Response {
    let what = format!("A request can't be read: {fault}.");
    log::event(Event::NoticeRejected, &Subject::default(), &what);
    Problem::new(StatusCode::BAD_REQUEST, "malformed", &fault.problem)
        .at(&fault.place)
        .into_response()
}
