//! Carries out a plan: the Node's edit at once, the pods' calls as futures
//! that outlive the pass, so that a slow one holds up nothing. Makes no choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use drainwell_core::action::{Action, Change, Departure};
use drainwell_core::intent::Intent;
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Observed, PodRef};
use drainwell_core::plan::{Plan, PodState, PodView, TierState, TierView};
use drainwell_core::time::shift;
use jiff::Timestamp;

use super::calls::{self, Call};
use super::memory::{GonePod, NodeMemory};
use super::pass::Driver;
use super::ports::{CallError, Cluster};
use super::tell::Teller;
use crate::telemetry::log::{self, Event};

/// A Node that can't be written is tried again after this.
const EDIT_AGAIN_S: i64 = 5;

/// One node's step: what it is about, while its plan is carried out.
pub(super) struct Step<'a> {
    pub(super) driver: &'a Driver,
    pub(super) cluster: &'a Arc<dyn Cluster>,
    pub(super) intent: &'a Intent,
    pub(super) seen: &'a Observed,
    pub(super) now: Timestamp,
}

/// What came of one node's step.
pub(super) struct Stepped {
    /// Calls on pods, still to be made.
    pub(super) calls: Vec<Call>,
    /// How many changes were asked for.
    pub(super) actions: usize,
    /// When to look again.
    pub(super) wake_at: Timestamp,
    /// Its maintenance is over.
    pub(super) unmarked: bool,
}

impl Step<'_> {
    /// Applies `plan`.
    pub(super) async fn take(self, plan: Plan, memory: &mut NodeMemory) -> Stepped {
        let told = (&self.seen.node, self.intent);
        let teller = self.teller();
        if self.acts() {
            teller.begins(told.0, told.1, memory);
        }
        self.tell_what_went(&plan.tiers, memory);
        self.tell_tiers(&plan.tiers, memory);
        if let Some(left) = &plan.at_risk
            && memory.first_mention("at risk".to_owned())
        {
            teller.incomplete(told, left, memory);
        }
        memory.tiers = plan.tiers;
        memory.trouble = None;
        let mut stepped = Stepped {
            calls: vec![],
            actions: 0,
            wake_at: plan.wake_at,
            unmarked: false,
        };
        if self.driver.dry_run() {
            self.tell_dry_run(
                plan.edit.as_ref().map(|(_, change)| change),
                &plan.actions,
                memory,
            );
            return stepped;
        }
        if let Some((edit, change)) = &plan.edit {
            stepped.actions += 1;
            match self.cluster.edit_node(edit).await {
                Ok(node) => {
                    memory.resource_version = node.resource_version;
                    memory.failed_edits = 0;
                    teller.changed(told, change, memory);
                    stepped.unmarked = matches!(change, Change::Unmarked(_));
                    if let Change::Marked | Change::Reasserted | Change::Resumed = change {
                        stepped.wake_at = self.now;
                    }
                }
                Err(error) => {
                    memory.trouble = Some(error.to_string());
                    memory.failed_edits = memory.failed_edits.saturating_add(1);
                    let again = self.edit_failed(change, &error, memory);
                    stepped.wake_at = stepped.wake_at.min(again);
                    if error == CallError::Stale {
                        // What the plan was made of has changed: look before acting.
                        return stepped;
                    }
                }
            }
        }
        for action in plan.actions {
            // One under way is waited for: its answer decides what comes next.
            if memory.under_way.insert(action.departure().pod.uid.clone()) {
                let node = self.seen.node.name.clone();
                let (cluster, clock) = (Arc::clone(self.cluster), *self.driver.clock());
                stepped
                    .calls
                    .push(calls::call(cluster, clock, node, self.intent, action));
                stepped.actions += 1;
            }
        }
        stepped
    }

    fn teller(&self) -> Teller<'_> {
        Teller {
            cluster: self.cluster.id(),
            metrics: self.driver.metrics(),
            node: &self.seen.node.name,
            key: &self.intent.key,
            now: self.now,
        }
    }

    /// A drain by hand is told of by the one who does it.
    fn acts(&self) -> bool {
        (self.intent.source == Source::Manual) == self.driver.is_by_hand()
    }

    /// Pods that were there at the last pass and are no more, or have finished.
    fn tell_what_went(&self, tiers: &[TierView], memory: &mut NodeMemory) {
        if self.intent.phase != Phase::Ongoing {
            return;
        }
        let mut present: BTreeMap<String, (PodRef, String)> = BTreeMap::new();
        for tier in tiers {
            for pod in tier.pods.iter().filter(|p| p.state != PodState::Gone) {
                if pod.state == PodState::Skipped
                    && memory.first_mention(format!("skipped {}", pod.id.uid))
                {
                    self.teller().skipped(&pod.id, &tier.name, &pod.reason);
                }
                present.insert(pod.id.uid.clone(), (pod.id.clone(), tier.name.clone()));
            }
        }
        let before = std::mem::replace(&mut memory.present, present);
        for (uid, (pod, tier)) in before {
            if memory.present.contains_key(&uid) {
                continue;
            }
            let told = memory.told.get(&uid).map(|(at, _)| *at);
            self.teller().gone(&pod, &tier, told);
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
                let node = (&self.seen.node, self.intent);
                self.teller().tier_starts(node, &tier.name, count, memory);
            }
        }
    }

    /// Says once what would be done.
    fn tell_dry_run(&self, change: Option<&Change>, actions: &[Action], memory: &mut NodeMemory) {
        let node = &self.seen.node.name;
        if let Some(change) = change
            && memory.first_mention(format!("dry run {change:?}"))
        {
            tracing::info!("Dry run: {node} would be rewritten ({change:?}).");
        }
        for action in actions {
            let Departure {
                pod,
                tier,
                grace_s,
                shortened_to_s,
            } = action.departure();
            let (verb, gets) = (action.verb(), shortened_to_s.unwrap_or(*grace_s));
            if memory.first_mention(format!("dry run {verb} {}", pod.uid)) {
                tracing::info!(
                    "Dry run: pod {pod} of tier {tier} on {node} would be {verb}, with {gets} s to \
                     stop."
                );
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
        let teller = self.teller();
        let subject = teller.subject();
        let what = format!("The node could not be written ({change:?}): {error}.");
        match error {
            CallError::Stale if memory.failed_edits < 3 => return self.now,
            CallError::Stale => tracing::warn!("{what}"),
            CallError::Denied { .. } => log::event(Event::PermissionMissing, &subject, &what),
            CallError::Refused { .. } => log::alarm(Event::PassReport, &subject, &what),
            CallError::Unavailable { .. } => {
                if memory.first_mention("edit".to_owned()) {
                    tracing::warn!("{what}");
                }
            }
        }
        shift(self.now, EDIT_AGAIN_S)
    }
}
