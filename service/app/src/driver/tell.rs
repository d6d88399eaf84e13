//! What happens in a drain, told in up to three ways: as a log line, as a
//! Kubernetes Event, as a metric. All are told at least once.

use drainwell_core::action::{Action, Change, Departure};
use drainwell_core::intent::Intent;
use drainwell_core::notice::Phase;
use drainwell_core::observed::{Node, PodRef};
use drainwell_core::time::seconds_between;
use jiff::Timestamp;

use super::events::KubeEvent;
use super::memory::NodeMemory;
use super::ports::ClusterId;
use crate::telemetry::log::{self, Event, Subject};
use crate::telemetry::metrics::Metrics;

/// A grace that loses less than this, and less than a tenth, is a log line.
const LOSS_S: u32 = 30;

/// A node's maintenance, as something is told of it.
pub(super) struct Teller<'a> {
    pub(super) cluster: &'a ClusterId,
    pub(super) metrics: &'a Metrics,
    pub(super) node: &'a str,
    pub(super) key: &'a str,
    pub(super) now: Timestamp,
}

impl Teller<'_> {
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            cluster: Some(self.cluster),
            node: self.node,
            key: self.key,
        }
    }

    fn log(&self, event: Event, what: &str) {
        log::event(event, &self.subject(), what);
    }

    fn pod_event(&self, pod: &PodRef, reason: &'static str, note: &str) -> KubeEvent {
        let at = self.now;
        KubeEvent {
            at,
            ..KubeEvent::on_pod(pod, self.key, reason, note)
        }
    }

    /// The first look at a maintenance: it is recorded, or it has begun.
    pub(super) fn begins(&self, node: &Node, intent: &Intent, memory: &mut NodeMemory) {
        let (reason, note) = match intent.phase {
            Phase::Scheduled => {
                let note = format!("Google maintains the host from {} on.", intent.since);
                ("MaintenanceScheduled", note)
            }
            Phase::Ongoing => {
                let note = format!(
                    "The host stops at {}: the node is drained.",
                    intent.deadline
                );
                ("MaintenanceStarted", note)
            }
            Phase::Completed => return,
        };
        self.node_event(node, intent, reason, &note, false, memory);
    }

    fn node_event(
        &self,
        node: &Node,
        intent: &Intent,
        reason: &'static str,
        note: &str,
        warning: bool,
        memory: &mut NodeMemory,
    ) {
        let event = KubeEvent::on_node(node, intent, reason, note);
        let (at, event) = (self.now, if warning { event.warning() } else { event });
        memory.note_event(KubeEvent { at, ..event });
    }

    /// A tier's first pods are told to stop.
    pub(super) fn tier_starts(
        &self,
        (node, intent): (&Node, &Intent),
        tier: &str,
        pods: usize,
        memory: &mut NodeMemory,
    ) {
        let what = format!("Tier {tier} starts, pods to stop: {pods}.");
        self.log(Event::TierStarted, &what);
        self.node_event(node, intent, "TierStarted", &what, false, memory);
    }

    /// Pods will be left at the deadline.
    pub(super) fn incomplete(
        &self,
        (node, intent): (&Node, &Intent),
        left: &str,
        memory: &mut NodeMemory,
    ) {
        let what = format!("The deadline is near, and these pods are left: {left}.");
        self.log(Event::DrainIncomplete, &what);
        self.node_event(node, intent, "DrainIncomplete", &what, true, memory);
    }

    /// A pod is left alone.
    pub(super) fn skipped(&self, pod: &PodRef, tier: &str, why: &str) {
        self.log(
            Event::PodSkipped,
            &format!("Pod {pod} is left alone: {why}."),
        );
        self.metrics.pod(tier, "skipped");
    }

    /// A pod that can't be evicted however often we ask.
    pub(super) fn refused(&self, pod: &PodRef, tier: &str, why: &str) {
        let what = format!("Pod {pod} can't be evicted and is left alone: {why}");
        log::alarm(Event::PodSkipped, &self.subject(), &what);
        self.metrics.pod(tier, "skipped");
    }

    /// A pod is gone, so long after it was told to stop.
    pub(super) fn gone(&self, pod: &PodRef, tier: &str, told: Option<Timestamp>) {
        let after = told.map_or(String::new(), |at| {
            let seconds = seconds_between(at, self.now);
            format!(", {seconds} s after it was told to stop")
        });
        let what = format!("Pod {pod} of tier {tier} is gone{after}.");
        self.log(Event::PodGone, &what);
        self.metrics.pod(tier, "gone");
    }

    /// A disruption budget holds a pod back.
    pub(super) fn blocked(&self, pod: &PodRef, tier: &str, why: &str, memory: &mut NodeMemory) {
        let what = format!("Pod {pod} is held back: {why}");
        self.log(Event::EvictionBlocked, &what);
        self.metrics.pod(tier, "blocked");
        memory.note_event(self.pod_event(pod, "EvictionBlocked", &what).warning());
    }

    /// A pod has been told to stop.
    pub(super) fn stopping(&self, action: &Action, memory: &mut NodeMemory) {
        let Departure {
            pod,
            tier,
            grace_s,
            shortened_to_s,
        } = action.departure();
        let gets = shortened_to_s.unwrap_or(*grace_s);
        match action {
            Action::Evict(_) => {
                let what = format!("Pod {pod} of tier {tier} is evicted, with {gets} s to stop.");
                self.log(Event::PodEvicted, &what);
                self.metrics.pod(tier, "evicted");
                memory.note_event(self.pod_event(pod, "Evicted", &what));
            }
            Action::Force(_) => {
                let what = format!(
                    "Pod {pod} of tier {tier} is deleted with {gets} s to stop: its disruption \
                     budget may be waited for no longer."
                );
                self.log(Event::PodForced, &what);
                self.metrics.pod(tier, "forced");
                memory.note_event(self.pod_event(pod, "Forced", &what).warning());
            }
            Action::Shorten(_) => {}
        }
        if gets < *grace_s {
            let what =
                format!("Pod {pod} asks for {grace_s} s to stop, and gets the {gets} s left.");
            self.log(Event::GraceShortened, &what);
            self.metrics.grace_shortened();
            let lost = grace_s - gets;
            if lost > LOSS_S || lost.saturating_mul(10) > *grace_s {
                memory.note_event(self.pod_event(pod, "GraceShortened", &what).warning());
            }
        }
    }

    /// The node's marks or intent have been rewritten.
    pub(super) fn changed(
        &self,
        (node, intent): (&Node, &Intent),
        change: &Change,
        memory: &mut NodeMemory,
    ) {
        match change {
            Change::Marked => self.log(
                Event::NodeMarked,
                "The recorded window has begun: the node is marked.",
            ),
            Change::Updated => tracing::debug!("Noted on {}: {change:?}", self.node),
            Change::Reasserted => self.log(
                Event::MarksReasserted,
                "Another component took marks of ours away: they are put back.",
            ),
            Change::Yielded => self.log(
                Event::MarksYielded,
                "Another component keeps taking marks of ours away: they stay off, the drain \
                 goes on.",
            ),
            Change::Drained => {
                let left = seconds_between(self.now, intent.deadline);
                let what = format!("No pod is left to evict, {left} s before the deadline.");
                self.log(Event::DrainCompleted, &what);
                let took = seconds_between(intent.noticed, self.now);
                self.metrics.drained(seconds(took), seconds(left));
                self.node_event(node, intent, "DrainCompleted", &what, false, memory);
            }
            Change::Resumed => tracing::warn!(
                "The maintenance of {} was taken for over too early, and goes on.",
                self.node
            ),
            Change::Completed => tracing::info!(
                "The maintenance of {} is over; its marks stay until it is Ready.",
                self.node
            ),
            Change::Unmarked(why) => {
                let what = format!("The node is unmarked: {why}.");
                self.log(Event::NodeUnmarked, &what);
                if intent.phase != Phase::Scheduled && intent.drained_at.is_none() {
                    let had = seconds_between(intent.noticed, intent.deadline.min(self.now));
                    self.metrics.not_drained(seconds(had));
                }
                self.node_event(node, intent, "MaintenanceEnded", &what, false, memory);
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds of hours or days")]
fn seconds(whole: i64) -> f64 {
    whole as f64
}
