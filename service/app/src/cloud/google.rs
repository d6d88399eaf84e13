//! What the clients of Google's APIs share: one HTTP client, the credentials,
//! and calls that are bounded and counted. Nothing is retried, but once with a
//! new token where one was refused.

use std::time::Duration;

use http::Method;
use http::header::AUTHORIZATION;
use serde_json::Value;

use super::tokens::{Tokens, chain};
use crate::driver::ports::CallError;
use crate::telemetry::metrics::Metrics;

/// Time for one call, within the five seconds of an idle tick.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// A page of 500 VMs or a project's clusters, of which only the fields that are
/// named are sent, stay well below.
const BODY_MAX: usize = 16 << 20;

/// Google's APIs, as this process may use them.
#[derive(Clone, Debug)]
pub struct Google {
    http: reqwest::Client,
    tokens: Tokens,
    metrics: Metrics,
}

/// A call, as it is sent, counted, and told of.
#[derive(Debug)]
pub struct Call<'a> {
    /// The API, as metrics name it.
    pub api: &'static str,
    /// The verb, as metrics name it.
    pub verb: &'static str,
    /// Its method.
    pub method: Method,
    /// Without the query.
    pub url: &'a str,
    /// Name and value of each parameter.
    pub query: &'a [(&'a str, &'a str)],
    /// For a POST.
    pub body: Option<&'a Value>,
    /// The permission that it takes, and on what: `compute.instances.get on project p`.
    pub permission: &'a str,
}

impl Google {
    /// With the application default credentials, counting calls in `metrics`.
    ///
    /// # Errors
    /// When the credentials or the HTTP client can't be set up.
    pub fn new(metrics: &Metrics) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .connect_timeout(Duration::from_secs(2))
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            http,
            tokens: Tokens::new()?,
            metrics: metrics.clone(),
        })
    }

    /// Where the tokens come from.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Makes a call. `None` is 404.
    ///
    /// # Errors
    /// `Denied` names the permission that is missing; anything else may go
    /// better another time, but for `Refused`.
    pub async fn call(&self, call: &Call<'_>) -> Result<Option<Value>, CallError> {
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.with_token(call)).await;
        answer.unwrap_or_else(|_| {
            self.metrics.call(call.api, call.verb, None);
            let why = format!("no answer within {} s", CALL_TIMEOUT.as_secs());
            Err(CallError::unavailable(why))
        })
    }

    async fn with_token(&self, call: &Call<'_>) -> Result<Option<Value>, CallError> {
        let mut token = self.tokens.get().await?;
        let mut answer = self.send(call, &token.header).await?;
        if answer.0 == 401 && self.tokens.refused(&token) {
            token = self.tokens.get().await?;
            answer = self.send(call, &token.header).await?;
        }
        let (status, body) = answer;
        match status {
            200 => serde_json::from_slice(&body)
                .map(Some)
                .map_err(|e| CallError::unavailable(format!("unreadable answer: {e}"))),
            404 => Ok(None),
            401 => Err(CallError::unavailable("the access token is refused")),
            403 => Err(CallError::Denied {
                what: call.permission.to_owned(),
            }),
            400 => Err(CallError::Refused {
                why: format!("HTTP 400: {}", message(&body)),
            }),
            _ => Err(CallError::unavailable(format!("HTTP {status}"))),
        }
    }

    /// One request: its status and body, which are counted.
    async fn send(
        &self,
        call: &Call<'_>,
        token: &http::HeaderValue,
    ) -> Result<(u16, Vec<u8>), CallError> {
        let sent = self.exchange(call, token).await;
        let code = sent.as_ref().ok().map(|(status, _)| *status);
        self.metrics.call(call.api, call.verb, code);
        sent
    }

    async fn exchange(
        &self,
        call: &Call<'_>,
        token: &http::HeaderValue,
    ) -> Result<(u16, Vec<u8>), CallError> {
        let failed = |e: reqwest::Error| CallError::unavailable(chain(&e.without_url()));
        let mut request = self.http.request(call.method.clone(), call.url);
        request = request
            .query(call.query)
            .header(AUTHORIZATION, token.clone());
        if let Some(body) = call.body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > BODY_MAX {
                let why = format!("over {BODY_MAX} bytes of answer");
                return Err(CallError::unavailable(why));
            }
        }
        Ok((status, body))
    }
}

/// What Google's JSON APIs say went wrong.
fn message(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let told = json
        .as_ref()
        .and_then(|json| json.pointer("/error/message"));
    let told = told.and_then(Value::as_str).unwrap_or("no reason given");
    told.chars().take(300).collect()
}
