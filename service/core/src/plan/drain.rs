//! Which pods of a node are told to stop now, and why the others are not:
//! tiers, latest starts, budgets, gangs, graces.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::view::{PodState, PodView, TierState, TierView};
use crate::action::{Action, Attempt, Departure, Outcome};
use crate::intent::Intent;
use crate::observed::{Observed, Pod};
use crate::pod;
use crate::policy::{Force, Policy};
use crate::time::{seconds_between, shift};

/// Even when every watch is lost, a drain is looked at this often.
const FALLBACK_S: i64 = 15;
/// Longest wait between two tries against a budget that nobody told us has
/// changed. Budgets are watched while they block, but a watch begins a moment
/// after the refusal: the first tries come sooner.
const BLOCKED_AGAIN_S: i64 = 10;
/// Between two tries to shorten a grace.
const SHORTEN_AGAIN_S: i64 = 5;
/// Longest wait after repeated failures of a call.
const BACKOFF_MAX_S: i64 = 20;
/// Pods left are named this long before the deadline.
const WARN_S: i64 = 60;
/// Pods named in one line.
const NAMED_MAX: usize = 20;
/// A call is carried out at most this long after it was planned.
const CALL_S: i64 = 10;
/// A deletion a little past the deadline is no reason for another DELETE.
const SLACK_S: i64 = 2;

/// A drain while it is being planned.
pub(super) struct Drain<'a> {
    intent: &'a Intent,
    policy: &'a Policy,
    attempts: &'a BTreeMap<String, Attempt>,
    /// Gangs that have lost a member: their step of work is lost anyway.
    broken: BTreeSet<String>,
    now: Timestamp,
    /// By tier, in the order of eviction; within it by namespace and name.
    members: Vec<Vec<Member<'a>>>,
    pub(super) actions: Vec<Action>,
    pub(super) tiers: Vec<TierView>,
    pub(super) wake_at: Vec<Timestamp>,
    pub(super) acted: bool,
}

struct Member<'a> {
    pod: &'a Pod,
    latest_start: Timestamp,
    /// Why it is left alone, if it is.
    skipped: Option<String>,
}

impl Member<'_> {
    fn holds_tier(&self) -> bool {
        self.skipped.is_none() && !pod::gone(self.pod)
    }
}

