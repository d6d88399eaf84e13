//! Compute Engine adapter: `instances.get`, with a token of the metadata
//! server. Field names: Compute's v1 discovery document. Every field is
//! optional and enums are open strings, so that a new value breaks nothing.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use drainwell_core::notice::{Vm, known_reasons};
use drainwell_core::observed::{Instance, Maintenance};
use google_cloud_auth::credentials::AccessTokenCredentials;
use serde::Deserialize;

use crate::driver::ports::{CallError, Cloud};

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
        })
    }

    async fn get(&self, vm: &Vm) -> Result<Option<Instance>, CallError> {
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
            200 => serde_json::from_slice::<Wire>(&body)
                .map_err(|e| e.to_string())
                .and_then(Wire::into_instance)
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
        // The token's own fetch has no limit that is ours.
        match tokio::time::timeout(CALL_TIMEOUT, self.get(vm)).await {
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    /// A number as a string, since JSON's numbers are too small for it.
    id: Option<serde_json::Value>,
    name: Option<String>,
    status: Option<String>,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    creation_timestamp: Option<String>,
    last_start_timestamp: Option<String>,
    scheduling: Option<Scheduling>,
    resource_status: Option<ResourceStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scheduling {
    on_host_maintenance: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceStatus {
    upcoming_maintenance: Option<Upcoming>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Upcoming {
    maintenance_status: Option<String>,
    window_start_time: Option<String>,
    window_end_time: Option<String>,
    #[serde(default)]
    maintenance_reasons: Vec<String>,
}

impl Wire {
    fn into_instance(self) -> Result<Instance, String> {
        let id = match &self.id {
            Some(serde_json::Value::String(text)) => text.parse().ok(),
            Some(other) => other.as_u64(),
            None => None,
        };
        let time = |text: Option<String>| text.and_then(|t| t.parse().ok());
        let upcoming = self.resource_status.and_then(|r| r.upcoming_maintenance);
        let policy = self.scheduling.and_then(|s| s.on_host_maintenance);
        Ok(Instance {
            id: id.ok_or("no id")?,
            name: self.name.ok_or("no name")?,
            running: self.status.as_deref() == Some("RUNNING"),
            // Unset means the default of the machine type; what can migrate says so.
            terminates: policy.as_deref() != Some("MIGRATE"),
            labels: self.labels,
            created: time(self.creation_timestamp),
            last_start: time(self.last_start_timestamp),
            maintenance: upcoming.and_then(|u| {
                // `{}` was seen right after a maintenance: that is none.
                let status = u.maintenance_status?;
                Some(Maintenance {
                    ongoing: status == "ONGOING",
                    start: time(u.window_start_time),
                    end: time(u.window_end_time),
                    reasons: known_reasons(u.maintenance_reasons.iter().map(String::as_str)),
                })
            }),
        })
    }
}
