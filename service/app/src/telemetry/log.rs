//! Log lines, one event each: the names are a closed list that dashboards and
//! alerts rely on. Lines are told at least once.

use tracing::Level;

use crate::driver::ports::ClusterId;

/// What a log line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Event {
    NoticeReceived,
    NoticeIgnored,
    NoticeRejected,
    MaintenanceScheduled,
    NodeMarked,
    TierStarted,
    PodEvicted,
    PodGone,
    EvictionBlocked,
    GraceShortened,
    PodForced,
    PodSkipped,
    DrainCompleted,
    DrainIncomplete,
    NodeUnmarked,
    MarksReasserted,
    MarksYielded,
    PermissionMissing,
    ClusterUnreachable,
    PassReport,
}

impl Event {
    /// As lines and filters have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoticeReceived => "notice_received",
            Self::NoticeIgnored => "notice_ignored",
            Self::NoticeRejected => "notice_rejected",
            Self::MaintenanceScheduled => "maintenance_scheduled",
            Self::NodeMarked => "node_marked",
            Self::TierStarted => "tier_started",
            Self::PodEvicted => "pod_evicted",
            Self::PodGone => "pod_gone",
            Self::EvictionBlocked => "eviction_blocked",
            Self::GraceShortened => "grace_shortened",
            Self::PodForced => "pod_forced",
            Self::PodSkipped => "pod_skipped",
            Self::DrainCompleted => "drain_completed",
            Self::DrainIncomplete => "drain_incomplete",
            Self::NodeUnmarked => "node_unmarked",
            Self::MarksReasserted => "marks_reasserted",
            Self::MarksYielded => "marks_yielded",
            Self::PermissionMissing => "permission_missing",
            Self::ClusterUnreachable => "cluster_unreachable",
            Self::PassReport => "pass_report",
        }
    }

    fn level(self) -> Level {
        match self {
            Self::PermissionMissing | Self::ClusterUnreachable => Level::ERROR,
            Self::GraceShortened
            | Self::PodForced
            | Self::DrainIncomplete
            | Self::MarksReasserted
            | Self::MarksYielded
            | Self::NoticeRejected => Level::WARN,
            Self::PassReport => Level::DEBUG,
            Self::NoticeReceived
            | Self::NoticeIgnored
            | Self::MaintenanceScheduled
            | Self::NodeMarked
            | Self::TierStarted
            | Self::PodEvicted
            | Self::PodGone
            | Self::EvictionBlocked
            | Self::PodSkipped
            | Self::DrainCompleted
            | Self::NodeUnmarked => Level::INFO,
        }
    }

    /// Whether a maintenance begins or ends with it, for `operation`.
    fn ends(self) -> (bool, bool) {
        (self == Self::NodeMarked, self == Self::NodeUnmarked)
    }
}

/// Which maintenance a line belongs to, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Subject<'a> {
    /// The cluster.
    pub cluster: Option<&'a ClusterId>,
    /// The node.
    pub node: &'a str,
    /// The intent's key.
    pub key: &'a str,
}

/// Writes one line: `message` is a whole sentence.
pub fn event(event: Event, subject: &Subject<'_>, message: &str) {
    let at = event.level();
    write(at, event, subject, message);
}

/// The same, at ERROR: somebody has to act.
pub fn alarm(event: Event, subject: &Subject<'_>, message: &str) {
    write(Level::ERROR, event, subject, message);
}

fn write(at: Level, event: Event, subject: &Subject<'_>, message: &str) {
    let (first, last) = event.ends();
    let (cluster, location) = subject
        .cluster
        .map_or(("", ""), |c| (c.name.as_str(), c.location.as_str()));
    let Subject { node, key, .. } = *subject;
    // `tracing` wants the level at compile time.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                event = event.name(),
                labels.cluster_name = cluster,
                labels.location = location,
                labels.node_name = node,
                labels.maintenance = key,
                operation_first = first,
                operation_last = last,
                "{message}"
            )
        };
    }
    match at {
        Level::ERROR => line!(Level::ERROR),
        Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        _ => line!(Level::DEBUG),
    }
}
