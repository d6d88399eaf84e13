//! One budget of API calls a cluster, in lanes: while a mark waits for the
//! cluster, no eviction is sent to it, for a second at most, and no Event while
//! an eviction waits.
//! Evictions that wait go by their node's deadline, the earliest first. How
//! many are under way at once follows what the server gives.
//!
//! The number grows with every answer and falls when the server throttles or
//! fails. Latency is no sign: an eviction that closely follows another takes
//! 100 ms at the least, because the server lists budgets through its watch
//! cache, and that is no congestion.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::observed::{Node, PodRef};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::events::KubeEvent;
use super::ports::{CallError, Changed, Cluster, ClusterId, PodList, Turn, Watching};

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
    lanes: Arc<Lanes>,
}

impl Laned {
    /// Puts a cluster behind lanes.
    #[must_use]
    pub fn new(inner: Arc<dyn Cluster>) -> Self {
        let lanes = Arc::new(Lanes::new());
        Self { inner, lanes }
    }
}

#[async_trait]
impl Cluster for Laned {
    fn id(&self) -> &ClusterId {
        self.inner.id()
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        let _mark = Mark::new(&self.lanes);
        self.inner.node(name).await
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        self.inner.nodes(label, value).await
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        self.inner.pods(node).await
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        let _mark = Mark::new(&self.lanes);
        self.inner.edit_node(edit).await
    }

    async fn turn(&self, deadline: Timestamp) -> Turn {
        Turn::holding(self.lanes.slot(Lane::Eviction(deadline)).await)
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        let outcome = self.inner.evict(pod, grace_s).await;
        self.lanes.learn(&outcome);
        outcome
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, now: Timestamp) -> Outcome {
        let outcome = self.inner.force(pod, grace_s, now).await;
        self.lanes.learn(&outcome);
        outcome
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        let outcome = self.inner.shorten(pod, grace_s).await;
        self.lanes.learn(&outcome);
        outcome
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        let _slot = self.lanes.slot(Lane::Event).await;
        self.inner.post_event(event).await
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        self.inner.changed(watching).await
    }
}

/// Who may call now, and who waits.
struct Lanes {
    state: Mutex<State>,
}

struct State {
    /// Marks under way.
    marks: usize,
    /// How many of the others may be under way: additive increase, multiplicative
    /// decrease.
    limit: f64,
    /// Evictions and Events under way.
    under_way: usize,
    /// When the limit was lowered last.
    lowered: Option<Instant>,
    /// Those that wait, by lane and then by when they came. As many as there are
    /// pods to be told, since no pod has two calls, and a few Events.
    waiting: BTreeMap<(Lane, u64), Waiting>,
    /// Number of the last one that came.
    serial: u64,
}

/// One that waits, since when, and where its slot is to be sent.
struct Waiting {
    since: Instant,
    sender: oneshot::Sender<Slot>,
}

/// What waits for a slot, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// An eviction on a node that stops then.
    Eviction(Timestamp),
    /// Only when no eviction waits.
    Event,
}

/// A mark under way; all others wait until it is dropped.
struct Mark<'a>(&'a Arc<Lanes>);

impl<'a> Mark<'a> {
    fn new(lanes: &'a Arc<Lanes>) -> Self {
        lanes.locked(|state| state.marks += 1);
        Self(lanes)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.locked(|state| state.marks -= 1);
        self.0.hand_out();
    }
}

/// An eviction or an Event under way.
struct Slot(Arc<Lanes>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.locked(|state| state.under_way -= 1);
        self.0.hand_out();
    }
}

impl State {
    /// The next who may call, if anybody may.
    fn next(&mut self) -> Option<oneshot::Sender<Slot>> {
        #[expect(clippy::cast_precision_loss, reason = "it stays under a hundred")]
        let free = (self.under_way as f64) < self.limit.floor();
        if !free {
            return None;
        }
        while let Some(first) = self.waiting.first_entry() {
            let Waiting { since, sender } = first.get();
            // Whoever has given up waiting is passed over.
            if sender.is_closed() {
                first.remove();
                continue;
            }
            let eviction = matches!(first.key().0, Lane::Eviction(_));
            if self.marks > 0 && !(eviction && since.elapsed() >= MARKS_FIRST) {
                return None;
            }
            self.under_way += 1;
            return Some(first.remove().sender);
        }
        None
    }
}

