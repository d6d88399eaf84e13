//! Calls that tell pods to stop, while they are under way and when they are
//! answered. An eviction may take ten seconds, and none waits for another.

use std::sync::Arc;

use drainwell_core::action::{Action, Departure, Outcome};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::memory::NodeMemory;
use super::ports::{Cluster, ClusterId};
use crate::clock::Clock;
use crate::telemetry::log::{self, Event, Subject};

/// A call under way.
pub(super) type Call = BoxFuture<'static, Called>;

/// A call with its answer.
pub(super) struct Called {
    pub(super) node: String,
    /// The maintenance for which it was made.
    pub(super) key: String,
    action: Action,
    outcome: Outcome,
    at: Timestamp,
}

/// Makes a call.
pub(super) fn call(
    cluster: Arc<dyn Cluster>,
    clock: Clock,
    node: String,
    key: String,
    action: Action,
) -> Call {
    async move {
        let outcome = match &action {
            Action::Evict(d) => cluster.evict(&d.pod, d.shortened_to_s).await,
            Action::Force(d) => cluster.force(&d.pod, d.shortened_to_s, clock.now()).await,
            Action::Shorten(d) => {
                cluster
                    .shorten(&d.pod, d.shortened_to_s.unwrap_or(d.grace_s))
                    .await
            }
        };
        let at = clock.now();
        Called {
            node,
            key,
            action,
            outcome,
            at,
        }
    }
    .boxed()
}

impl Called {
    /// Tells what came of it, and notes it for the next plan.
    pub(super) fn settle(self, cluster: &ClusterId, memory: &mut NodeMemory) {
        let subject = Subject {
            cluster: Some(cluster),
            node: &self.node,
            key: &self.key,
        };
        let departure = self.action.departure();
        let uid = &departure.pod.uid;
        memory.under_way.remove(uid);
        tell(&self.action, &self.outcome, &subject, memory);
        if self.outcome == Outcome::Done {
            let forced = matches!(self.action, Action::Force(_));
            let told = (self.at, forced);
            // A pod that is cut short was told before, by us or by another.
            if matches!(self.action, Action::Shorten(_)) {
                memory.told.entry(uid.clone()).or_insert(told);
            } else {
                memory.told.insert(uid.clone(), told);
            }
            memory.note_stopping(uid);
        } else {
            // Only the next plan knows when it is to be tried again.
            memory.due_at = None;
        }
        memory.note_attempt(uid, self.at, self.outcome);
    }
}

fn tell(action: &Action, outcome: &Outcome, subject: &Subject<'_>, memory: &mut NodeMemory) {
    let pod = &action.departure().pod;
    match outcome {
        Outcome::Done => tell_done(action, subject),
        Outcome::Blocked { why } => {
            if memory.first_mention(format!("blocked {}", pod.uid)) {
                let what = format!("Pod {pod} is held back: {why}");
                log::event(Event::EvictionBlocked, subject, &what);
            }
        }
        Outcome::Refused { why } => {
            let what = format!("Pod {pod} can't be evicted and is left alone: {why}");
            log::alarm(Event::PodSkipped, subject, &what);
        }
        Outcome::Retry { why, .. } => {
            if memory.first_mention(format!("retry {}", pod.uid)) {
                if why.starts_with("permission missing") {
                    log::event(
                        Event::PermissionMissing,
                        subject,
                        &format!("Pod {pod}: {why}."),
                    );
                } else {
                    tracing::warn!("Pod {pod} could not be evicted, it is tried again: {why}");
                }
            }
        }
        Outcome::Stale => {}
    }
}

fn tell_done(action: &Action, subject: &Subject<'_>) {
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
            log::event(Event::PodEvicted, subject, &what);
        }
        Action::Force(_) => {
            let what = format!(
                "Pod {pod} of tier {tier} is deleted with {gets} s to stop: its disruption budget \
                 may be waited for no longer."
            );
            log::event(Event::PodForced, subject, &what);
        }
        Action::Shorten(_) => {}
    }
    if gets < *grace_s {
        let what = format!("Pod {pod} asks for {grace_s} s to stop, and gets the {gets} s left.");
        log::event(Event::GraceShortened, subject, &what);
    }
}
