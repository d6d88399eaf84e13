//! A VM as Compute Engine describes it.

use jiff::tz::{TimeZone, offset};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::control_plane::{CLUSTER, LOCATION, PROJECT};

/// What `resourceStatus.upcomingMaintenance` shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Maintenance {
    /// No such field.
    None,
    /// `{}`, as seen right after a maintenance.
    Empty,
    /// The object as it is.
    Raw(Value),
}

impl Maintenance {
    /// A maintenance that will begin at `start`; its window is four hours long.
    pub fn pending(start: Timestamp) -> Self {
        Self::window("PENDING", start, true)
    }

    /// A maintenance that is under way since `start`.
    pub fn ongoing(start: Timestamp) -> Self {
        Self::window("ONGOING", start, false)
    }

    /// Replaces the reasons.
    pub fn reasons(self, reasons: &[&str]) -> Self {
        match self {
            Self::Raw(mut object) => {
                object["maintenanceReasons"] = json!(reasons);
                Self::Raw(object)
            }
            other @ (Self::None | Self::Empty) => other,
        }
    }

    fn window(status: &str, start: Timestamp, can_reschedule: bool) -> Self {
        let time = |hours| (start + SignedDuration::from_hours(hours)).to_string();
        Self::Raw(json!({
            "canReschedule": can_reschedule,
            "latestWindowStartTime": time(2),
            "maintenanceOnShutdown": false,
            "maintenanceReasons": ["PLANNED_UPDATE"],
            "maintenanceStatus": status,
            "type": "SCHEDULED",
            "windowEndTime": time(4),
            "windowStartTime": time(0),
        }))
    }
}

/// One VM. Change the fields, or any part of the answer through `extra`.
#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    /// Its project.
    pub project: String,
    /// Its zone's short name.
    pub zone: String,
    /// Its name, which is also its node's.
    pub name: String,
    /// Its numeric id.
    pub id: u64,
    /// `RUNNING`, `REPAIRING`, …
    pub status: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it came up last.
    pub last_start: Timestamp,
    /// Its labels; by default those of a GKE node.
    pub labels: Map<String, Value>,
    /// `TERMINATE` or `MIGRATE`.
    pub on_host_maintenance: String,
    /// What it shows as upcoming maintenance.
    pub maintenance: Maintenance,
    /// Fields that replace or complete those above.
    pub extra: Map<String, Value>,
}

impl Vm {
    /// A GPU node's VM of the test cluster, running since a day.
    pub fn new(name: &str, zone: &str, id: u64) -> Self {
        let yesterday = Timestamp::now() - SignedDuration::from_hours(24);
        let labels = json!({
            "goog-gke-node": "",
            "goog-k8s-cluster-name": CLUSTER,
            "goog-k8s-cluster-location": LOCATION,
            "goog-k8s-node-pool-name": "pool",
        });
        Self {
            project: PROJECT.into(),
            zone: zone.into(),
            name: name.into(),
            id,
            status: "RUNNING".into(),
            created: yesterday,
            last_start: yesterday,
            labels: labels.as_object().cloned().unwrap_or_default(),
            on_host_maintenance: "TERMINATE".into(),
            maintenance: Maintenance::None,
            extra: Map::new(),
        }
    }

    /// The resource, as `instances.get` answers.
    pub fn resource(&self) -> Value {
        let zone = format!(
            "https://www.googleapis.com/compute/v1/projects/{}/zones/{}",
            self.project, self.zone
        );
        let mut resource = json!({
            "kind": "compute#instance",
            "id": self.id.to_string(),
            "name": self.name,
            "selfLink": format!("{zone}/instances/{}", self.name),
            "zone": zone,
            "machineType": format!("{zone}/machineTypes/a3-highgpu-8g"),
            "status": self.status,
            "creationTimestamp": pacific(self.created),
            "lastStartTimestamp": pacific(self.last_start),
            "labels": self.labels,
            "scheduling": {
                "onHostMaintenance": self.on_host_maintenance,
                "automaticRestart": true,
                "preemptible": false,
            },
            "resourceStatus": { "scheduling": {} },
        });
        match &self.maintenance {
            Maintenance::None => {}
            Maintenance::Empty => resource["resourceStatus"]["upcomingMaintenance"] = json!({}),
            Maintenance::Raw(object) => {
                resource["resourceStatus"]["upcomingMaintenance"] = object.clone();
            }
        }
        for (key, value) in &self.extra {
            resource[key] = value.clone();
        }
        resource
    }
}

/// Compute writes the times of an instance in Pacific time, with its offset.
fn pacific(time: Timestamp) -> String {
    let zone = TimeZone::fixed(offset(-8));
    time.to_zoned(zone)
        .strftime("%Y-%m-%dT%H:%M:%S%.3f%:z")
        .to_string()
}
