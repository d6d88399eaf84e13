//! What a plan shows of the pods that matter: for reports, not for decisions.

use jiff::Timestamp;
use serde::Serialize;

use crate::observed::PodRef;

/// A tier, as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierView {
    /// Its name.
    pub name: String,
    /// Whether its turn has come, and passed.
    pub state: TierState,
    /// Its pods, by namespace and name.
    pub pods: Vec<PodView>,
}

/// Where a tier stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TierState {
    /// Earlier tiers are not gone.
    Waiting,
    /// Its pods are told to stop.
    Draining,
    /// None is left but those that are skipped.
    Gone,
}

/// A pod, as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodView {
    /// Which pod.
    #[serde(flatten)]
    pub id: PodRef,
    /// Where it stands.
    pub state: PodState,
    /// Why, where that needs saying.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The grace that it asks for.
    pub grace_s: u32,
    /// When it must be told to stop, to get all of it.
    pub latest_start: Timestamp,
}

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PodState {
    /// Its turn has not come.
    Waiting,
    /// It has been told to stop.
    Evicted,
    /// A budget holds it.
    Blocked,
    /// It is no more, or has finished.
    Gone,
    /// It is left alone.
    Skipped,
}
