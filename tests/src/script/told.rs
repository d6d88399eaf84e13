//! Which pods were told to stop, and by which way, as the API server has it.

use std::collections::BTreeMap;

use drainwell_core::keys;
use drainwell_sim::journal::Way;
use drainwell_sim::script::Told;
use k8s_openapi::api::core::v1::Pod;

use super::workload::reference;
use crate::journal::{Change, Journal, Seen};

/// Each pod that was told to stop.
pub(super) fn told(journal: &Journal) -> Vec<Told> {
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    let namespaces = ["default", "kube-system"];
    let versions = namespaces.into_iter().flat_map(|ns| journal.pods_in(ns));
    for Seen {
        change, at, object, ..
    } in versions
    {
        let pod = reference(&object);
        let known = all.get_mut(&pod.uid);
        let grace_s = object.metadata.deletion_grace_period_seconds;
        let grace_s = grace_s.and_then(|s| u32::try_from(s).ok());
        match (change, known, grace_s) {
            (Change::Deleted, Some(told), _) => told.gone_at = told.gone_at.or(Some(at)),
            (Change::Added | Change::Modified, Some(told), Some(grace_s)) if grace_s > 0 => {
                told.grace_s = grace_s;
            }
            (Change::Added | Change::Modified, None, Some(grace_s)) => {
                let told = Told {
                    way: way(&object),
                    gone_at: None,
                    pod,
                    at,
                    grace_s,
                };
                all.insert(told.pod.uid.clone(), told);
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

/// By which way a pod was told: the condition says who did it.
fn way(pod: &Pod) -> Way {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut reasons = conditions.filter(|c| c.type_ == "DisruptionTarget");
    match reasons.next().and_then(|c| c.reason.as_deref()) {
        Some("EvictionByEvictionAPI") => Way::Evicted,
        Some(keys::DISRUPTION_REASON) => Way::Forced,
        _ => Way::Platform,
    }
}
