//! What a token claims. A claim of an odd type counts as missing.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::{Refusal, quoted};

/// Google's clock and ours may be this far apart.
const SKEW_S: i64 = 60;
/// Google's documentation names both forms.
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Claims(Map<String, Value>);

impl Claims {
    pub(super) fn check_issuer(&self) -> Result<(), Refusal> {
        match self.text("iss") {
            Some(issuer) if ISSUERS.contains(&issuer) => Ok(()),
            issuer => {
                let issuer = quoted(issuer.unwrap_or_default());
                let what = format!(
                    "the token's issuer is {issuer}; {:?} is expected",
                    ISSUERS[0]
                );
                Err(Refusal::invalid(what))
            }
        }
    }

    pub(super) fn check_times(&self, now: Timestamp) -> Result<(), Refusal> {
        let now = now.as_second();
        let Some(expires) = self.seconds("exp") else {
            return Err(Refusal::invalid("the token does not say when it expires"));
        };
        let Some(issued) = self.seconds("iat") else {
            return Err(Refusal::invalid(
                "the token does not say when it was issued",
            ));
        };
        let ago = now.saturating_sub(expires);
        if ago >= SKEW_S {
            return Err(Refusal::invalid(format!("the token expired {ago} s ago")));
        }
        let ahead = issued.saturating_sub(now);
        if ahead > SKEW_S {
            let what = format!("the token was issued {ahead} s from now, by this clock");
            return Err(Refusal::invalid(what));
        }
        let ahead = self.seconds("nbf").map_or(0, |n| n.saturating_sub(now));
        if ahead > SKEW_S {
            let what = format!("the token is not valid before {ahead} s from now");
            return Err(Refusal::invalid(what));
        }
        Ok(())
    }

    /// The bearer's e-mail address, which Google vouches for.
    pub(super) fn verified_email(&self) -> Result<&str, Refusal> {
        let Some(email) = self.text("email") else {
            let what = "the token has no e-mail address: ask for it with the token \
                        (scope `email`, or the format `full` of a metadata server)";
            return Err(Refusal::forbidden(what, ""));
        };
        if self.0.get("email_verified") != Some(&Value::Bool(true)) {
            let what = format!(
                "the token's e-mail address {} is not verified",
                quoted(email)
            );
            return Err(Refusal::forbidden(what, ""));
        }
        Ok(email)
    }

    /// Whether an organisation manages the account. Only then is Google sure
    /// that the address is still its bearer's: anyone who once had an address
    /// can have made a private account of it (Google's page on verifying ID
    /// tokens, on `hd`).
    pub(super) fn is_managed(&self) -> bool {
        self.text("hd").is_some_and(|domain| !domain.is_empty())
    }

    /// For whom the token was made.
    pub(super) fn audiences(&self) -> Vec<&str> {
        match self.0.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Seconds since 1970; RFC 7519 allows fractions.
    fn seconds(&self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        let whole = value.as_f64().filter(|f| f.abs() < 1e15).map(|f| f as i64);
        value.as_i64().or(whole)
    }
}
