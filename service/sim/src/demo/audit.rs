//! Audit log entries in the shape that Compute Engine writes them.

use drainwell_core::notice::Vm;
use drainwell_core::observed::Maintenance;
use drainwell_core::time::shift;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(crate) use crate::script::Entry as Subject;
use crate::seed::Seed;

impl Subject {
    fn method(self) -> &'static str {
        match self {
            Self::Scheduled | Self::Ongoing | Self::Completed => {
                "compute.instances.upcomingMaintenance"
            }
            Self::Terminated => "compute.instances.terminateOnHostMaintenance",
            Self::Restarted => "compute.instances.automaticRestart",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Scheduled => {
                "Maintenance is scheduled for this instance. Review the maintenance schedule by \
                 describing the VM with gcloud CLI or querying the \
                 http://metadata.google.internal/computeMetadata/v1/instance/upcoming-maintenance \
                 metadata key."
            }
            // Google's full text of it isn't known.
            Self::Ongoing => "Maintenance window is ongoing for this instance.",
            Self::Completed => {
                "Maintenance window has completed for this instance. All maintenance \
                 notifications on the instance have been removed."
            }
            Self::Terminated => "Instance terminated during Compute Engine maintenance.",
            Self::Restarted => "Instance automatically restarted by Compute Engine.",
        }
    }

    /// For people.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Self::Scheduled => "maintenance is scheduled",
            Self::Ongoing => "maintenance is ongoing",
            Self::Completed => "maintenance is completed",
            Self::Terminated => "VM is terminated for maintenance",
            Self::Restarted => "VM is restarted",
        }
    }
}

/// The entry that Compute Engine writes at `at`.
pub(crate) fn entry(
    seed: Seed,
    subject: Subject,
    vm: &Vm,
    shown: Option<&Maintenance>,
    at: Timestamp,
) -> Value {
    let Vm {
        project,
        zone,
        name,
        id,
    } = vm;
    let name = name.as_deref().unwrap_or_default();
    let method = subject.method();
    let unique = seed.uuid(&format!("entry {method} {name} {at}"));
    let insert_id: String = unique
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(12)
        .collect();
    let mut payload = json!({
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "status": {"message": subject.message()},
        "authenticationInfo": {"principalEmail": "system@google.com"},
        "serviceName": "compute.googleapis.com",
        "methodName": method,
        "resourceName": format!("projects/{project}/zones/{zone}/instances/{name}"),
        "request": {"@type": format!("type.googleapis.com/{method}")},
    });
    if let Some(metadata) = metadata(subject, shown) {
        payload["metadata"] = metadata;
    }
    let received = at
        .checked_add(SignedDuration::from_millis(500))
        .unwrap_or(at);
    json!({
        "protoPayload": payload,
        "insertId": insert_id,
        "resource": {
            "type": "gce_instance",
            "labels": {
                "instance_id": id.unwrap_or_default().to_string(),
                "project_id": project,
                "zone": zone,
            },
        },
        "timestamp": at.to_string(),
        "severity": "INFO",
        "logName": format!("projects/{project}/logs/cloudaudit.googleapis.com%2Fsystem_event"),
        "operation": {
            "id": format!("systemevent-{}-{}", at.as_millisecond(), &unique[9..]),
            "producer": method,
            "first": true,
            "last": true,
        },
        "receiveTimestamp": received.to_string(),
    })
}

/// A completed entry has none, nor have those of other methods.
fn metadata(subject: Subject, shown: Option<&Maintenance>) -> Option<Value> {
    let status = match subject {
        Subject::Scheduled => "PENDING",
        Subject::Ongoing => "ONGOING",
        Subject::Completed | Subject::Terminated | Subject::Restarted => return None,
    };
    let shown = shown?;
    let start = shown.start?;
    Some(json!({
        "type": "SCHEDULED",
        "windowStartTime": start.to_string(),
        "latestWindowStartTime": shift(start, 1).to_string(),
        "windowEndTime": shown.end.map(|end| end.to_string()),
        "canReschedule": subject == Subject::Scheduled,
        "maintenanceStatus": status,
    }))
}
