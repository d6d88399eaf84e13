//! `POST /` and `POST /events`: one notice.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::BytesMut;
use drainwell_core::notice::{Phase, Vm};
use http_body_util::BodyExt as _;

use super::Ingress;
use super::envelope::{self, Fault, Letter};
use super::outcome::Outcome;
use super::problem::Problem;
use crate::intake::{Ack, Later, Told};
use crate::reception::{Arrival, Taken};

/// Audit entries have a few kilobytes; Pub/Sub could push ten times this.
const BODY_MAX: usize = 1 << 20;
/// Pub/Sub's largest message has ten megabytes, and a third more in base64.
const BODY_READ_MAX: usize = 16 << 20;
/// A sender that needs longer for its body is cut off.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// What a notice's own first step may add to its answer.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// All of these, and some for the rest. It ends by itself before that.
pub(super) const TIME: Duration = Duration::from_secs(40);

pub(super) async fn post(State(ingress): State<Arc<Ingress>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let letter = match read(body).await {
        Ok(body) => understand(&ingress, &head, body).map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    match letter {
        Ok(letter) => take(&ingress, &letter).await,
        Err(problem) => {
            ingress.reception.count_malformed(None);
            problem.into_response()
        }
    }
}

/// What the request says. The body and its JSON, which may have many times its
/// size, end here and not with the request.
fn understand(ingress: &Ingress, head: &Parts, body: Bytes) -> Result<Letter, Fault> {
    let letter = envelope::read(&head.headers, &body, ingress.clock.now());
    drop(body);
    letter
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

async fn take(ingress: &Ingress, letter: &Letter) -> Response {
    let node = letter.reading.vm().map(Vm::key).unwrap_or_default();
    let arrival = Arrival {
        reading: &letter.reading,
        source: letter.source,
        id: letter.id.as_deref(),
        doubts: &letter.doubts,
    };
    let foreign = letter.foreign.as_ref();
    let detail = foreign.map(|kind| format!("an event of type {kind}"));
    match ingress.reception.receive(&arrival).await {
        Ok(taken) => acknowledge(ingress, &node, taken, &detail.unwrap_or_default()).await,
        Err(Later(why)) => Problem::later(why).about(&node).into_response(),
    }
}

/// The effect is durable. One step for the node comes before the answer, so
/// that its evictions get CPU on a platform that gives it to requests only.
async fn acknowledge(ingress: &Ingress, node: &str, taken: Taken, detail: &str) -> Response {
    let Taken { ack, pass } = taken;
    let Some(serial) = pass else {
        return acknowledged(ack, node, detail);
    };
    // A repetition that finds its node at work has no step to wait for: in a
    // burst of them each would hold a place for as long as a pass takes.
    let at_work = ack.outcome == Told::Unchanged && is_at_work(ingress, &ack);
    if let Some(cluster) = ack.cluster.as_ref().filter(|_| !at_work) {
        let pass = ingress.wake.pass_over(cluster, serial);
        // Longer isn't waited for: the loop and the next tick go on with it.
        drop(tokio::time::timeout(STEP_TIMEOUT, pass).await);
    }
    acknowledged(ack, node, detail)
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

fn acknowledged(ack: Ack, node: &str, detail: &str) -> Response {
    let outcome = Outcome::of(&ack, node, detail);
    (Extension(outcome), Json(ack)).into_response()
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let (status, title, fault) = match fault {
            Fault::Malformed(fault) => (StatusCode::BAD_REQUEST, "malformed", fault),
            Fault::Unsupported(fault) => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not understood here",
                fault,
            ),
        };
        Self::new(status, title, fault.problem).at(fault.place)
    }
}
