//! Calls that tell pods to stop, while they are under way and when they are
//! answered. An eviction may take ten seconds, and none waits for another.

use std::sync::Arc;

use drainwell_core::action::{Action, Departure, Outcome};
use drainwell_core::intent::Intent;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::memory::NodeMemory;
use super::ports::{Cluster, ClusterId};
use super::tell::Teller;
use crate::clock::Clock;
use crate::telemetry::log::{self, Event};
use crate::telemetry::metrics::Metrics;

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

/// Makes a call, in its turn.
pub(super) fn call(
    cluster: Arc<dyn Cluster>,
    clock: Clock,
    node: String,
    intent: &Intent,
    action: Action,
) -> Call {
    let (key, deadline) = (intent.key.clone(), intent.deadline);
    async move {
        let _turn = cluster.turn(deadline).await;
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
    pub(super) fn settle(self, cluster: &ClusterId, metrics: &Metrics, memory: &mut NodeMemory) {
        let teller = Teller {
            cluster,
            metrics,
            node: &self.node,
            key: &self.key,
            now: self.at,
        };
        let uid = &self.action.departure().pod.uid;
        memory.under_way.remove(uid);
        metrics.queued(-1);
        tell(&self.action, &self.outcome, &teller, memory);
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

fn tell(action: &Action, outcome: &Outcome, teller: &Teller<'_>, memory: &mut NodeMemory) {
    let Departure { pod, tier, .. } = action.departure();
    match outcome {
        Outcome::Done => teller.stopping(action, memory),
        Outcome::Blocked { why } => {
            if memory.first_mention(format!("blocked {}", pod.uid)) {
                teller.blocked(pod, tier, why, memory);
            }
        }
        Outcome::Refused { why } => teller.refused(pod, tier, why),
        Outcome::Retry { why, .. } => {
            if !memory.first_mention(format!("retry {}", pod.uid)) {
                return;
            }
            if why.starts_with("permission missing") {
                let what = format!("Pod {pod}: {why}.");
                log::event(Event::PermissionMissing, &teller.subject(), &what);
            } else {
                tracing::warn!("Pod {pod} could not be evicted, it is tried again: {why}");
            }
        }
        Outcome::Stale => {}
    }
}
