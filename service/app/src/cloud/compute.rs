//! Compute Engine adapter: `instances.get`. Field names: Compute's v1 discovery document.

use async_trait::async_trait;
use drainwell_core::notice::{Vm, known_reasons};
use drainwell_core::observed::{Instance, Maintenance};
use http::Method;
use serde_json::Value;

use super::google::{Call, Google};
use crate::driver::ports::{CallError, Cloud};

/// Of the whole instance, which may hold secrets in its metadata, only these.
const FIELDS: &str = "id,name,status,labels,creationTimestamp,lastStartTimestamp,\
                      scheduling/onHostMaintenance,resourceStatus/upcomingMaintenance";

/// Where Compute's API is, if nothing else is configured.
pub const GOOGLE: &str = "https://compute.googleapis.com";

/// Compute Engine.
#[derive(Debug)]
pub struct Compute {
    endpoint: String,
    google: Google,
}

impl Compute {
    /// A client for the API at `endpoint` (no path).
    #[must_use]
    pub fn new(endpoint: &str, google: Google) -> Self {
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            google,
        }
    }
}

#[async_trait]
impl Cloud for Compute {
    async fn instance(&self, vm: &Vm) -> Result<Option<Instance>, CallError> {
        let Vm { project, zone, .. } = vm;
        let url = format!(
            "{}/compute/v1/projects/{project}/zones/{zone}/instances/{}",
            self.endpoint,
            vm.key()
        );
        let permission = format!("compute.instances.get on project {project}");
        let call = Call {
            api: "compute",
            verb: "get",
            method: Method::GET,
            url: &url,
            query: &[("fields", FIELDS)],
            body: None,
            permission: &permission,
        };
        let Some(json) = self.google.call(&call).await? else {
            return Ok(None);
        };
        let read = instance(&json).map(Some);
        read.map_err(|e| CallError::unavailable(format!("unreadable answer: {e}")))
    }
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
