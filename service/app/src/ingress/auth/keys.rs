//! The keys that tokens are signed with, fetched when a request needs them: at
//! other times nothing may run, where CPU comes with requests only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drainwell_core::time::shift;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use jsonwebtoken::DecodingKey;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fetch::{Fetched, Source};
use crate::clock::Clock;

/// Anybody can name a key that there isn't. New ones are published long before
/// they are used, so that a minute without another look costs nothing.
const AGAIN_S: i64 = 60;
/// Without any key nobody is let in: that is mended sooner.
const AGAIN_WITHOUT_KEYS_S: i64 = 5;
/// How long a request waits for new keys when an old one would do.
const PATIENCE: Duration = Duration::from_secs(1);

/// A fetch has a bound of five seconds: one that lasted longer stood still.
const STARVED: Duration = Duration::from_secs(7);

/// The keys, and how they are had. Clones share them.
#[derive(Clone)]
pub(super) struct Keys(Arc<Inner>);

struct Inner {
    source: Source,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, Arc<DecodingKey>>,
    /// New ones are to be fetched from then on. The old ones stay good until
    /// they are there.
    expires: Timestamp,
    /// No fetch before this.
    again: Timestamp,
    /// Why the last fetch failed, if it did.
    fault: String,
    flight: Option<Flight>,
    /// The fetch itself: one that only its requests drove on would stand still,
    /// and fail, once they have gone away.
    task: JoinSet<()>,
}

/// A fetch that any number of requests wait for.
type Flight = Shared<BoxFuture<'static, ()>>;

/// Why there is no key of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing {
    /// It isn't published.
    Unknown,
    /// They can't be fetched now, for this reason, so that it may be.
    NotFetched(String),
}

impl Keys {
    pub(super) fn new(url: &str, clock: Clock) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Inner {
            source: Source::new(url)?,
            clock,
            state: Mutex::default(),
        })))
    }

    /// The key of this name.
    pub(super) async fn find(&self, id: &str) -> Result<Arc<DecodingKey>, Missing> {
        let (old, flight) = self.look(id);
        match (old, flight) {
            (Some(key), None) => return Ok(key),
            (Some(_), Some(flight)) => {
                // Over or not: what is known by then has to do.
                drop(tokio::time::timeout(PATIENCE, flight).await);
            }
            (None, Some(flight)) => flight.await,
            (None, None) => {}
        }
        let state = self.0.lock();
        match state.keys.get(id) {
            Some(key) => Ok(key.clone()),
            None if state.keys.is_empty() || !state.fault.is_empty() => {
                Err(Missing::NotFetched(state.fault.clone()))
            }
            None => Err(Missing::Unknown),
        }
    }

    /// The key as far as it is known, and a fetch to wait for if one is due.
    fn look(&self, id: &str) -> (Option<Arc<DecodingKey>>, Option<Flight>) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        let key = state.keys.get(id).cloned();
        if key.is_some() && now < state.expires {
            return (key, None);
        }
        if state.flight.is_none() && now >= state.again {
            let inner = Arc::clone(&self.0);
            let (done, over) = oneshot::channel::<()>();
            // The one before has ended: it has set `flight` to none.
            while state.task.try_join_next().is_some() {}
            state.task.spawn(async move {
                let begun = Instant::now();
                let fetched = inner.source.fetch().await;
                inner.settle(fetched, begun.elapsed());
                drop(done);
            });
            // It never comes to an answer: the end is what is waited for.
            state.flight = Some(over.map(drop).boxed().shared());
        }
        (key, state.flight.clone())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, fetched: Result<Fetched, String>, lasted: Duration) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.flight = None;
        match fetched {
            Ok(Fetched { keys, lifetime_s }) => {
                state.keys = keys;
                state.expires = shift(now, lifetime_s);
                state.fault.clear();
            }
            Err(fault) => {
                let from = self.source.place();
                tracing::warn!("The keys of tokens can't be fetched from {from}: {fault}");
                state.fault = fault;
            }
        }
        let pause_s = match state.keys.is_empty() {
            // It had no CPU, and says nothing of the other side.
            _ if lasted > STARVED => 0,
            true => AGAIN_WITHOUT_KEYS_S,
            false => AGAIN_S,
        };
        state.again = shift(now, pause_s);
    }
}
