//! The one source of time. Passed in, so that a demo can run an hour in a
//! minute and a test can choose its pace.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

mod hand;

pub use self::hand::Hand;

/// A clock that runs at a given pace from the moment it was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Pace);

#[derive(Debug, Clone, Copy)]
enum Pace {
    /// The system's clock, and by how much the true time is ahead of it.
    System(SignedDuration),
    Scaled {
        from: Timestamp,
        started: Instant,
        speed: f64,
    },
    /// Stands still until its hand is moved.
    Led(&'static Hand),
}

/// Longest single sleep: the system's clock may be set while we sleep.
const NAP: Duration = Duration::from_secs(60);

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Pace::System(SignedDuration::ZERO))
    }

    /// The system's clock, put right by so much.
    #[must_use]
    pub fn corrected(by: SignedDuration) -> Self {
        Self(Pace::System(by))
    }

    /// A clock that shows `from` now and runs `speed` times as fast.
    #[must_use]
    pub fn scaled(from: Timestamp, speed: f64) -> Self {
        Self(Pace::Scaled {
            from,
            started: Instant::now(),
            speed,
        })
    }

    /// A clock that shows what its hand shows, and stands still in between.
    #[must_use]
    pub fn led(hand: &'static Hand) -> Self {
        Self(Pace::Led(hand))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Pace::System(by) => {
                let now = Timestamp::now();
                now.checked_add(by).unwrap_or(now)
            }
            Pace::Scaled {
                from,
                started,
                speed,
            } => {
                let elapsed = started.elapsed().mul_f64(speed);
                let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
                from.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
            Pace::Led(hand) => hand.shown(),
        }
    }

    /// Returns once the clock shows `until` or later.
    pub async fn sleep_until(&self, until: Timestamp) {
        if let Pace::Led(hand) = self.0 {
            return hand.wait(until).await;
        }
        loop {
            let left = until.duration_since(self.now());
            let Ok(left) = Duration::try_from(left) else {
                return;
            };
            if left.is_zero() {
                return;
            }
            let speed = match self.0 {
                Pace::System(_) | Pace::Led(_) => 1.0,
                Pace::Scaled { speed, .. } => speed,
            };
            // A little more than needed, so that a rounded nap isn't a busy loop.
            let nap = left.div_f64(speed) + Duration::from_millis(1);
            tokio::time::sleep(nap.min(NAP)).await;
        }
    }
}
