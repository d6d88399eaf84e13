//! Multi-host TPU slices over a whole cluster: the nodes that share one are
//! marked because of each other, and their gangs break together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drainwell_core::edit;
use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::Node;
use drainwell_core::policy::{Gangs, Policy};
use drainwell_core::slice::{self, Marked, Slice};

use super::memory::ClusterMemory;
use super::pass::Driver;
use super::ports::{CallError, Cluster};
use crate::telemetry::log::{self, Event, Subject};

/// How far each slice is marked, by what its nodes' intents say.
pub(super) fn marked(work: &[(Node, Intent)], policy: &Policy) -> BTreeMap<Slice, Marked> {
    let mut marked: BTreeMap<Slice, Marked> = BTreeMap::new();
    for (node, intent) in ongoing(work).filter(|_| policy.gangs == Gangs::Slice) {
        if let Some(slice) = slice::of(node) {
            let first = intent.noticed;
            let slice = marked.entry(slice).or_insert(Marked { count: 0, first });
            slice.count += 1;
            slice.first = slice.first.min(first);
        }
    }
    marked
}

fn ongoing(work: &[(Node, Intent)]) -> impl Iterator<Item = (&Node, &Intent)> {
    let work = work.iter().map(|(node, intent)| (node, intent));
    work.filter(|(_, intent)| intent.phase == Phase::Ongoing && intent.source != Source::Manual)
}

/// The slice of one node, as far as it is marked.
pub(super) fn view(node: &Node, marked: &BTreeMap<Slice, Marked>) -> Option<(Slice, Marked)> {
    let slice = slice::of(node)?;
    let marked = *marked.get(&slice)?;
    Some((slice, marked))
}

/// By node: the gangs that have lost a member on another node of its slice.
pub(super) fn broken_gangs(
    work: &[(Node, Intent)],
    policy: &Policy,
    known: &ClusterMemory,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut by_slice: BTreeMap<Slice, BTreeSet<String>> = BTreeMap::new();
    let of_slice = || {
        let nodes = ongoing(work).filter(|_| policy.gangs == Gangs::Slice);
        nodes.filter_map(|(node, _)| Some((node, slice::of(node)?)))
    };
    for (node, slice) in of_slice() {
        let broken = known
            .nodes
            .get(&node.name)
            .map(|memory| &memory.broken_gangs);
        by_slice
            .entry(slice)
            .or_default()
            .extend(broken.into_iter().flatten().cloned());
    }
    let of_node = |slice: &Slice| by_slice.get(slice).cloned().unwrap_or_default();
    of_slice()
        .map(|(node, slice)| (node.name.clone(), of_node(&slice)))
        .collect()
}

/// Marks the other nodes of each slice of which a notice has marked one. Says
/// whether any was marked.
pub(super) async fn mark_peers(
    driver: &Driver,
    cluster: &Arc<dyn Cluster>,
    policy: &Policy,
    work: &[(Node, Intent)],
    known: &mut ClusterMemory,
) -> bool {
    let mut any = false;
    if policy.gangs == Gangs::Node || driver.dry_run() {
        return any;
    }
    for (node, intent) in ongoing(work) {
        let told = intent.source != Source::Slice && !intent.slice_marked;
        if !told || driver.clock().now() > intent.deadline || node.skipped() {
            continue;
        }
        let Some(slice) = slice::of(node) else {
            continue;
        };
        match mark_slice(driver, cluster, node, intent, &slice).await {
            Ok(()) => any = true,
            Err(why) if known.first_mention(format!("slice {} {why}", slice.pool)) => {
                let subject = Subject {
                    cluster: Some(cluster.id()),
                    node: &node.name,
                    key: &intent.key,
                };
                let what = format!("The other nodes of the TPU slice are not marked: {why}.");
                log::alarm(Event::PassReport, &subject, &what);
            }
            Err(_) => {}
        }
    }
    any
}

async fn mark_slice(
    driver: &Driver,
    cluster: &Arc<dyn Cluster>,
    node: &Node,
    intent: &Intent,
    slice: &Slice,
) -> Result<(), String> {
    let pool = cluster
        .nodes(keys::POOL_LABEL, &slice.pool)
        .await
        .map_err(|e| e.to_string())?;
    let now = driver.clock().now();
    let joined = slice::join(intent, slice, &pool, now)?;
    let writes = joined.iter().map(|(peer, intent)| async move {
        let (patch, written) = edit::write(peer, intent, &intent.label_value);
        let result = cluster.edit_node(&patch).await;
        if result.is_ok() {
            let subject = Subject {
                cluster: Some(cluster.id()),
                node: &peer.name,
                key: &written.key,
            };
            let what = format!(
                "The node is marked with its TPU slice {}: its host stops at {}.",
                slice.pool, written.deadline
            );
            log::event(Event::NodeMarked, &subject, &what);
        }
        result
    });
    for result in futures::future::join_all(writes).await {
        match result {
            Ok(_) => {}
            // Somebody wrote in between: the next pass looks again.
            Err(CallError::Stale) => return Err("a node changed meanwhile".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
    }
    // Marked for good: a peer that comes back first isn't marked once more.
    let done = Intent {
        slice_marked: true,
        ..intent.clone()
    };
    let noted = cluster.edit_node(&edit::rewrite(node, &done)).await;
    noted.map(drop).map_err(|e| e.to_string())
}
