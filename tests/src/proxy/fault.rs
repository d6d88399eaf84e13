//! What goes wrong, and with which requests.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status and body; the API server hears nothing of the request.
    Answer(u16, Value),
    /// No answer, ever; the API server hears nothing of the request.
    Hang,
    /// The connection ends; the API server hears nothing of the request.
    Drop,
    /// The request is passed on after this time.
    Delay(Duration),
    /// This fault, but only after this time.
    Late(Duration, Box<Self>),
    /// The request is passed on, and the connection ends instead of an answer.
    AnswerLost,
}

impl Fault {
    /// An answer with this status, as the API server would word it.
    pub fn status(code: u16) -> Self {
        Self::Answer(code, status_body(code, json!({})))
    }

    /// 429 as from API priority and fairness, or from a server that is overloaded.
    pub fn throttled(retry_after_s: Option<u32>) -> Self {
        let details = retry_after_s.map_or(json!({}), |s| json!({ "retryAfterSeconds": s }));
        Self::Answer(429, status_body(429, details))
    }

    /// 429 as API priority and fairness really words it: no `Status`, but text.
    pub fn throttled_in_words() -> Self {
        Self::Answer(429, json!("Too many requests, please try again later."))
    }

    /// A refusal by an admission webhook, which chooses the code itself.
    pub fn denied(code: u16) -> Self {
        let mut body = status_body(code, json!({}));
        body["message"] = json!("admission webhook \"guard.example.com\" denied the request: no");
        Self::Answer(code, body)
    }

    /// A refusal because the namespace is being deleted.
    pub fn namespace_terminating() -> Self {
        let cause =
            json!({ "reason": "NamespaceTerminating", "message": "it is being terminated" });
        Self::Answer(403, status_body(403, json!({ "causes": [cause] })))
    }

    /// The same, but only after this time.
    pub fn late(self, time: Duration) -> Self {
        Self::Late(time, Box::new(self))
    }

    /// A refusal with the cause `DisruptionBudget`: 429, or 403 when the budget
    /// is in disorder.
    pub fn budget(code: u16) -> Self {
        let cause = json!({ "reason": "DisruptionBudget", "message": "The budget needs 1 more" });
        Self::Answer(code, status_body(code, json!({ "causes": [cause] })))
    }
}

fn status_body(code: u16, details: Value) -> Value {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        413 => "RequestEntityTooLarge",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the test asked for this", "reason": reason, "details": details, "code": code,
    })
}

/// Which requests a fault or a count is about: all, or those of a method whose
/// path and query contain all of the given texts.
#[derive(Clone, Debug, Default)]
pub struct On {
    method: Option<Method>,
    parts: Vec<String>,
}

impl On {
    /// Every request.
    pub fn all() -> Self {
        Self::default()
    }

    /// Requests of this method whose path and query contain `part`.
    pub fn new(method: Method, part: &str) -> Self {
        Self {
            method: Some(method),
            parts: vec![part.into()],
        }
    }

    /// Only those whose path and query contain this too.
    pub fn and(mut self, part: &str) -> Self {
        self.parts.push(part.into());
        self
    }

    /// Whether a request is one of these.
    pub fn matches(&self, request: &Seen) -> bool {
        let method = self
            .method
            .as_ref()
            .is_none_or(|method| *method == request.method);
        method
            && self
                .parts
                .iter()
                .all(|part| request.path.contains(part.as_str()))
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// When it came.
    pub at: Instant,
    /// When it was answered or given up.
    pub over: Option<Instant>,
}
