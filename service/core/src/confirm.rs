//! Does Compute Engine, and do the Node's own signs, bear out a notice?
//! Nothing here trusts the notice alone.

use jiff::Timestamp;
use serde::Serialize;

use crate::notice::{Notice, Phase};
use crate::observed::{Instance, Kind, Node};
use crate::policy::{Policy, Scheduled, Scope};
use crate::time::{seconds_between, shift};

/// Why a notice has no effect: a closed list, part of the HTTP interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ignored {
    /// Another entry.
    NotMaintenance,
    /// The VM live-migrates, the node stays up.
    LiveMigration,
    /// The VM belongs to no GKE cluster.
    NotAGkeNode,
    /// It belongs to a cluster that is not served.
    ForeignCluster,
    /// The cluster has no such Node (any more).
    NodeGone,
    /// Compute has no such VM.
    InstanceGone,
    /// The name belongs to another VM now.
    InstanceReplaced,
    /// Admission refuses to let the Node be written.
    NodeNotWritable,
    /// Compute shows no such maintenance.
    NotConfirmed,
    /// It speaks of a maintenance that is over.
    Stale,
    /// Policy leaves such nodes alone.
    OutOfScope,
    /// The Node is annotated `drainwell.dev/skip=true`, or policy ignores it.
    Skipped,
    /// `--dry-run`.
    DryRun,
}

/// What became of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Act on it.
    Confirmed,
    /// Ask again later; the notice is redelivered.
    TooEarly(String),
    /// Nothing to do.
    Ignored(Ignored),
}

/// Logs and API lag behind each other; for this long a missing maintenance
/// proves nothing.
const LAG_S: i64 = 120;

/// A VM's node may take this long to register.
pub const REGISTRATION_S: i64 = 600;

/// Checks that need only Compute: is it that VM, does it stop, is the
/// maintenance there?
#[must_use]
pub fn by_compute(notice: &Notice, vm: &Instance, policy: &Policy, now: Timestamp) -> Verdict {
    if notice.vm.id.is_some_and(|id| id != vm.id) {
        return Verdict::Ignored(Ignored::InstanceReplaced);
    }
    if !vm.terminates && policy.scope != Scope::All {
        return Verdict::Ignored(Ignored::LiveMigration);
    }
    let shown = vm.maintenance.as_ref();
    let ongoing = shown.is_some_and(|m| m.ongoing);
    if notice.stopping {
        let came_up = vm.last_start.is_some_and(|start| start > notice.at);
        return match (vm.running, notice.undated) {
            // It may have come up since: only a maintenance that is on tells.
            (true, true) if !ongoing => Verdict::Ignored(Ignored::NotConfirmed),
            (true, false) if came_up => Verdict::Ignored(Ignored::Stale),
            _ => Verdict::Confirmed,
        };
    }
    if notice.phase == Phase::Completed {
        return if ongoing {
            Verdict::Ignored(Ignored::NotConfirmed)
        } else {
            Verdict::Confirmed
        };
    }
    if ongoing || shown.is_some_and(|m| overlaps(notice, m.start, m.end)) {
        Verdict::Confirmed
    // What has no age would be early at each redelivery, for as long as Pub/Sub
    // keeps it, and slow down the others. It is let go at once, on the word of
    // Compute alone: Logging gives each of its entries a timestamp, so that this
    // one is hardly fresh from there.
    } else if !notice.undated && seconds_between(notice.at, now) < LAG_S {
        Verdict::TooEarly("Compute Engine shows no such maintenance yet".to_owned())
    } else {
        Verdict::Ignored(Ignored::NotConfirmed)
    }
}

/// Whether the window of the notice and a pending one have a moment in
/// common. A side without a start can't contradict; one without an end is
/// taken to last for four hours, the length seen in Google's samples.
fn overlaps(notice: &Notice, start: Option<Timestamp>, end: Option<Timestamp>) -> bool {
    const USUAL_S: i64 = 4 * 3600;
    let claimed = match notice.phase {
        Phase::Ongoing => Some(notice.window_start.unwrap_or(notice.at)),
        Phase::Scheduled | Phase::Completed => notice.window_start,
    };
    let (Some(a), Some(b)) = (claimed, start) else {
        return true;
    };
    let a_end = notice.window_end.unwrap_or_else(|| shift(a, USUAL_S));
    let b_end = end.unwrap_or_else(|| shift(b, USUAL_S));
    a <= b_end && b <= a_end
}

/// Checks that need the Node: may we touch it, and did it come up since?
/// `vm` is what Compute says, if it was asked.
#[must_use]
pub fn by_node(
    notice: &Notice,
    node: &Node,
    vm: Option<&Instance>,
    policy: &Policy,
    now: Timestamp,
) -> Verdict {
    if let (Some(told), Some(has)) = (notice.vm.id, node.instance_id())
        && told != has
    {
        return if vm.is_some_and(|vm| vm.id == told) {
            Verdict::TooEarly("the Node still bears the id of an earlier VM".to_owned())
        } else {
            Verdict::Ignored(Ignored::InstanceReplaced)
        };
    }
    if node.skipped() {
        return Verdict::Ignored(Ignored::Skipped);
    }
    let kind = node.kind();
    if policy.scope == Scope::Accelerators && kind == Kind::Other {
        return Verdict::Ignored(Ignored::OutOfScope);
    }
    let begun = vm
        .and_then(|vm| vm.maintenance.as_ref())
        .is_some_and(|m| m.ongoing);
    match notice.phase {
        Phase::Scheduled if policy.scheduled == Scheduled::Ignore && !begun => {
            Verdict::Ignored(Ignored::OutOfScope)
        }
        Phase::Ongoing if is_stale(notice, node, vm, policy.windows.of(kind), now) => {
            Verdict::Ignored(Ignored::Stale)
        }
        Phase::Scheduled | Phase::Ongoing | Phase::Completed => Verdict::Confirmed,
    }
}

/// A stop that the node has come up from, or a deadline more than one window
/// back. Where Compute isn't asked, a node that came up since is the only sign
/// that an ongoing maintenance is over: a notice delivered twice must not
/// drain it again.
fn is_stale(
    notice: &Notice,
    node: &Node,
    vm: Option<&Instance>,
    window_s: i64,
    now: Timestamp,
) -> bool {
    let came_up = node.ready && node.ready_since.is_some_and(|since| since > notice.at);
    (came_up && (notice.stopping || vm.is_none())) || now > shift(notice.at, 2 * window_s)
}
