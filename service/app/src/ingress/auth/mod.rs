//! Who may knock. Every route but health passes through here, before a byte
//! of the body is read.
//!
//! A token is valid or not (401), its bearer may or may not (403), and without
//! keys nobody can tell (503). Claims and header: Google's pages on ID tokens
//! and on authenticated Pub/Sub push.

mod claims;
mod fetch;
mod keys;
mod refusal;
mod rules;
mod token;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use self::keys::{Keys, Missing};
use self::refusal::Refusal;
use self::rules::Deed;
use self::token::Token;
use super::Ingress;
use crate::clock::Clock;

pub use self::claims::Claims;
pub use self::rules::{Email, Rules, Viewer};
pub use self::token::{Unreadable, Unverified, read};

/// Where Google publishes the keys of its identity tokens.
pub const GOOGLE_KEYS: &str = "https://www.googleapis.com/oauth2/v3/certs";

/// Cloud Run checks this header alone where a request has it, and passes
/// `Authorization` on unchecked. Whoever takes the platform's word must read
/// what the platform has read.
const SERVERLESS: HeaderName = HeaderName::from_static("x-serverless-authorization");

/// Who checks a sender's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// Nobody: only for a listener on loopback.
    None,
    /// This service.
    Jwks(Rules),
    /// The platform in front of it, which takes the signature off. One that
    /// arrives intact is checked all the same.
    Iam(Rules),
}

/// The check, with the keys that it has fetched.
pub struct Guard(Option<Checks>);

struct Checks {
    /// Whether the platform in front has checked what comes.
    platform: bool,
    rules: Rules,
    keys: Keys,
    clock: Clock,
}

impl Guard {
    /// A guard who knows no key yet: the first request has them fetched.
    ///
    /// # Errors
    /// When the HTTP client can't be set up.
    pub fn new(auth: Auth, clock: Clock) -> anyhow::Result<Self> {
        let (platform, rules) = match auth {
            Auth::None => return Ok(Self(None)),
            Auth::Jwks(rules) => (false, rules),
            Auth::Iam(rules) => (true, rules),
        };
        let keys = Keys::new(&rules.jwks_url, clock)?;
        Ok(Self(Some(Checks {
            platform,
            rules,
            keys,
            clock,
        })))
    }
}

/// The middleware that lets a request through, or answers it.
pub(super) async fn check(
    State(ingress): State<Arc<Ingress>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(checks) = &ingress.guard.0 {
        let deed = Deed::of(request.method());
        if let Err(refusal) = checks.admit(request.headers(), deed).await {
            return refusal.into_response();
        }
    }
    // Nobody further in needs a token, so that nobody there can show one.
    for name in [AUTHORIZATION, SERVERLESS] {
        request.headers_mut().remove(name);
    }
    next.run(request).await
}

impl Checks {
    async fn admit(&self, headers: &HeaderMap, deed: Deed) -> Result<(), Refusal> {
        let token = self.token(headers)?;
        let claims = self.verify(&token).await?;
        self.rules.allow(&claims, deed, self.platform)
    }

    fn token(&self, headers: &HeaderMap) -> Result<Token, Refusal> {
        let checked_by_platform = match self.platform {
            true => Token::of(headers, &SERVERLESS)?,
            false => None,
        };
        let token = match checked_by_platform {
            Some(token) => Some(token),
            None => Token::of(headers, &AUTHORIZATION)?,
        };
        token.ok_or_else(|| Refusal::invalid("no token: `Authorization: Bearer TOKEN` is expected"))
    }

    /// The claims of a token that is valid.
    async fn verify(&self, token: &Token) -> Result<Claims, Refusal> {
        let read = read(token.text()).map_err(|fault| Refusal::invalid(fault.to_string()))?;
        if read.algorithm != "RS256" {
            let named = refusal::quoted(&read.algorithm);
            let what = format!("the token's algorithm is {named}; RS256 is expected");
            return Err(Refusal::invalid(what));
        }
        // Said of the token before it is known to be genuine: it is refused by
        // either, and keys are fetched for nothing that is refused anyway.
        read.claims.check_issuer()?;
        read.claims.check_times(self.clock.now())?;
        match (read.signature_taken, self.platform) {
            (true, true) => Ok(read.claims),
            (true, false) => Err(Refusal::invalid(
                "the token's signature was taken off by the platform in front of this \
                 service: that is what `--auth iam` is for",
            )),
            (false, _) => self.check_signature(token, read.key_id.as_deref()).await,
        }
    }

    async fn check_signature(
        &self,
        token: &Token,
        key_id: Option<&str>,
    ) -> Result<Claims, Refusal> {
        let Some(key_id) = key_id else {
            return Err(Refusal::invalid("the token names no key (`kid`)"));
        };
        match self.keys.find(key_id).await {
            Ok(key) => open(token, &key),
            Err(Missing::Unknown) => {
                let named = refusal::quoted(key_id);
                let what = format!("the token's key {named} is none that Google publishes now");
                Err(Refusal::invalid(what))
            }
            Err(Missing::NotFetched(why)) => Err(Refusal::Undecided(format!(
                "the keys that tokens are signed with can't be fetched: {why}"
            ))),
        }
    }
}

/// The claims, if this key signed them. All else is checked by ourselves, by
/// the clock that we are given.
fn open(token: &Token, key: &DecodingKey) -> Result<Claims, Refusal> {
    let mut signature_alone = Validation::new(Algorithm::RS256);
    signature_alone.required_spec_claims.clear();
    signature_alone.validate_exp = false;
    signature_alone.validate_aud = false;
    match jsonwebtoken::decode(token.text(), key, &signature_alone) {
        Ok(opened) => Ok(opened.claims),
        // What the library says of it could repeat parts of the token.
        Err(_) => Err(Refusal::invalid("the token's signature is not right")),
    }
}
