//! One entry in each form in which it may arrive.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use drainwell_app::ingress::envelope::{self, Fault, Letter};
use drainwell_core::notice::{Notice, Reading, Source};
use jiff::Timestamp;
use serde_json::{Value, json};

/// When the entries of these tests were written.
pub(crate) const AT: &str = "2026-11-03T08:15:30.250461Z";
/// When their messages were published.
pub(crate) const PUBLISHED: &str = "2026-11-03T08:15:32.7Z";
/// When they come in.
pub(crate) const NOW: &str = "2026-11-03T08:15:33Z";

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What a sender sends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    pub(crate) fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            headers: HeaderMap::new(),
            body,
        }
        .header("content-type", content_type)
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::new("application/json", body.to_string())
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.raw_header(name, value.as_bytes())
    }

    pub(crate) fn raw_header(mut self, name: &str, value: &[u8]) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers
            .insert(name, HeaderValue::from_bytes(value).unwrap());
        self
    }

    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers.remove(name).unwrap();
        self
    }

    pub(crate) fn read(&self) -> Result<Letter, Fault> {
        envelope::read(&self.headers, &self.body, time(NOW))
    }

    pub(crate) fn notice(&self) -> Notice {
        match self.read() {
            Ok(letter) => match letter.reading {
                Reading::Notice(notice) => *notice,
                other => panic!("no notice but {other:?}"),
            },
            Err(fault) => panic!("{fault} in {}", String::from_utf8_lossy(&self.body)),
        }
    }

    /// Place and problem of what can't be read.
    pub(crate) fn fault(&self) -> (String, String) {
        match self.read() {
            Err(Fault::Malformed(fault) | Fault::Unsupported(fault)) => {
                (fault.place, fault.problem)
            }
            Ok(letter) => panic!("{letter:?} from {}", String::from_utf8_lossy(&self.body)),
        }
    }
}

/// An entry that says that a VM's maintenance is on.
pub(crate) fn entry() -> Value {
    ongoing(
        "helios-ml",
        "europe-west4-b",
        "gke-burst-a3-4410",
        "5530172964408819273",
    )
}

pub(crate) fn ongoing(project: &str, zone: &str, name: &str, id: &str) -> Value {
    let method = "compute.instances.upcomingMaintenance";
    json!({
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "authenticationInfo": {},
            "methodName": method,
            "metadata": {
                "canReschedule": false,
                "maintenanceReasons": ["PLANNED_UPDATE"],
                "maintenanceStatus": "ONGOING",
                "type": "SCHEDULED",
                "windowEndTime": "2026-11-03T12:15:00Z",
                "windowStartTime": "2026-11-03T08:15:00Z",
            },
            "request": {"@type": format!("type.googleapis.com/{method}")},
            "resourceName": format!("projects/{project}/zones/{zone}/instances/{name}"),
            "serviceName": "compute.googleapis.com",
            "status": {"message": "Maintenance is ongoing for this instance."},
        },
        "insertId": "-4tz1ve9",
        "resource": {
            "type": "gce_instance",
            "labels": {"instance_id": id, "project_id": project, "zone": zone},
        },
        "timestamp": AT,
        "receiveTimestamp": "2026-11-03T08:15:30.801Z",
        "severity": "INFO",
        "logName": format!("projects/{project}/logs/cloudaudit.googleapis.com%2Fsystem_event"),
        "operation": {
            "id": "systemevent-1793693730250-64a1c-7be2-90cd",
            "producer": method,
            "first": true,
            "last": true,
        },
    })
}

/// A push's body, as from a subscription with all that there is to one.
pub(crate) fn wrapper(entry: &Value) -> Value {
    json!({
        "message": {
            "attributes": {"logging.googleapis.com/timestamp": AT},
            "data": STANDARD.encode(entry.to_string()),
            "messageId": "13579246801357",
            "message_id": "13579246801357",
            "orderingKey": "burst",
            "publishTime": PUBLISHED,
            "publish_time": PUBLISHED,
        },
        "subscription": "projects/helios-ml/subscriptions/drainwell",
        "deliveryAttempt": 2,
    })
}

fn snake(entry: &Value) -> Value {
    let message = json!({
        "data": STANDARD.encode(entry.to_string()),
        "message_id": "13579246801357",
        "publish_time": PUBLISHED,
    });
    json!({"message": message, "subscription": "projects/helios-ml/subscriptions/drainwell"})
}

