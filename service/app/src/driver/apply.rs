//! Carries out a plan and tells what came of it. Makes no choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use drainwell_core::action::{Action, Change, Departure, Outcome};
use drainwell_core::intent::Intent;
use drainwell_core::notice::Phase;
use drainwell_core::observed::{Observed, PodRef};
use drainwell_core::plan::{Plan, PodState, PodView, TierState, TierView};
use drainwell_core::time::{seconds_between, shift};
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;

use super::memory::{GonePod, NodeMemory};
use super::pass::{Driver, NodeReport};
use super::ports::{CallError, Cluster};
use super::report::MaintenanceView;
use crate::telemetry::log::{self, Event, Subject};

/// Evictions of one node under way at once. The pods of a training step leave
/// in the same moment; an API server takes about 200 evictions a second.
pub const CALLS_MAX: usize = 32;

/// One node's step: what it is about, while its plan is carried out.
pub(super) struct Step<'a> {
    pub(super) driver: &'a Driver,
    pub(super) cluster: &'a Arc<dyn Cluster>,
    pub(super) intent: &'a Intent,
    pub(super) seen: &'a Observed,
    pub(super) now: Timestamp,
}

impl Step<'_> {
    /// Applies `plan` and reports.
    pub(super) async fn take(self, plan: Plan, memory: &mut NodeMemory) -> NodeReport {
        self.tell_what_went(&plan.tiers, memory);
        self.tell_tiers(&plan.tiers, memory);
        if let Some(left) = &plan.at_risk
            && memory.first_mention("at risk".to_owned())
        {
            let what = format!("The deadline is near, and these pods are left: {left}.");
            log::event(Event::DrainIncomplete, &self.subject(), &what);
        }
        let mut view = MaintenanceView::new(
            self.cluster.id(),
            &self.seen.node.name,
            self.intent,
            self.now,
        );
        let mut wake_at = plan.wake_at;
        let mut unmarked = false;
        if self.driver.dry_run() {
            tracing::info!("Dry run, not done: {:?} {:?}", plan.edit, plan.actions);
            return NodeReport {
                view,
                actions: 0,
                wake_at,
                unmarked,
            };
        }
        let actions = usize::from(plan.edit.is_some()) + plan.actions.len();
        if let Some((edit, change)) = &plan.edit {
            match self.cluster.edit_node(edit).await {
                Ok(_) => {
                    self.tell_change(change);
                    unmarked = matches!(change, Change::Unmarked(_));
                    if matches!(change, Change::Marked) {
                        wake_at = self.now;
                    }
                }
                Err(error) => {
                    view.trouble = Some(error.to_string());
                    wake_at = wake_at.min(self.edit_failed(change, &error, memory));
                }
            }
        }
        let mut results = stream::iter(plan.actions)
            .map(|action| self.call(action))
            .buffer_unordered(CALLS_MAX);
        while let Some((departure, how, outcome)) = results.next().await {
            self.tell_outcome(&departure, how, &outcome, memory);
            let at = self.driver.clock().now();
            if outcome == Outcome::Done {
                memory
                    .told
                    .insert(departure.pod.uid.clone(), (at, how == How::Forced));
            } else {
                // Only the next plan knows when it is to be tried again.
                wake_at = self.now;
            }
            memory.note_attempt(&departure.pod.uid, at, outcome);
        }
        drop(results);
        view.set_tiers(&plan.tiers, memory);
        memory.view = Some(view.clone());
        NodeReport {
            view,
            actions,
            wake_at,
            unmarked,
        }
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            cluster: Some(self.cluster.id()),
            node: &self.seen.node.name,
            key: &self.intent.key,
        }
    }

    async fn call(&self, action: Action) -> (Departure, How, Outcome) {
        match action {
            Action::Evict(d) => {
                let outcome = self.cluster.evict(&d.pod, d.shortened_to_s).await;
                (d, How::Evicted, outcome)
            }
            Action::Force(d) => {
                let now = self.driver.clock().now();
                let outcome = self.cluster.force(&d.pod, d.shortened_to_s, now).await;
                (d, How::Forced, outcome)
            }
            Action::Shorten(d) => {
                let grace_s = d.shortened_to_s.unwrap_or(d.grace_s);
                let outcome = self.cluster.shorten(&d.pod, grace_s).await;
                (d, How::Shortened, outcome)
            }
        }
    }

    /// Pods that were there at the last pass and are no more, or have finished.
    fn tell_what_went(&self, tiers: &[TierView], memory: &mut NodeMemory) {
        if self.intent.phase != Phase::Ongoing {
            return;
        }
        let mut present: BTreeMap<String, (PodRef, String)> = BTreeMap::new();
        for tier in tiers {
            for pod in tier.pods.iter().filter(|p| p.state != PodState::Gone) {
                if pod.state == PodState::Skipped {
                    if memory.first_mention(format!("skipped {}", pod.id.uid)) {
                        let what = format!("Pod {} is left alone: {}.", pod.id, pod.reason);
                        log::event(Event::PodSkipped, &self.subject(), &what);
                    }
                    continue;
                }
                present.insert(pod.id.uid.clone(), (pod.id.clone(), tier.name.clone()));
            }
        }
        let before = std::mem::replace(&mut memory.present, present);
        for (uid, (pod, tier)) in before {
            if memory.present.contains_key(&uid) {
                continue;
            }
            let told = memory.told.get(&uid);
            let after = told.map_or(String::new(), |(at, _)| {
                format!(
                    ", {} s after it was told to stop",
                    seconds_between(*at, self.now)
                )
            });
            let what = format!("Pod {pod} of tier {tier} is gone{after}.");
            log::event(Event::PodGone, &self.subject(), &what);
            memory.attempts.remove(&uid);
            memory.note_gone(
                uid,
                GonePod {
                    pod,
                    tier,
                    at: self.now,
                },
            );
        }
    }

    fn tell_tiers(&self, tiers: &[TierView], memory: &mut NodeMemory) {
        for tier in tiers {
            if self.intent.phase == Phase::Ongoing
                && tier.state == TierState::Draining
                && memory.first_mention(format!("tier {}", tier.name))
            {
                let left = |p: &&PodView| !matches!(p.state, PodState::Gone | PodState::Skipped);
                let count = tier.pods.iter().filter(left).count();
                let what = format!("Tier {} starts, pods to stop: {count}.", tier.name);
                log::event(Event::TierStarted, &self.subject(), &what);
            }
        }
    }

    fn tell_change(&self, change: &Change) {
        let Intent { deadline, .. } = self.intent;
        let subject = self.subject();
        match change {
            Change::Marked => log::event(
                Event::NodeMarked,
                &subject,
                "The recorded window has begun: the node is marked.",
            ),
            Change::Scheduled | Change::Updated => {
                tracing::debug!("Noted on {}: {change:?}", subject.node);
            }
            Change::Drained => {
                let left = seconds_between(self.now, *deadline);
                let what = format!("No pod is left to evict, {left} s before the deadline.");
                log::event(Event::DrainCompleted, &subject, &what);
            }
            Change::Completed => tracing::info!(
                "The maintenance of {} is over; its marks stay until it is Ready.",
                subject.node
            ),
            Change::Unmarked(why) => {
                let what = format!("The node is unmarked: {why}.");
                log::event(Event::NodeUnmarked, &subject, &what);
            }
        }
    }

    /// What stops us from writing marks is told at every pass.
    fn edit_failed(
        &self,
        change: &Change,
        error: &CallError,
        memory: &mut NodeMemory,
    ) -> Timestamp {
        let subject = self.subject();
        let what = format!("The node could not be written ({change:?}): {error}.");
        match error {
            CallError::Stale => return self.now,
            CallError::Denied { .. } => log::event(Event::PermissionMissing, &subject, &what),
            CallError::Refused { .. } => log::alarm(Event::PassReport, &subject, &what),
            CallError::Unavailable { .. } => {
                if memory.first_mention(format!("edit {error}")) {
                    tracing::warn!("{what}");
                }
            }
        }
        shift(self.now, 5)
    }

    fn tell_outcome(
        &self,
        departure: &Departure,
        how: How,
        outcome: &Outcome,
        memory: &mut NodeMemory,
    ) {
        let pod = &departure.pod;
        let subject = self.subject();
        match outcome {
            Outcome::Done => self.tell_done(departure, how),
            Outcome::Blocked { why } => {
                if memory.first_mention(format!("blocked {} {why}", pod.uid)) {
                    let what = format!("Pod {pod} is held back: {why}");
                    log::event(Event::EvictionBlocked, &subject, &what);
                }
            }
            Outcome::Refused { why } => {
                let what = format!("Pod {pod} can't be evicted and is left alone: {why}");
                log::event(Event::PodSkipped, &subject, &what);
            }
            Outcome::Retry { why, .. } if why.starts_with("permission missing") => {
                log::event(
                    Event::PermissionMissing,
                    &subject,
                    &format!("Pod {pod}: {why}."),
                );
            }
            Outcome::Retry { why, .. } => {
                if memory.first_mention(format!("retry {} {why}", pod.uid)) {
                    tracing::warn!("Pod {pod} could not be evicted, it is tried again: {why}");
                }
            }
            Outcome::Stale => {}
        }
    }

    fn tell_done(&self, departure: &Departure, how: How) {
        let Departure {
            pod,
            tier,
            grace_s,
            shortened_to_s,
        } = departure;
        let gets = shortened_to_s.unwrap_or(*grace_s);
        let subject = self.subject();
        match how {
            How::Evicted => {
                let what = format!("Pod {pod} of tier {tier} is evicted, with {gets} s to stop.");
                log::event(Event::PodEvicted, &subject, &what);
            }
            How::Forced => {
                let what = format!(
                    "Pod {pod} of tier {tier} is deleted with {gets} s to stop: its disruption \
                     budget may be waited for no longer."
                );
                log::event(Event::PodForced, &subject, &what);
            }
            How::Shortened => {}
        }
        if gets < *grace_s {
            let what =
                format!("Pod {pod} asks for {grace_s} s to stop, and gets the {gets} s left.");
            log::event(Event::GraceShortened, &subject, &what);
        }
    }
}

/// By which call a pod was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Evicted,
    Forced,
    Shortened,
}
