//! Access tokens of the application default credentials: the metadata server's
//! on Google Cloud, else what `GOOGLE_APPLICATION_CREDENTIALS` or gcloud left.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use google_cloud_auth::credentials::{AccessTokenCredentials, Builder};
use http::HeaderValue;
use tokio::time::Instant;

use crate::driver::ports::CallError;

/// What a service account may do is said by its roles, not by scopes.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The credentials' own fetch has no limit.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Credentials that are no good are not made anew for every call.
const RENEW_EVERY: Duration = Duration::from_secs(60);

/// Whence all clients have their tokens, which it caches and fetches again some
/// minutes before they expire.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    credentials: AccessTokenCredentials,
    /// How often they were made anew.
    serial: u64,
    renewed_at: Option<Instant>,
}

/// A token as a request carries it.
#[derive(Clone, Debug)]
pub struct Token {
    /// `Bearer …`, never shown.
    pub header: HeaderValue,
    serial: u64,
}

impl Tokens {
    /// Finds the credentials. Whether there is a token to be had shows only when
    /// one is asked for.
    ///
    /// # Errors
    /// When a file of credentials is named, but is none.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(State {
            credentials: credentials()?,
            serial: 0,
            renewed_at: None,
        }))))
    }

    /// A token that has some time left.
    ///
    /// # Errors
    /// When there is none to be had now.
    pub async fn get(&self) -> Result<Token, CallError> {
        let (credentials, serial) = {
            let state = self.lock();
            (state.credentials.clone(), state.serial)
        };
        let fetched = tokio::time::timeout(TIMEOUT, credentials.access_token()).await;
        let fetched = fetched.map_err(|_| format!("no answer within {} s", TIMEOUT.as_secs()));
        let token = match fetched.and_then(|token| token.map_err(|error| chain(&error))) {
            Ok(token) => token.token,
            Err(why) => {
                // Having failed for good once, they would never ask again.
                self.renew(serial);
                return Err(CallError::unavailable(format!("no access token: {why}")));
            }
        };
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header = header.map_err(|_| {
            CallError::unavailable("no access token: it holds what no header can carry")
        })?;
        header.set_sensitive(true);
        Ok(Token { header, serial })
    }

    /// Whether another try may go better after this token was refused: there are
    /// new credentials, made by now or already by somebody else.
    #[must_use]
    pub fn refused(&self, token: &Token) -> bool {
        self.renew(token.serial)
    }

    fn renew(&self, serial: u64) -> bool {
        let mut state = self.lock();
        if state.serial != serial {
            return true;
        }
        let rested = |at: Instant| at.elapsed() >= RENEW_EVERY;
        if !state.renewed_at.is_none_or(rested) {
            return false;
        }
        state.renewed_at = Some(Instant::now());
        match credentials() {
            Ok(credentials) => {
                state.credentials = credentials;
                state.serial += 1;
                true
            }
            Err(error) => {
                tracing::warn!("The credentials can't be made anew: {error:#}");
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn credentials() -> anyhow::Result<AccessTokenCredentials> {
    Builder::default()
        .with_scopes([SCOPE])
        .build_access_token_credentials()
        .context("no application default credentials")
}

/// An error with what caused it.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
