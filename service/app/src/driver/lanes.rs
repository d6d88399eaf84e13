//! One budget of API calls a cluster, in lanes: while a mark waits for the
//! cluster, no eviction is sent to it, for a second at most, and no Event while
//! an eviction waits. How many evictions are under way at
//! once follows what the server gives.
//!
//! The number grows with every answer and falls when the server throttles or
//! fails. Latency is no sign: an eviction that closely follows another takes
//! 100 ms at the least, because the server lists budgets through its watch
//! cache, and that is no congestion.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::observed::{Node, PodRef};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::events::KubeEvent;
use super::ports::{CallError, Changed, Cluster, ClusterId, PodList, Watching};

/// An API server on two cores gave the most evictions a second at 64 at once.
const LIMIT_MAX: f64 = 64.0;
const LIMIT_FIRST: f64 = 16.0;
const LIMIT_MIN: f64 = 2.0;
/// An eviction waits no longer for marks: in a burst of notices there is always
/// one under way, and a mark that hangs is no reason to keep pods.
const MARKS_FIRST: Duration = Duration::from_secs(1);
/// A swarm of bad answers belongs to one cause: it lowers the limit once.
const CALM: Duration = Duration::from_secs(1);

/// A cluster whose calls go through lanes.
pub struct Laned {
    inner: Arc<dyn Cluster>,
    marks: Marks,
    evictions: Limit,
}

impl Laned {
    /// Puts a cluster behind lanes.
    #[must_use]
    pub fn new(inner: Arc<dyn Cluster>) -> Self {
        Self {
            inner,
            marks: Marks::default(),
            evictions: Limit::new(),
        }
    }

    async fn evicting(&self, call: impl Future<Output = Outcome>) -> Outcome {
        let until = Instant::now() + MARKS_FIRST;
        let _slot = loop {
            let slot = self.evictions.acquire(Lane::Evictions).await;
            let over = self.marks.over.notified();
            if self.marks.none() || Instant::now() >= until {
                break slot;
            }
            drop(slot);
            drop(tokio::time::timeout_at(until, over).await);
        };
        let outcome = call.await;
        self.evictions.learn(&outcome);
        outcome
    }

    /// A slot that neither a mark nor an eviction waits for.
    async fn spare_slot(&self) -> Slot<'_> {
        loop {
            let slot = self.evictions.acquire(Lane::Events).await;
            let over = self.marks.over.notified();
            if self.marks.none() {
                return slot;
            }
            drop(slot);
            over.await;
        }
    }
}

/// Marks under way or waiting. Those who wait for their end are woken in the
/// order in which they came.
#[derive(Default)]
struct Marks {
    count: AtomicUsize,
    over: Notify,
}

impl Marks {
    fn none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

/// A mark under way; evictions wait until it is dropped.
struct MarkUnderWay<'a>(&'a Marks);

impl<'a> MarkUnderWay<'a> {
    fn new(marks: &'a Marks) -> Self {
        marks.count.fetch_add(1, Ordering::AcqRel);
        Self(marks)
    }
}

impl Drop for MarkUnderWay<'_> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

#[async_trait]
impl Cluster for Laned {
    fn id(&self) -> &ClusterId {
        self.inner.id()
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        let _mark = MarkUnderWay::new(&self.marks);
        self.inner.node(name).await
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        self.inner.nodes(label, value).await
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        self.inner.pods(node).await
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        let _mark = MarkUnderWay::new(&self.marks);
        self.inner.edit_node(edit).await
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        self.evicting(self.inner.evict(pod, grace_s)).await
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, now: Timestamp) -> Outcome {
        self.evicting(self.inner.force(pod, grace_s, now)).await
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        self.evicting(self.inner.shorten(pod, grace_s)).await
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        let _slot = self.spare_slot().await;
        self.inner.post_event(event).await
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        self.inner.changed(watching).await
    }
}

/// How many calls may be under way: additive increase, multiplicative decrease.
struct Limit {
    state: Mutex<LimitState>,
    freed: Notify,
}

struct LimitState {
    limit: f64,
    under_way: usize,
    /// Evictions that wait for a slot.
    waiting: usize,
    lowered: Option<Instant>,
}

/// Who may take a slot that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Evictions,
    /// Only those that no eviction waits for.
    Events,
}

/// An eviction that waits for its slot.
struct Waiting<'a>(&'a Limit);

impl<'a> Waiting<'a> {
    fn new(limit: &'a Limit) -> Self {
        limit.locked(|state| state.waiting += 1);
        Self(limit)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.locked(|state| state.waiting -= 1);
        self.0.freed.notify_waiters();
    }
}

struct Slot<'a>(&'a Limit);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.locked(|state| state.under_way -= 1);
        self.0.freed.notify_waiters();
    }
}

impl Limit {
    fn new() -> Self {
        let state = LimitState {
            limit: LIMIT_FIRST,
            under_way: 0,
            waiting: 0,
            lowered: None,
        };
        Self {
            state: Mutex::new(state),
            freed: Notify::new(),
        }
    }

    fn locked<T>(&self, change: impl FnOnce(&mut LimitState) -> T) -> T {
        // Numbers can't be left half written by a panic.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn acquire(&self, lane: Lane) -> Slot<'_> {
        let _waiting = (lane == Lane::Evictions).then(|| Waiting::new(self));
        loop {
            let freed = self.freed.notified();
            let free = self.locked(|state| {
                #[expect(clippy::cast_precision_loss, reason = "it stays under a hundred")]
                let free = (state.under_way as f64) < state.limit.floor()
                    && (lane == Lane::Evictions || state.waiting == 0);
                state.under_way += usize::from(free);
                free
            });
            if free {
                return Slot(self);
            }
            freed.await;
        }
    }

    fn learn(&self, outcome: &Outcome) {
        self.locked(|state| match outcome {
            Outcome::Retry { .. } => {
                if state.lowered.is_none_or(|at| at.elapsed() > CALM) {
                    state.limit = (state.limit * 0.6).max(LIMIT_MIN);
                    state.lowered = Some(Instant::now());
                }
            }
            Outcome::Done | Outcome::Blocked { .. } | Outcome::Stale | Outcome::Refused { .. } => {
                state.limit = (state.limit + 1.0 / state.limit).min(LIMIT_MAX);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_after(outcomes: &[(Outcome, u32)]) -> f64 {
        let limit = Limit::new();
        for (outcome, times) in outcomes {
            (0..*times).for_each(|_| limit.learn(outcome));
        }
        limit.locked(|state| state.limit)
    }

    #[test]
    fn the_limit_grows_with_answers_and_falls_once_for_a_swarm_of_bad_ones() {
        let down = || Outcome::Retry {
            why: "HTTP 500".to_owned(),
            after_s: None,
        };
        assert!(limit_after(&[(Outcome::Done, 200)]) > LIMIT_FIRST + 8.0);
        assert!(limit_after(&[(Outcome::Done, 100_000)]) <= LIMIT_MAX);
        let fallen = limit_after(&[(down(), 50)]);
        assert!(
            fallen < LIMIT_FIRST && fallen > LIMIT_FIRST / 2.0,
            "{fallen}"
        );
        let why = "a budget".to_owned();
        assert!(limit_after(&[(Outcome::Blocked { why }, 50)]) > LIMIT_FIRST);
    }
}
