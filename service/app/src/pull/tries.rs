//! How often the client tries to open a stream.
//!
//! It tries again by itself when Pub/Sub can't be reached, when a connection
//! breaks, or when there is no token, for ever and without a word. But it asks
//! for credentials at each try, and that is where tries are seen, and where they
//! are slowed down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use google_cloud_auth::credentials::{CacheableResource, Credentials, CredentialsProvider};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};
use tokio::time::Instant;

/// A stream is opened anew now and then, after half an hour at the latest, and
/// the acknowledgements that are under way when the last message has left ask for
/// credentials too. So many tries mean that none succeeds.
const FEW: u32 = 3;
/// The client's own pauses get that long, and ours as well: when there was no try
/// for the time of both, the last one has succeeded.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(150);

/// Tries without success.
#[derive(Debug, Default)]
pub(super) struct Tries(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    count: u32,
    last: Option<Instant>,
    /// Messages that are here: their acknowledgements and leases ask for
    /// credentials too.
    here: u32,
    fault: Option<String>,
}

impl Tries {
    /// A message has come: the stream works.
    pub(super) fn message_came(&self) {
        let mut state = self.lock();
        state.here += 1;
        state.count = 0;
        state.fault = None;
    }

    /// A message has left.
    pub(super) fn message_left(&self) {
        let mut state = self.lock();
        state.here = state.here.saturating_sub(1);
    }

    /// A stream has ended, and said why.
    pub(super) fn answered(&self) {
        self.lock().count = 0;
    }

    /// What is wrong, if no try succeeds.
    pub(super) fn in_vain(&self) -> Option<String> {
        let state = self.lock();
        let recent = state.last.is_some_and(|last| last.elapsed() < QUIET);
        (state.count > FEW && recent).then(|| {
            let fault = state.fault.as_deref();
            fault.unwrap_or("no connection, or no answer").to_owned()
        })
    }

    /// Counts a try, and gives the pause before it.
    fn begin(&self) -> Duration {
        let mut state = self.lock();
        if state.here > 0 {
            return Duration::ZERO;
        }
        if state.last.is_none_or(|last| last.elapsed() >= QUIET) {
            state.count = 0;
        }
        state.count += 1;
        state.last = Some(Instant::now());
        // Most errors have pauses in the client; a connection that is accepted
        // and broken at once has none.
        let Some(over) = state.count.checked_sub(2 * FEW) else {
            return Duration::ZERO;
        };
        Duration::from_millis(100)
            .saturating_mul(2_u32.saturating_pow(over))
            .min(PAUSE_MAX)
    }

    fn failed(&self, error: &CredentialsError) {
        self.lock().fault = Some(format!("no credentials: {error}"));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Credentials that count who asks for them.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) credentials: Credentials,
    pub(super) tries: Arc<Tries>,
}

impl CredentialsProvider for Counted {
    async fn headers(
        &self,
        extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        tokio::time::sleep(self.tries.begin()).await;
        let headers = self.credentials.headers(extensions).await;
        headers.inspect_err(|error| self.tries.failed(error))
    }

    async fn universe_domain(&self) -> Option<String> {
        self.credentials.universe_domain().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FEW, PAUSE_MAX, QUIET, Tries};

    #[tokio::test(start_paused = true)]
    async fn tries_without_success_are_seen_and_slowed_down_until_one_succeeds() {
        let tries = Tries::default();
        for _ in 0..FEW {
            assert_eq!(tries.begin(), Duration::ZERO);
        }
        assert_eq!(tries.in_vain(), None);
        tries.begin();
        assert!(tries.in_vain().is_some());
        let pauses: Vec<_> = (0..20).map(|_| tries.begin()).collect();
        assert!(
            pauses.is_sorted() && pauses.last() == Some(&PAUSE_MAX),
            "{pauses:?}"
        );
        // One has succeeded, though nothing came of it.
        tokio::time::advance(QUIET).await;
        assert_eq!(tries.in_vain(), None);
        assert_eq!(tries.begin(), Duration::ZERO);
        for _ in 0..FEW {
            tries.begin();
        }
        assert!(tries.in_vain().is_some());
        tries.message_came();
        assert_eq!(tries.in_vain(), None);
        // Acknowledgements and leases of what is here are no tries.
        (0..20).for_each(|_| assert_eq!(tries.begin(), Duration::ZERO));
        tries.message_left();
        assert_eq!(tries.in_vain(), None);
    }
}
