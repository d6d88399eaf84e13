//! What an answer of the API server means for the caller.
//!
//! Source of the rules: the Eviction handler of Kubernetes (429 or 403 with
//! cause `DisruptionBudget`; 504 after its own retries; 500 for two budgets on
//! one pod), and the API conventions for the other codes.

use std::time::Duration;

use drainwell_core::action::Outcome;
use kube::core::Status;

use crate::driver::ports::CallError;

const BUDGET_CAUSE: &str = "DisruptionBudget";
/// Texts of a server in logs and answers are cut to this.
const TEXT_MAX: usize = 400;
const NAMESPACE_CAUSE: &str = "NamespaceTerminating";

/// Why a call failed, before it is known whether a 403 is a matter of roles.
pub(super) enum Failure {
    /// The server answered.
    Answer(Box<Status>),
    /// No answer: transport, or our own time limit.
    NoAnswer(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::Answer(status);
        }
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            let inner_text = inner.to_string();
            if !text.contains(&inner_text) {
                text = format!("{text}: {inner_text}");
            }
            source = inner.source();
        }
        Self::NoAnswer(text)
    }
}

impl Failure {
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Answer(status) => Some(status.code),
            Self::NoAnswer(_) => None,
        }
    }

    /// A refusal that roles or admission may have caused: ask which.
    pub(super) fn is_forbidden(&self) -> bool {
        self.code() == Some(403) && !self.is_budget() && !self.has(NAMESPACE_CAUSE)
    }

    fn has(&self, cause: &str) -> bool {
        let Self::Answer(status) = self else {
            return false;
        };
        let causes = status.details.iter().flat_map(|d| &d.causes);
        causes.into_iter().any(|c| c.reason == cause)
    }

    fn after_s(&self) -> Option<u32> {
        let Self::Answer(status) = self else {
            return None;
        };
        status
            .details
            .as_ref()
            .map(|d| d.retry_after_seconds)
            .filter(|s| *s > 0)
    }

    /// Bounded: a proxy may answer with a whole page.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Answer(status) => {
                let message: String = status.message.chars().take(TEXT_MAX).collect();
                format!("{} {}: {message}", status.code, status.reason)
            }
            Self::NoAnswer(why) => why.chars().take(TEXT_MAX).collect(),
        }
    }

    /// Whether admission refused: webhooks and policies choose the code, and
    /// both say so in these words (apiserver, `plugin/webhook` and `plugin/policy`).
    fn is_denied(&self) -> bool {
        let Self::Answer(status) = self else {
            return false;
        };
        let denied = ["denied the request", "denied request"];
        denied.iter().any(|words| status.message.contains(words))
    }

    /// A budget's own 403s: too many pods being disrupted, or a count below zero.
    fn is_budget(&self) -> bool {
        let Self::Answer(status) = self else {
            return false;
        };
        let kind = status.details.as_ref().map_or("", |d| d.kind.as_str());
        self.has(BUDGET_CAUSE) || kind.to_ascii_lowercase().starts_with("poddisruptionbudget")
    }

    /// What the budget says: the cause's text names it and how many it wants.
    fn budget_text(&self) -> String {
        let Self::Answer(status) = self else {
            return self.text();
        };
        let causes = status.details.iter().flat_map(|d| &d.causes);
        let cause = causes.into_iter().find(|c| c.reason == BUDGET_CAUSE);
        cause.map_or_else(|| status.message.clone(), |c| c.message.clone())
    }

    /// For reads, and for patches of Nodes. `allowed`: roles permit the call.
    pub(super) fn into_call_error(self, what: &str, allowed: bool) -> CallError {
        match self.code() {
            Some(403) if allowed => CallError::Refused { why: self.text() },
            Some(401 | 403) => CallError::Denied {
                what: what.to_owned(),
            },
            _ if self.is_denied() => CallError::Refused { why: self.text() },
            Some(409) => CallError::Stale,
            // A failed `test` of a JSON patch names no field; an object that
            // would be invalid does.
            Some(422) if !self.names_causes() => CallError::Stale,
            Some(400 | 413 | 422) => CallError::Refused { why: self.text() },
            _ => CallError::Unavailable {
                why: self.text(),
                after: self.after_s().map(|s| Duration::from_secs(s.into())),
            },
        }
    }

    fn names_causes(&self) -> bool {
        let Self::Answer(status) = self else {
            return false;
        };
        status
            .details
            .as_ref()
            .is_some_and(|d| !d.causes.is_empty())
    }

    /// For evictions and deletions. `allowed`: roles permit the call.
    pub(super) fn into_outcome(self, what: &str, allowed: bool) -> Outcome {
        let two_budgets = "more than one PodDisruptionBudget";
        match self.code() {
            Some(404) => Outcome::Done,
            _ if self.is_denied() && self.code() != Some(403) => {
                Outcome::Refused { why: self.text() }
            }
            Some(409) => Outcome::Stale,
            Some(429 | 403) if self.is_budget() => Outcome::Blocked {
                why: self.budget_text(),
            },
            Some(500) if self.text().contains(two_budgets) => Outcome::Blocked {
                why: "more than one disruption budget covers the pod".to_owned(),
            },
            Some(504) => Outcome::Blocked {
                why: "its disruption budget is contended".to_owned(),
            },
            Some(403) if allowed && self.is_forbidden() => Outcome::Refused { why: self.text() },
            Some(403) if self.is_forbidden() => Outcome::Retry {
                why: format!("permission missing: {what}"),
                after_s: None,
            },
            _ => Outcome::Retry {
                after_s: self.after_s(),
                why: self.text(),
            },
        }
    }
}
