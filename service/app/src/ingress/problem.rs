//! Answers that are no success: problem+json (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::outcome::Outcome;

/// A problem, as the sender sees it. Repeats no bodies and no tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    place: Option<String>,
    node: String,
}

/// Reasons may quote others (an API server, say), whose texts have no bound.
const DETAIL_MAX: usize = 500;

/// When to come again, in seconds: Pub/Sub has its own backoff, others don't.
const RETRY_AFTER_S: &str = "10";

impl Problem {
    /// A problem with a status.
    #[must_use]
    pub(super) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        let plain = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
        Self {
            status,
            title,
            detail: plain.take(DETAIL_MAX).collect(),
            place: None,
            node: String::new(),
        }
    }

    /// It can't be decided now.
    #[must_use]
    pub(super) fn later(why: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "cannot be decided now",
            why,
        )
    }

    /// Where in the body the fault is.
    #[must_use]
    pub(super) fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Which node it is about, for the log.
    #[must_use]
    pub(super) fn about(mut self, node: &str) -> Self {
        node.clone_into(&mut self.node);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": "about:blank",
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(place) = &self.place {
            body["place"] = json!(place);
        }
        let reason = match &self.place {
            Some(place) => format!("{place}: {}", self.detail),
            None => self.detail,
        };
        let outcome = Outcome::refused(self.title, reason, self.node);
        let content_type = (header::CONTENT_TYPE, "application/problem+json");
        let mut response = (self.status, [content_type], body.to_string()).into_response();
        response.extensions_mut().insert(outcome);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let after = axum::http::HeaderValue::from_static(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}