impl Lanes {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                marks: 0,
                limit: LIMIT_FIRST,
                under_way: 0,
                lowered: None,
                waiting: BTreeMap::new(),
                serial: 0,
            }),
        }
    }

    fn locked<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // Numbers can't be left half written by a panic.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a call of this lane may be made.
    async fn slot(self: &Arc<Self>, lane: Lane) -> Slot {
        loop {
            let (sender, mut slot) = oneshot::channel();
            let since = Instant::now();
            self.locked(|state| {
                state.serial += 1;
                let waiting = Waiting { since, sender };
                state.waiting.insert((lane, state.serial), waiting);
            });
            self.hand_out();
            if let Ok(Ok(slot)) = tokio::time::timeout(MARKS_FIRST, &mut slot).await {
                return slot;
            }
            self.hand_out();
            // It fails only when the sender is gone, and that is used first.
            if let Ok(slot) = slot.await {
                return slot;
            }
        }
    }

    /// Lets go on whoever may.
    fn hand_out(self: &Arc<Self>) {
        while let Some(next) = self.locked(State::next) {
            // One that gives up at this moment gives its slot back by itself.
            drop(next.send(Slot(Arc::clone(self))));
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
    use futures::FutureExt as _;

    use super::*;

    fn limit_after(outcomes: &[(Outcome, u32)]) -> f64 {
        let limit = Lanes::new();
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

    fn eviction(seconds: i64) -> Lane {
        Lane::Eviction(Timestamp::from_second(1_790_000_000 + seconds).unwrap_or_default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_that_hangs_keeps_evictions_for_a_second_and_events_for_good() {
        let lanes = Arc::new(Lanes::new());
        let _mark = Mark::new(&lanes);
        let began = Instant::now();
        let slot = lanes.slot(eviction(300)).await;
        assert_eq!(began.elapsed(), MARKS_FIRST);
        drop(slot);
        let event = tokio::time::timeout(MARKS_FIRST * 60, lanes.slot(Lane::Event)).await;
        assert!(event.is_err());
    }

    #[tokio::test]
    async fn the_earliest_deadline_is_first_and_those_who_gave_up_take_no_place() {
        let lanes = Arc::new(Lanes::new());
        let mut held = Vec::new();
        while held.len() < 16 {
            held.push(lanes.slot(Lane::Event).await);
        }
        let wait = |lane| Box::pin(lanes.slot(lane));
        let mut event = wait(Lane::Event);
        let (mut hour, mut minutes) = (wait(eviction(3600)), wait(eviction(300)));
        let (mut gives_up, mut another_hour) = (wait(eviction(60)), wait(eviction(3600)));
        for waiting in [
            &mut event,
            &mut hour,
            &mut minutes,
            &mut gives_up,
            &mut another_hour,
        ] {
            assert!(waiting.now_or_never().is_none(), "the limit is reached");
        }
        drop(gives_up);
        let mark = Mark::new(&lanes);
        held.truncate(15);
        assert!((&mut minutes).now_or_never().is_none(), "marks go first");
        drop(mark);
        // With one slot: each goes only when the one before is through.
        assert!((&mut hour).now_or_never().is_none());
        assert!(minutes.now_or_never().is_some(), "the earliest deadline");
        assert!((&mut another_hour).now_or_never().is_none());
        assert!(hour.now_or_never().is_some(), "the one that came first");
        assert!((&mut event).now_or_never().is_none());
        assert!(another_hour.now_or_never().is_some());
        assert!(event.now_or_never().is_some(), "and then an Event");
        drop(held);
        assert_eq!(lanes.locked(|state| state.under_way), 0);
    }
}
