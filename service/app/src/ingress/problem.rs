//! Answers that are no success: problem+json (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A problem, as the sender sees it. Repeats no bodies and no tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    place: Option<String>,
}

/// When to come again, in seconds: Pub/Sub has its own backoff, others don't.
const RETRY_AFTER_S: &str = "10";

impl Problem {
    /// A problem with a status.
    #[must_use]
    pub(super) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            title,
            detail: detail.into(),
            place: None,
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
        let content_type = (header::CONTENT_TYPE, "application/problem+json");
        let mut response = (self.status, [content_type], body.to_string()).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let after = axum::http::HeaderValue::from_static(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}
