//! The hand of a clock that somebody leads: for tests that carry a real control
//! plane through hours, and lose no time to a slow machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

/// Shows the time that it was last set to, and who waits for a later one.
#[derive(Debug)]
pub struct Hand {
    shown: watch::Sender<Timestamp>,
    /// As many as there are loops: one a cluster.
    waiting: Mutex<Vec<Timestamp>>,
}

impl Hand {
    /// A hand that shows this time.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        Self {
            shown: watch::Sender::new(at),
            waiting: Mutex::default(),
        }
    }

    /// Moves it.
    pub fn set(&self, at: Timestamp) {
        self.shown.send_replace(at);
    }

    /// The earliest time that is waited for. None: whoever waits otherwise is
    /// at work.
    #[must_use]
    pub fn awaited(&self) -> Option<Timestamp> {
        self.waiting().iter().min().copied()
    }

    pub(super) fn shown(&self) -> Timestamp {
        *self.shown.borrow()
    }

    pub(super) async fn wait(&self, until: Timestamp) {
        self.waiting().push(until);
        let _waiting = Waiting { hand: self, until };
        // The sender lives as long as this: there is no error.
        drop(self.shown.subscribe().wait_for(|now| *now >= until).await);
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Timestamp>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits, until it is dropped.
struct Waiting<'a> {
    hand: &'a Hand,
    until: Timestamp,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.hand.waiting();
        if let Some(index) = waiting.iter().position(|until| *until == self.until) {
            waiting.swap_remove(index);
        }
    }
}
