//! Multi-host TPU slices: all their VMs are interrupted together, so a notice
//! for one host is a notice for every node of the slice.
//!
//! A node pool is one such slice only when its topology has more chips than
//! one node; a pool of single-host machines is as many slices as nodes (GKE's
//! label `gke-tpu-topology` and the capacity `google.com/tpu`).

use jiff::Timestamp;

use crate::intent::{Intent, Stored, VERSION};
use crate::keys;
use crate::notice::{Phase, Source};
use crate::observed::{Kind, Node};
use crate::time::shift;

/// Evictions wait for the marks of all peers, but no longer than this.
const PEERS_S: i64 = 10;

/// The slice that a node belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// Its node pool.
    pub pool: String,
    /// How many nodes it has.
    pub hosts: u64,
}

/// How far the nodes of a slice are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    /// How many have an ongoing intent.
    pub count: u64,
    /// When the first of them was marked.
    pub first: Timestamp,
}

/// The multi-host slice of a node, if it is part of one.
#[must_use]
pub fn of(node: &Node) -> Option<Slice> {
    let topology = node.labels.get(keys::TPU_TOPOLOGY_LABEL)?;
    let pool = node.labels.get(keys::POOL_LABEL)?;
    let here = *node
        .capacity
        .get(keys::TPU_RESOURCE)
        .filter(|chips| **chips > 0)?;
    let mut sides = topology
        .split('x')
        .map(|side| side.parse::<u64>().ok().filter(|n| *n > 0));
    let chips = sides.try_fold(1_u64, |product, side| product.checked_mul(side?))?;
    let hosts = chips / here;
    (hosts > 1 && chips.is_multiple_of(here)).then(|| Slice {
        pool: pool.clone(),
        hosts,
    })
}

/// Until when the evictions of a node wait for the marks of its peers.
#[must_use]
pub fn waits_until(slice: &Slice, marked: Marked, now: Timestamp) -> Option<Timestamp> {
    let end = shift(marked.first, PEERS_S);
    (marked.count < slice.hosts && now < end).then_some(end)
}

/// The intents that the other nodes of a slice get because of `first`, the
/// intent that a notice has put on one of them.
///
/// # Errors
/// When the pool has more nodes than its topology explains: it is no slice.
pub fn join<'a>(
    first: &Intent,
    slice: &Slice,
    pool: &'a [Node],
    now: Timestamp,
) -> Result<Vec<(&'a Node, Intent)>, String> {
    if u64::try_from(pool.len()).unwrap_or(u64::MAX) > slice.hosts {
        return Err(format!(
            "node pool {} has {} nodes, but its topology explains {}",
            slice.pool,
            pool.len(),
            slice.hosts
        ));
    }
    let untouched = pool.iter().filter(|node| !node.skipped());
    Ok(untouched
        .filter_map(|node| Some((node, joined(first, node, now)?)))
        .collect())
}

/// The intent of one peer; none when it has one that is under way already, or
/// one that can't be read.
fn joined(first: &Intent, node: &Node, now: Timestamp) -> Option<Intent> {
    let recorded = match Stored::on(node) {
        Stored::Unreadable(_) => return None,
        Stored::Intent(open) if open.phase != Phase::Scheduled => return None,
        Stored::Intent(open) => Some(open.key),
        Stored::Nothing => None,
    };
    let id = node.instance_id().unwrap_or_default();
    let window = first.key.split_once('/').map_or("", |(_, window)| window);
    Some(Intent {
        v: VERSION,
        key: recorded.unwrap_or_else(|| format!("{id}/{window}")),
        phase: Phase::Ongoing,
        noticed: now,
        kind: Kind::Tpu,
        source: Source::Slice,
        boot_id: node.boot_id.clone(),
        seen_ongoing: false,
        seen_down: false,
        absent_since: None,
        drained_at: None,
        completed_at: None,
        slice_marked: true,
        ours: vec![],
        reasserted: 0,
        reasserted_at: None,
        unknown: serde_json::Map::new(),
        ..first.clone()
    })
}
