//! `POST /` and `POST /events`: one notice.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use drainwell_core::confirm::Ignored;
use drainwell_core::notice::{self, Malformed, Notice, Phase, Reading, Received};
use http_body_util::BodyExt as _;

use super::Ingress;
use super::problem::Problem;
use super::pubsub;
use crate::intake::{Ack, Told};
use crate::telemetry::log::{self, Event, Subject};

/// Audit entries have a few kilobytes; Pub/Sub could push ten times this.
const BODY_MAX: usize = 1 << 20;
/// Pub/Sub's largest message has ten megabytes, and a third more in base64.
const BODY_READ_MAX: usize = 16 << 20;
/// A sender that needs longer for its body is cut off.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// For Compute, the Node and its write, each bounded by itself to five seconds,
/// and a second write if somebody else was faster.
const TAKE_TIMEOUT: Duration = Duration::from_secs(25);
/// What a notice's own first step may add to its answer.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// All of these, and some for the rest. It ends by itself before that.
pub(super) const TIME: Duration = Duration::from_secs(40);

pub(super) async fn post(State(ingress): State<Arc<Ingress>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    match understand(&ingress, &head, body) {
        Err(fault) => reject(&fault),
        Ok((Reading::Notice(notice), id)) => take(&ingress, id, &notice).await,
        Ok((Reading::LiveMigration, _)) => ignore(Ignored::LiveMigration),
        Ok((Reading::NotMaintenance, _)) => ignore(Ignored::NotMaintenance),
        Ok((Reading::WakeUp(vm), _)) => {
            // Nobody waits for this pass: the look is all that is wanted.
            let _serial = ingress.wake.request_look(&vm.key());
            ignore(Ignored::NotMaintenance)
        }
    }
}

/// What the request says, and its message's id. The body and its JSON, which
/// may have many times its size, end here and not with the request.
fn understand(
    ingress: &Ingress,
    head: &Parts,
    body: Bytes,
) -> Result<(Reading, Option<String>), Malformed> {
    let envelope = pubsub::open(&head.headers, &body)?;
    drop(body);
    let received = Received {
        source: envelope.source,
        published: envelope.published,
        now: ingress.clock.now(),
    };
    let reading = notice::read(&envelope.entry, &received)?;
    Ok((reading, envelope.message_id))
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

async fn take(ingress: &Ingress, id: Option<String>, notice: &Notice) -> Response {
    let id = id.as_deref().unwrap_or("without an id");
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
    let taken = tokio::time::timeout(TAKE_TIMEOUT, ingress.intake.take(notice)).await;
    let why = match taken {
        Ok(Ok(ack)) => return acknowledge(ingress, &node, ack).await,
        Ok(Err(later)) => later.0,
        Err(_) => format!("it took over {} s", TAKE_TIMEOUT.as_secs()),
    };
    tracing::warn!("The notice for {} has to come again: {why}", notice.vm);
    // A write whose answer was lost may have marked the node all the same.
    let _serial = ingress.wake.request();
    Problem::later(why).into_response()
}

/// The effect is durable. One step for the node comes before the answer, so
/// that its evictions get CPU on a platform that gives it to requests only.
async fn acknowledge(ingress: &Ingress, node: &str, ack: Ack) -> Response {
    if ack.outcome == Told::Ignored {
        return ignore_with(ack, node);
    }
    // Also when nothing has changed: the write may have been that of a request
    // whose answer, and whose step, were lost.
    let serial = match ack.outcome {
        Told::Marked | Told::Unchanged | Told::Ignored => ingress.wake.request(),
        Told::Updated | Told::Scheduled | Told::Completed => ingress.wake.request_look(node),
    };
    // A repetition that finds its node at work has no step to wait for: in a
    // burst of them each would hold a place for as long as a pass takes.
    let at_work = ack.outcome == Told::Unchanged && is_at_work(ingress, &ack);
    if let Some(cluster) = ack.cluster.as_ref().filter(|_| !at_work) {
        let pass = ingress.wake.pass_over(cluster, serial);
        // Longer isn't waited for: the loop and the next tick go on with it.
        drop(tokio::time::timeout(STEP_TIMEOUT, pass).await);
    }
    Json(ack).into_response()
}

/// Whether a pass has worked on the node's maintenance.
fn is_at_work(ingress: &Ingress, ack: &Ack) -> bool {
    let reports = ingress.wake.reports();
    let report = ack.cluster.as_ref().and_then(|path| reports.get(path));
    let mut all = report.iter().flat_map(|report| &report.maintenances);
    all.any(|m| {
        ack.node.as_ref() == Some(&m.node) && m.phase == Phase::Ongoing && m.ended.is_none()
    })
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
