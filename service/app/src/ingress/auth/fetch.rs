//! One fetch of the keys: a JSON Web Key Set (RFC 7517) over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{AGE, CACHE_CONTROL, HeaderName};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde_json::Value;

/// For the whole fetch, which a notice waits for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Google's two or three keys take two kilobytes.
const BODY_MAX: usize = 64 << 10;
const KEYS_MAX: usize = 32;
/// RSA keys of 2048 to 8192 bits, in bytes: what the check of a signature takes.
const MODULUS: std::ops::RangeInclusive<usize> = 256..=1024;
/// What a publisher may ask for: not so short that keys are fetched all the
/// time, nor so long that one that was withdrawn is trusted for days.
const LIFETIME_S: std::ops::RangeInclusive<i64> = 300..=86_400;
/// When it asks for nothing.
const LIFETIME_USUAL_S: i64 = 3600;

/// Where the keys are.
pub(super) struct Source {
    url: String,
    http: reqwest::Client,
}

/// What a fetch brought: at least one key.
pub(super) struct Fetched {
    pub(super) keys: BTreeMap<String, Arc<DecodingKey>>,
    pub(super) lifetime_s: i64,
}

impl Source {
    pub(super) fn new(url: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(Duration::from_secs(2))
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let url = url.to_owned();
        Ok(Self { url, http })
    }

    /// Where they are, as a line may show it: a query may hold a secret.
    pub(super) fn place(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// # Errors
    /// Why there are no keys to be had, without naming the place: strangers are
    /// told.
    pub(super) async fn fetch(&self) -> Result<Fetched, String> {
        let failed = |e: reqwest::Error| format!("{:#}", anyhow::Error::from(e.without_url()));
        let mut response = self.http.get(&self.url).send().await.map_err(failed)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(format!("HTTP {}", response.status().as_u16()));
        }
        let lifetime_s = lifetime_s(response.headers());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > BODY_MAX {
                return Err(format!("over {BODY_MAX} bytes of keys"));
            }
        }
        let keys = read(&body)?;
        Ok(Fetched { keys, lifetime_s })
    }
}

/// The keys of a set that may sign a token. Keys of other kinds are not ours.
fn read(body: &[u8]) -> Result<BTreeMap<String, Arc<DecodingKey>>, &'static str> {
    let set: Value = serde_json::from_slice(body).map_err(|_| "no JSON")?;
    let all = set.get("keys").and_then(Value::as_array);
    let all = all.ok_or("no set of keys")?;
    let keys: BTreeMap<_, _> = all.iter().filter_map(key).collect();
    match keys.len() {
        0 => Err("no RSA key for RS256 in the set of keys"),
        1..=KEYS_MAX => Ok(keys),
        _ => Err("too many keys"),
    }
}

fn key(json: &Value) -> Option<(String, Arc<DecodingKey>)> {
    let field = |name: &str| json.get(name).and_then(Value::as_str);
    let other = |name: &str, ours: &str| field(name).is_some_and(|value| value != ours);
    if field("kty") != Some("RSA") || other("use", "sig") || other("alg", "RS256") {
        return None;
    }
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(field(name)?).ok();
    let (modulus, exponent) = (bytes("n")?, bytes("e")?);
    let key = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
    let usable = MODULUS.contains(&modulus.len()) && !exponent.is_empty();
    usable.then(|| Some((field("kid")?.to_owned(), Arc::new(key))))?
}

/// `max-age`, less the time that the answer has lain in caches (RFC 9111).
fn lifetime_s(headers: &HeaderMap) -> i64 {
    let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let directives = text(CACHE_CONTROL).unwrap_or_default().split(',');
    let max_age = directives.filter_map(|d| d.trim().strip_prefix("max-age="));
    let max_age = max_age.filter_map(|s| s.parse().ok()).next();
    let age = text(AGE).and_then(|s| s.parse().ok()).unwrap_or(0);
    let left = max_age.map_or(LIFETIME_USUAL_S, |s: i64| s.saturating_sub(age));
    left.clamp(*LIFETIME_S.start(), *LIFETIME_S.end())
}