pub(crate) fn unwrapped(entry: &Value) -> Sent {
    Sent::json(entry)
        .header(
            "x-goog-pubsub-subscription-name",
            "projects/helios-ml/subscriptions/drainwell",
        )
        .header("x-goog-pubsub-message-id", "13579246801357")
        .header("x-goog-pubsub-publish-time", PUBLISHED)
        .header("x-goog-pubsub-delivery-attempt", "2")
}

pub(crate) const AUDIT_LOG: &str = "google.cloud.audit.log.v1.written";
pub(crate) const MESSAGE: &str = "google.cloud.pubsub.topic.v1.messagePublished";

pub(crate) fn binary(kind: &str, data: &Value) -> Sent {
    Sent::new("application/json; charset=utf-8", data.to_string())
        .header(
            "ce-id",
            "projects/helios-ml/logs/x-4tz1ve9-1793693730250461",
        )
        .header(
            "ce-source",
            "//cloudaudit.googleapis.com/projects/helios-ml/logs/system_event",
        )
        .header("ce-specversion", "1.0")
        .header("ce-type", kind)
        .header("ce-time", PUBLISHED)
        .header("ce-subject", "compute.googleapis.com/projects/helios-ml")
        .header("ce-methodname", "compute.instances.upcomingMaintenance")
}

pub(crate) fn event(kind: &str, data: &Value) -> Value {
    json!({
        "specversion": "1.0",
        "type": kind,
        "id": "projects/helios-ml/logs/x-4tz1ve9-1793693730250461",
        "source": "//cloudaudit.googleapis.com/projects/helios-ml/logs/system_event",
        "time": PUBLISHED,
        "datacontenttype": "application/json; charset=utf-8",
        "methodName": "compute.instances.upcomingMaintenance",
        "data": data,
    })
}

pub(crate) fn structured(event: &Value) -> Sent {
    Sent::new(
        "application/cloudevents+json; charset=UTF-8",
        event.to_string(),
    )
}

fn in_base64(mut event: Value) -> Value {
    let data = event.as_object_mut().unwrap().remove("data").unwrap();
    event["data_base64"] = json!(STANDARD.encode(data.to_string()));
    event
}

/// The same data in base64 as other encoders write it.
fn encoded(entry: &Value, encode: impl Fn(&str) -> String) -> Value {
    let mut wrapper = wrapper(entry);
    wrapper["message"]["data"] = json!(encode(&entry.to_string()));
    wrapper
}

/// The entry in every form, with the way by which it comes.
pub(crate) fn all(entry: &Value) -> Vec<(&'static str, Source, Sent)> {
    use Source::{Eventarc, Pubsub};
    let lines = |text: &str| {
        let encoded = STANDARD.encode(text).into_bytes();
        let lines: Vec<_> = encoded.chunks(76).map(String::from_utf8_lossy).collect();
        lines.join("\r\n")
    };
    let wrapped = wrapper(entry);
    let typed = {
        let mut typed = wrapped.clone();
        typed["message"]["@type"] = json!("type.googleapis.com/google.pubsub.v1.PubsubMessage");
        typed
    };
    let (audit, message) = (event(AUDIT_LOG, entry), event(MESSAGE, &wrapped));
    vec![
        ("wrapped", Pubsub, Sent::json(&wrapped)),
        ("wrapped, snake case", Pubsub, Sent::json(&snake(entry))),
        ("wrapped, typed", Pubsub, Sent::json(&typed)),
        (
            "wrapped, URL-safe and unpadded",
            Pubsub,
            Sent::json(&encoded(entry, |t| URL_SAFE_NO_PAD.encode(t))),
        ),
        (
            "wrapped, in lines",
            Pubsub,
            Sent::json(&encoded(entry, lines)),
        ),
        ("unwrapped", Pubsub, unwrapped(entry)),
        ("audit log, binary", Eventarc, binary(AUDIT_LOG, entry)),
        ("audit log, structured", Eventarc, structured(&audit)),
        (
            "audit log, structured, base64",
            Eventarc,
            structured(&in_base64(audit)),
        ),
        ("message, binary", Eventarc, binary(MESSAGE, &wrapped)),
        (
            "message, binary, snake case",
            Eventarc,
            binary(MESSAGE, &snake(entry)),
        ),
        ("message, structured", Eventarc, structured(&message)),
        (
            "message, structured, base64",
            Eventarc,
            structured(&in_base64(message)),
        ),
    ]
}
