//! Why a request isn't let in: as its sender is told, and as the log says it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::super::outcome::Outcome;
use super::super::problem::Problem;

/// What is shown of a text that a stranger has sent.
const SHOWN_MAX: usize = 100;

/// A request that isn't let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No token, or one that isn't valid.
    Invalid(String),
    /// A valid token of somebody who may not.
    Forbidden {
        /// For the sender.
        what: String,
        /// What would have been let in: for the log alone, since anybody can
        /// have a valid token of some kind.
        accepted: String,
    },
    /// It can't be told yet.
    Undecided(String),
}

impl Refusal {
    pub(super) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    pub(super) fn forbidden(what: impl Into<String>, accepted: impl Into<String>) -> Self {
        Self::Forbidden {
            what: what.into(),
            accepted: accepted.into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Invalid(what) => {
                let problem = Problem::new(StatusCode::UNAUTHORIZED, "not authenticated", what);
                let mut response = problem.into_response();
                let scheme = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, scheme);
                response
            }
            Self::Forbidden { what, accepted } => {
                let problem = Problem::new(StatusCode::FORBIDDEN, "not allowed", what);
                let mut response = problem.into_response();
                if let Some(outcome) = response.extensions_mut().get_mut::<Outcome>() {
                    outcome.add(accepted);
                }
                response
            }
            Self::Undecided(what) => Problem::later(what).into_response(),
        }
    }
}

/// The beginning of a stranger's text, with nothing in it that a terminal or a
/// log would act upon.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
