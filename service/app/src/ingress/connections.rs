//! The connections that are open, and which of them may be closed to make room:
//! those that no request is worked on for, the longest idle one first.
//!
//! Whoever opens connections and says nothing loses them to those who have
//! something to say, so that nobody is kept out by idle ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Idle>>);

/// The idle ones, in the order in which they have become idle.
#[derive(Debug, Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        // Every change is one call on the map: a panic leaves none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection: idle, until its first request is worked on.
    pub(super) fn open(&self) -> Connection {
        let told = Arc::new(Notify::new());
        let place = self.lock().enter(&told);
        Connection {
            all: self.clone(),
            told,
            place: Mutex::new(place),
        }
    }

    /// Tells the longest idle connection to close.
    pub(super) fn close_oldest(&self) {
        if let Some((_, oldest)) = self.lock().waiting.pop_first() {
            oldest.notify_one();
        }
    }

    /// Tells all idle connections to close.
    pub(super) fn close_idle(&self) {
        let idle = std::mem::take(&mut self.lock().waiting);
        idle.values().for_each(|connection| connection.notify_one());
    }
}

impl Idle {
    fn enter(&mut self, told: &Arc<Notify>) -> u64 {
        let place = self.next;
        self.next += 1;
        self.waiting.insert(place, Arc::clone(told));
        place
    }
}

/// One connection; it is out of the books when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    all: Connections,
    told: Arc<Notify>,
    /// Its place among the idle ones, if it is one.
    place: Mutex<u64>,
}

impl Connection {
    fn place(&self) -> MutexGuard<'_, u64> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when it has to close, to make room for another.
    pub(super) async fn told_to_close(&self) {
        self.told.notified().await;
    }

    /// It is not idle until the value is dropped.
    pub(super) fn busy(self: Arc<Self>) -> Busy {
        self.all.lock().waiting.remove(&self.place());
        Busy(self)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.lock().waiting.remove(&self.place());
    }
}

/// A connection for which a request is worked on.
#[derive(Debug)]
pub(super) struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.place() = self.0.all.lock().enter(&self.0.told);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn is_closed(connection: &Connection) -> bool {
        connection.told_to_close().now_or_never().is_some()
    }

    #[test]
    fn the_longest_idle_connection_is_closed_and_never_a_busy_one() {
        let all = Connections::default();
        let [first, second, third] = [(); 3].map(|()| Arc::new(all.open()));
        let work = Arc::clone(&first).busy();
        all.close_oldest();
        assert!(is_closed(&second) && !is_closed(&first) && !is_closed(&third));
        drop(work);
        all.close_oldest();
        assert!(is_closed(&third), "the first has become idle after it");
        drop(third);
        let work = Arc::clone(&first).busy();
        all.close_idle();
        assert!(!is_closed(&first));
        drop(work);
        all.close_idle();
        assert!(is_closed(&first));
        drop([first, second]);
        assert!(all.lock().waiting.is_empty());
    }
}
