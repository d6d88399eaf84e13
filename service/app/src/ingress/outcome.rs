//! What became of a request that should have brought a notice: one line each,
//! whoever answered it.
//!
//! What the line says rides on the answer. The layer stands outside of all
//! others, so that refused, broken and abandoned requests are told as well.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::intake::{Ack, Told};
use crate::telemetry::log::Event;
use crate::telemetry::trace::{self, Trace};

/// What there is to tell besides the status.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// One of the answer's outcomes, or the title of a problem.
    outcome: String,
    reason: String,
    node: String,
    detail: String,
    ignored: bool,
}

impl Outcome {
    /// A notice is acknowledged.
    pub(super) fn of(ack: &Ack, node: &str, detail: &str) -> Self {
        let name = |value: serde_json::Result<serde_json::Value>| {
            let value = value.unwrap_or_default();
            value.as_str().unwrap_or_default().to_owned()
        };
        Self {
            outcome: name(serde_json::to_value(ack.outcome)),
            reason: name(serde_json::to_value(ack.reason)),
            node: node.to_owned(),
            detail: detail.to_owned(),
            ignored: ack.outcome == Told::Ignored,
        }
    }

    /// A request is refused.
    pub(super) fn refused(title: &str, reason: String, node: String) -> Self {
        Self {
            outcome: title.to_owned(),
            reason,
            node,
            ..Self::default()
        }
    }

    /// With more for the log than the sender is told.
    pub(super) fn add(&mut self, detail: String) {
        self.detail = detail;
    }
}

/// The layer: everything that a request writes to the log bears its trace, and
/// what became of a notice is told once. So is whoever is not let in, wherever
/// they knocked.
pub(super) async fn tell(request: Request, next: Next) -> Response {
    let trace = Trace::of(request.headers());
    let path = request.uri().path();
    let health = path.starts_with("/health/");
    let notice = request.method() == Method::POST && (path == "/" || path == "/events");
    let answered = async {
        let mut unanswered = Unanswered(notice);
        let answer = next.run(request).await;
        unanswered.0 = false;
        if notice || (turned_away(answer.status()) && !health) {
            write(&answer);
        }
        answer
    };
    trace::during(trace, answered).await
}

/// Not let in, or put off: at a tick or a page, too, somebody wants to know why.
fn turned_away(status: StatusCode) -> bool {
    let all = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    all.contains(&status)
}

/// Whether an answer is owed. When the sender leaves, the work on its request is
/// dropped, and this with it.
struct Unanswered(bool);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.0 {
            let what = "The sender left before the answer: the notice has to come again.";
            tracing::warn!(outcome = "unanswered", "{what}");
        }
    }
}

fn write(answer: &Response) {
    let status = answer.status();
    let told = answer.extensions().get::<Outcome>();
    let Outcome {
        outcome,
        reason,
        node,
        detail,
        ignored,
    } = told.cloned().unwrap_or_default();
    let code = status.as_u16();
    let event = match status {
        _ if ignored => Some(Event::NoticeIgnored),
        _ if status.is_client_error() => Some(Event::NoticeRejected),
        _ => None,
    };
    let event = event.map(Event::name);
    let mut what = match status {
        StatusCode::SERVICE_UNAVAILABLE => format!("It has to come again: {reason}"),
        _ if ignored => format!("Nothing to do: {reason}"),
        _ if status.is_success() => format!("Answered {code}: {outcome}"),
        _ => format!("Answered {code}, {outcome}: {reason}"),
    };
    if !detail.is_empty() {
        what = format!("{what} ({detail})");
    }
    let reason = Some(reason).filter(|reason| !reason.is_empty());
    // `tracing` wants the level at compile time.
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                event,
                status = code,
                outcome,
                reason,
                labels.node_name = node,
                "{what}."
            )
        };
    }
    match status {
        _ if status.is_success() => line!(info),
        StatusCode::INTERNAL_SERVER_ERROR => line!(error),
        _ => line!(warn),
    }
}