impl<'a> Drain<'a> {
    pub(super) fn new(
        seen: &'a Observed,
        intent: &'a Intent,
        policy: &'a Policy,
        now: Timestamp,
    ) -> Self {
        let mut members: Vec<Vec<Member<'a>>> = policy.tiers.iter().map(|_| vec![]).collect();
        for pod in &seen.pods {
            let skipped = skip_reason(pod, seen.attempts.get(&pod.id.uid));
            let tier = &mut members[policy.tier_of(pod)];
            tier.push(Member {
                pod,
                latest_start: now,
                skipped,
            });
        }
        let reserve_s = policy.reserve_s(intent.window_s);
        let mut later = 0;
        for tier in members.iter_mut().rev() {
            tier.sort_by(|a, b| a.pod.id.cmp(&b.pod.id));
            for member in tier.iter_mut() {
                let before_s = i64::from(member.pod.grace_s) + later * reserve_s;
                member.latest_start = shift(intent.deadline, -before_s).max(intent.noticed);
                if member.skipped.is_none() && came_back(member.pod, intent) {
                    let why = "tolerates the taint and came back: evicted at its latest start";
                    let again = now >= member.latest_start
                        && member.pod.created < whole_second(member.latest_start)
                        || member.pod.deletion_at.is_some();
                    member.skipped = (!again).then(|| why.to_owned());
                }
            }
            later += i64::from(tier.iter().any(Member::holds_tier));
        }
        let attempts = &seen.attempts;
        let stopping = seen
            .pods
            .iter()
            .filter(|p| p.deletion_at.is_some() && !pod::gone(p));
        let broken = stopping
            .filter_map(pod::gang)
            .chain(seen.broken_gangs.iter().cloned());
        let broken = broken.collect();
        let (actions, tiers, wake_at) = (vec![], vec![], vec![]);
        Self {
            intent,
            policy,
            attempts,
            broken,
            now,
            members,
            actions,
            tiers,
            wake_at,
            acted: false,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        !self.members.iter().flatten().any(Member::holds_tier)
    }

    /// A tenth of the window before the deadline, at most a minute.
    fn warn_at(&self) -> Timestamp {
        shift(
            self.intent.deadline,
            -WARN_S.min(self.intent.window_s / 10).max(0),
        )
    }

    /// Names the pods that are left when the deadline is near.
    pub(super) fn at_risk(&self) -> Option<String> {
        if self.now < self.warn_at() || self.is_drained() {
            return None;
        }
        let left = self.tiers.iter().flat_map(|t| &t.pods).filter_map(|pod| {
            let why = match pod.state {
                PodState::Gone | PodState::Skipped => return None,
                PodState::Evicted => "still stopping",
                PodState::Waiting if pod.reason.is_empty() => "waiting for its turn",
                PodState::Waiting | PodState::Blocked => &pod.reason,
            };
            Some(format!("{} ({why})", pod.id))
        });
        Some(left.take(NAMED_MAX).collect::<Vec<_>>().join(", "))
    }

    /// Whether waiting for earlier tiers is over for everyone: the deadline
    /// has passed, or the host is stopping already.
    fn no_gates(&self) -> bool {
        self.intent.stopping || self.now >= self.intent.deadline
    }

    pub(super) fn classify(&mut self) {
        let mut open = true;
        for (tier, members) in self.policy.tiers.iter().zip(&self.members) {
            let holding = members.iter().any(Member::holds_tier);
            let told = |m: &Member<'_>| m.holds_tier() && self.may_leave(m, open);
            let state = if !holding {
                TierState::Gone
            } else if members.iter().any(told) {
                TierState::Draining
            } else {
                TierState::Waiting
            };
            let pods = members.iter().map(|m| self.view(m)).collect();
            self.tiers.push(TierView {
                name: tier.name.clone(),
                state,
                pods,
            });
            open &= !holding;
        }
    }

    fn view(&self, member: &Member<'_>) -> PodView {
        let attempt = self.attempts.get(&member.pod.id.uid).map(|a| &a.outcome);
        let (state, reason) = if pod::gone(member.pod) {
            (PodState::Gone, "finished".to_owned())
        } else if let Some(why) = &member.skipped {
            (PodState::Skipped, why.clone())
        } else if member.pod.deletion_at.is_some() {
            (PodState::Evicted, String::new())
        } else {
            match attempt {
                Some(Outcome::Blocked { why }) => (PodState::Blocked, why.clone()),
                Some(Outcome::Retry { why, .. }) => (PodState::Waiting, why.clone()),
                Some(Outcome::Done | Outcome::Stale | Outcome::Refused { .. }) | None => {
                    (PodState::Waiting, String::new())
                }
            }
        };
        PodView {
            id: member.pod.id.clone(),
            state,
            reason,
            grace_s: member.pod.grace_s,
            latest_start: member.latest_start,
        }
    }

    fn may_leave(&self, member: &Member<'_>, open: bool) -> bool {
        open || self.no_gates() || self.now >= member.latest_start
    }

    /// Collects what is to be done now, and when more falls due.
    pub(super) fn act(&mut self) {
        self.acted = true;
        self.wake_at.push(shift(self.now, FALLBACK_S));
        self.wake_later(self.warn_at());
        let members = std::mem::take(&mut self.members);
        let mut open = true;
        for (index, tier) in members.iter().enumerate() {
            for member in tier.iter().filter(|m| !pod::gone(m.pod)) {
                if member.skipped.is_some() {
                    // It may be one that came back, to be told at its latest start.
                    self.wake_later(member.latest_start);
                } else if let Some(deletion_at) = member.pod.deletion_at {
                    self.shorten(member, deletion_at, index);
                } else if self.may_leave(member, open) {
                    match self.told_apart_at(member) {
                        Some(at) if at > self.now => self.wake_later(at),
                        Some(_) | None => self.tell(member, index),
                    }
                } else {
                    self.wake_later(member.latest_start.min(self.intent.deadline));
                }
            }
            open &= !tier.iter().any(Member::holds_tier);
        }
        self.members = members;
    }

    /// Tells a pod to stop: by an eviction, or by force when a budget has
    /// been respected for as long as it may be.
    fn tell(&mut self, member: &Member<'_>, tier: usize) {
        let attempt = self.attempts.get(&member.pod.id.uid);
        let force_at = self.force_at(member);
        let due = match attempt {
            None => self.now,
            Some(attempt) => match &attempt.outcome {
                Outcome::Blocked { .. } => {
                    if let Some(at) = force_at {
                        if at <= self.now {
                            self.actions
                                .push(Action::Force(self.departure(member, tier)));
                            return;
                        }
                        self.wake_later(at);
                    }
                    let again_s = backoff_s(attempt.failures).min(BLOCKED_AGAIN_S);
                    shift(attempt.at, again_s + spread(&member.pod.id.uid))
                }
                // An Eviction API that fails must not cost the pod its SIGTERM:
                // at the last moment no answer of a budget is waited for.
                Outcome::Retry { .. } if self.last_moment(member) => {
                    let due = shift(attempt.at, backoff_s(attempt.failures));
                    if due <= self.now {
                        self.actions
                            .push(Action::Force(self.departure(member, tier)));
                    } else {
                        self.wake_later(due);
                    }
                    return;
                }
                Outcome::Retry { after_s, .. } => {
                    let asked_s = after_s.map_or(backoff_s(attempt.failures), i64::from);
                    shift(attempt.at, asked_s.min(BACKOFF_MAX_S))
                }
                // Accepted, and still no deletionTimestamp: look before it is repeated.
                Outcome::Done | Outcome::Stale | Outcome::Refused { .. } => shift(attempt.at, 5),
            },
        };
        if due <= self.now {
            self.actions
                .push(Action::Evict(self.departure(member, tier)));
        } else {
            self.wake_later(due);
        }
    }

    /// From when on the successor of a pod that tolerates the taint is told apart
    /// from it: creation times have whole seconds, so that one made in the second
    /// of the marks would pass for a pod that was there before.
    fn told_apart_at(&self, member: &Member<'_>) -> Option<Timestamp> {
        let apart_at = shift(whole_second(self.intent.noticed), 1);
        pod::tolerates(member.pod).then_some(apart_at)
    }

    /// When a budget stops counting for a pod, if it ever does.
    fn force_at(&self, member: &Member<'_>) -> Option<Timestamp> {
        let Intent {
            since,
            deadline,
            kind,
            stopping,
            ..
        } = self.intent;
        let broken = pod::gang(member.pod).is_some_and(|gang| self.broken.contains(&gang));
        match self.policy.force {
            Force::Never => None,
            Force::Deadline | Force::LatestStart if *stopping || broken => Some(self.now),
            Force::Deadline => Some(*deadline),
            Force::LatestStart => {
                let patience_s = self.policy.patience.of(*kind);
                Some(member.latest_start.min(shift(*since, patience_s)))
            }
        }
    }

    /// Whether a pod must be told now to get all of its grace, or could have
    /// been already.
    fn last_moment(&self, member: &Member<'_>) -> bool {
        match self.policy.force {
            Force::Never => false,
            Force::Deadline => self.now >= self.intent.deadline,
            Force::LatestStart => self.intent.stopping || self.now >= member.latest_start,
        }
    }

    fn departure(&self, member: &Member<'_>, tier: usize) -> Departure {
        let pod = member.pod;
        Departure {
            pod: pod.id.clone(),
            tier: self.policy.tiers[tier].name.clone(),
            grace_s: pod.grace_s,
            shortened_to_s: self
                .remaining_s()
                .filter(|remaining| *remaining < pod.grace_s),
        }
    }

    /// What is left until a known deadline, in whole seconds, at least one.
    fn remaining_s(&self) -> Option<u32> {
        self.intent.deadline_known.then(|| {
            let left = seconds_between(self.now, self.intent.deadline).max(1);
            u32::try_from(left).unwrap_or(u32::MAX)
        })
    }

    /// A pod told to stop by someone else may have more grace than remains.
    fn shorten(&mut self, member: &Member<'_>, deletion_at: Timestamp, tier: usize) {
        let attempt = self.attempts.get(&member.pod.id.uid);
        let due = attempt.is_none_or(|a| shift(a.at, SHORTEN_AGAIN_S) <= self.now);
        let late = deletion_at > shift(self.intent.deadline, SLACK_S);
        let Some(left_s) = self.remaining_s().filter(|_| late && due) else {
            return;
        };
        let has_s = member.pod.deletion_grace_s.unwrap_or(u32::MAX);
        let gets_s = self.lasting_s(left_s, shift(deletion_at, -i64::from(has_s)));
        // The API server takes none that isn't shorter. Clocks differ: what is
        // left may seem to be more than it has.
        if gets_s < has_s {
            let shortened_to_s = Some(gets_s);
            self.actions.push(Action::Shorten(Departure {
                grace_s: member.pod.deletion_grace_s.unwrap_or(member.pod.grace_s),
                shortened_to_s,
                ..self.departure(member, tier)
            }));
        }
    }

    /// The grace to ask for, so that a pod told at `told_at` keeps what is left.
    /// The kubelet counts a shorter grace from when it hears of it; the API
    /// server counts it from `told_at`, and makes it one second if it is over by
    /// then. Such a pod is given the time until the deadline by that count.
    fn lasting_s(&self, left_s: u32, told_at: Timestamp) -> u32 {
        if seconds_between(told_at, self.now) + CALL_S <= i64::from(left_s) {
            return left_s;
        }
        let whole_s = seconds_between(told_at, self.intent.deadline);
        u32::try_from(whole_s).map_or(left_s, |s| s.max(left_s))
    }

    fn wake_later(&mut self, at: Timestamp) {
        if at > self.now {
            self.wake_at.push(at);
        }
    }
}

fn skip_reason(pod: &Pod, attempt: Option<&Attempt>) -> Option<String> {
    match (pod::exempt(pod), attempt.map(|a| &a.outcome)) {
        (Some(exempt), _) => Some(exempt.reason().to_owned()),
        (None, Some(Outcome::Refused { why })) => Some(why.clone()),
        (
            None,
            Some(Outcome::Done | Outcome::Blocked { .. } | Outcome::Stale | Outcome::Retry { .. })
            | None,
        ) => None,
    }
}

/// Whether a pod tolerates the taint and was made after the marks: the
/// successor of one that we evicted, come back to the same node. Creation
/// times have whole seconds, so strictly later.
fn came_back(pod: &Pod, intent: &Intent) -> bool {
    pod::tolerates(pod) && pod.created > intent.noticed
}

/// As creation times are: in whole seconds, rounded down.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// After so many failures in a row.
fn backoff_s(failures: u32) -> i64 {
    BACKOFF_MAX_S.min(1 << failures.min(6))
}

/// A spread of tries over two seconds, from the UID, so that pods of one
/// budget don't all try in the same moment.
fn spread(uid: &str) -> i64 {
    i64::from(uid.bytes().fold(0_u8, u8::wrapping_add) % 3)
}
