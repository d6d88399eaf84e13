//! What it means that a stream of messages has ended.

use google_cloud_pubsub::Error;

use crate::telemetry::log::{self, Event, Subject};

/// What is needed to pull (Pub/Sub's access control page).
const PERMISSION: &str = "pubsub.subscriptions.consume";
/// Of the server's words, as many go to the log and to `/health/ready`.
const WORDS_MAX: usize = 300;

/// Why no messages come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Somebody has to grant something or make something: asking often is of
    /// no use.
    pub(super) denied: bool,
    /// One sentence.
    pub(super) what: String,
}

impl Trouble {
    /// What an error means. Errors that pass by themselves are not seen here:
    /// the client opens the stream again.
    pub(super) fn of(error: Option<&Error>, subscription: &str) -> Self {
        let Some(error) = error else {
            return Self {
                denied: false,
                what: format!("The stream of {subscription} has ended by itself."),
            };
        };
        let code = error.status().map_or("", |status| status.code.name());
        let words = error
            .status()
            .map_or_else(|| chain(error), |s| s.message.clone());
        let words: String = words.chars().filter(|c| !c.is_control()).collect();
        let words: String = words.chars().take(WORDS_MAX).collect();
        let what = match code {
            "PERMISSION_DENIED" => {
                format!("The service lacks the permission {PERMISSION} on {subscription}")
            }
            "NOT_FOUND" => format!(
                "There is no {subscription}, or the service lacks the permission {PERMISSION} on it"
            ),
            "UNAUTHENTICATED" => format!(
                "Pub/Sub doesn't accept the service's credentials, \
                 which need the permission {PERMISSION} on {subscription}"
            ),
            _ if error.is_authentication() => format!(
                "The service has no credentials, \
                 which need the permission {PERMISSION} on {subscription}"
            ),
            _ => {
                return Self {
                    denied: false,
                    what: format!("Nothing can be pulled from {subscription}: {code} {words}."),
                };
            }
        };
        Self {
            denied: true,
            what: format!("{what}: {code} {words}."),
        }
    }

    /// No try to open a stream succeeds.
    pub(super) fn in_vain(subscription: &str, why: &str) -> Self {
        Self {
            denied: false,
            what: format!("Nothing can be pulled from {subscription}: {why}."),
        }
    }

    /// Tells it.
    pub(super) fn tell(&self) {
        if self.denied {
            log::event(Event::PermissionMissing, &Subject::default(), &self.what);
        } else {
            tracing::error!("{}", self.what);
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
