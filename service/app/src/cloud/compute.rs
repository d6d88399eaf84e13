//! Compute Engine adapter: `instances.get`, with a token of the metadata
//! server. Field names: Compute's v1 discovery document.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use drainwell_core::notice::{Vm, known_reasons};
use drainwell_core::observed::{Instance, Maintenance};
use google_cloud_auth::credentials::AccessTokenCredentials;
use serde_json::Value;

use crate::driver::ports::{CallError, Cloud};
use crate::telemetry::metrics::Metrics;

/// Time for one call, within the five seconds of an idle tick.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// An instance's JSON with large user metadata stays under 1 MiB.
const BODY_MAX: usize = 4 << 20;
/// Of the whole instance, which may hold secrets in its metadata, only these.
const FIELDS: &str = "id,name,status,labels,creationTimestamp,lastStartTimestamp,\
                      scheduling/onHostMaintenance,resourceStatus/upcomingMaintenance";

/// Where Compute's API is, if nothing else is configured.
pub const GOOGLE: &str = "https://compute.googleapis.com";

/// Compute Engine.
pub struct Compute {
    endpoint: String,
    http: reqwest::Client,
    credentials: AccessTokenCredentials,
    metrics: Metrics,
}

impl Compute {
    /// A client for the API at `endpoint` (no path).
    ///
    /// # Errors
    /// When credentials or the HTTP client can't be set up. Whether a token
    /// is to be had shows only at the first call.
    pub fn new(endpoint: &str) -> anyhow::Result<Self> {
        let credentials = google_cloud_auth::credentials::mds::Builder::default()
            .with_scopes(["https://www.googleapis.com/auth/cloud-platform"])
            .build_access_token_credentials()
            .context("no credentials from the metadata server")?;
        let http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .connect_timeout(Duration::from_secs(2))
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            http,
            credentials,
            metrics: Metrics::default(),
        })
    }

    /// The same, counting its calls in `metrics`.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    async fn get(&self, vm: &Vm, code: &mut Option<u16>) -> Result<Option<Instance>, CallError> {
        let token = self
            .credentials
            .access_token()
            .await
            .map_err(|e| CallError::unavailable(format!("no access token: {}", chain(&e))))?;
        let Vm { project, zone, .. } = vm;
        let url = format!(
            "{}/compute/v1/projects/{project}/zones/{zone}/instances/{}",
            self.endpoint,
            vm.key()
        );
        let request = self
            .http
            .get(url)
            .query(&[("fields", FIELDS)])
            .bearer_auth(token.token);
        let failed = |e: reqwest::Error| CallError::unavailable(chain(&e.without_url()));
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        *code = Some(status);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > BODY_MAX {
                return Err(CallError::unavailable(format!(
                    "over {BODY_MAX} bytes of answer"
                )));
            }
        }
        match status {
            200 => serde_json::from_slice(&body)
                .map_err(|e| e.to_string())
                .and_then(|json: Value| instance(&json))
                .map(Some)
                .map_err(|e| CallError::unavailable(format!("unreadable answer: {e}"))),
            404 => Ok(None),
            401 | 403 => Err(CallError::Denied {
                what: format!("compute.instances.get on project {project}"),
            }),
            _ => Err(CallError::unavailable(format!("HTTP {status}"))),
        }
    }
}

#[async_trait]
impl Cloud for Compute {
    async fn instance(&self, vm: &Vm) -> Result<Option<Instance>, CallError> {
        let mut code = None;
        // The token's own fetch has no limit that is ours.
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.get(vm, &mut code)).await;
        self.metrics.call("compute", "get", code);
        match answer {
            Ok(result) => result,
            Err(_) => Err(CallError::unavailable(format!(
                "no answer within {} s",
                CALL_TIMEOUT.as_secs()
            ))),
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

/// An instance from the API's JSON. Only identity is needed: any other field
/// that is missing, null or of a new type is left unset.
fn instance(json: &Value) -> Result<Instance, String> {
    let text = |pointer: &str| json.pointer(pointer).and_then(Value::as_str);
    let time = |pointer: &str| text(pointer).and_then(|t| t.parse().ok());
    // A number as a string, since JSON's numbers are too small for it.
    let id = match json.get("id") {
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_u64(),
        None => None,
    };
    let labels = json
        .get("labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let labels = labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
    let upcoming = "/resourceStatus/upcomingMaintenance";
    let field = |name: &str| format!("{upcoming}/{name}");
    let reasons = json
        .pointer(&field("maintenanceReasons"))
        .and_then(Value::as_array);
    // `{}` was seen right after a maintenance: that is none.
    let maintenance = text(&field("maintenanceStatus")).map(|status| Maintenance {
        ongoing: status == "ONGOING",
        start: time(&field("windowStartTime")),
        end: time(&field("windowEndTime")),
        reasons: known_reasons(reasons.into_iter().flatten().filter_map(Value::as_str)),
    });
    Ok(Instance {
        id: id.ok_or("no id")?,
        name: text("/name").ok_or("no name")?.to_owned(),
        running: text("/status") == Some("RUNNING"),
        // Unset means the default of the machine type; what can migrate says so.
        terminates: text("/scheduling/onHostMaintenance") != Some("MIGRATE"),
        labels: labels.collect(),
        created: time("/creationTimestamp"),
        last_start: time("/lastStartTimestamp"),
        maintenance,
    })
}
