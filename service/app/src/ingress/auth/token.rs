//! A bearer token: out of its header, and into its parts.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::claims::Claims;
use super::refusal::Refusal;

/// Google's have about one kilobyte; more is not worth decoding.
const TOKEN_MAX: usize = 8 << 10;
/// What Cloud Run puts in place of a signature that it has checked.
const TAKEN: &str = "SIGNATURE_REMOVED_BY_GOOGLE";

/// A token as it came. Whoever has it may do what its bearer may, so that it
/// must not be shown.
pub(super) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(not shown)")
    }
}

impl Token {
    /// The token in the header of this name, if a request has that header.
    pub(super) fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Refusal> {
        let mut values = headers.get_all(name).into_iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Refusal::invalid(format!("more than one {name} header")));
        }
        let text = value.to_str().unwrap_or_default();
        let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
            let what = format!("the {name} header is not `Bearer TOKEN`");
            return Err(Refusal::invalid(what));
        }
        if token.contains([' ', '\t', ',']) {
            let what = format!("the {name} header has more in it than one token");
            return Err(Refusal::invalid(what));
        }
        Ok(Some(Self(token.to_owned())))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// What a token says of itself, before anything is known to be true.
#[derive(Debug, Clone, PartialEq)]
pub struct Unverified {
    /// How it claims to be signed.
    pub algorithm: String,
    /// The key by which it claims to be signed.
    pub key_id: Option<String>,
    /// What it claims.
    pub claims: Claims,
    /// The mark of the platform is in place of the signature.
    pub signature_taken: bool,
}

/// Why a text is no token. Repeats nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token {0}")]
pub struct Unreadable(&'static str);

/// Takes any text apart as a token in compact form (RFC 7515, section 7.1).
///
/// # Errors
/// When it is none.
pub fn read(text: &str) -> Result<Unverified, Unreadable> {
    if text.len() > TOKEN_MAX {
        return Err(Unreadable("has over 8192 bytes"));
    }
    let mut parts = text.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Unreadable("does not have three parts"));
    };
    let header: Map<String, Value> =
        decode(header).ok_or(Unreadable("has a header that is no base64url of JSON"))?;
    let claims = decode(claims).ok_or(Unreadable("has claims that are no base64url of JSON"))?;
    let field = |name: &str| header.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Unverified {
        algorithm: field("alg").ok_or(Unreadable("names no algorithm"))?,
        key_id: field("kid"),
        claims,
        signature_taken: signature == TAKEN,
    })
}

fn decode<T: DeserializeOwned>(part: &str) -> Option<T> {
    let json = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&json).ok()
}
