//! How long pulling waits.

use std::time::Duration;

/// How long to wait, in real time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// A message that has to come again is kept so long before it goes back: as
    /// long as a sender that pushes is told to wait.
    pub hold: Duration,
    /// Between tries when somebody has to grant something first.
    pub denied: Duration,
    /// Between tries after another error: at first, and at most.
    pub first: Duration,
    /// The most.
    pub most: Duration,
    /// A stream without an error for so long is a good one. Idle streams don't
    /// tell: the first that a server says may be a message.
    pub calm: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(10),
            denied: Duration::from_secs(30),
            first: Duration::from_secs(1),
            most: Duration::from_secs(60),
            calm: Duration::from_secs(10),
        }
    }
}

impl Pace {
    /// Three quarters to five quarters of it, so that what began together
    /// doesn't come back together.
    pub(super) fn jittered(&self, pause: Duration) -> Duration {
        pause.mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    /// Before the next try, after so many failures in a row.
    pub(super) fn pause(&self, denied: bool, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let pause = match denied {
            true => self.denied,
            false => self.first.saturating_mul(doubled).min(self.most),
        };
        self.jittered(pause)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    #[test]
    fn pauses_grow_to_a_bound_and_never_come_to_nothing() {
        let pace = Pace::default();
        let within = |pause: Duration, seconds: f64| {
            (0.75..=1.25).contains(&(pause.as_secs_f64() / seconds))
        };
        for (failures, seconds) in [(1, 1.0), (2, 2.0), (4, 8.0), (7, 60.0), (u32::MAX, 60.0)] {
            let pause = pace.pause(false, failures);
            assert!(within(pause, seconds), "{failures}: {pause:?}");
        }
        assert!(within(pace.pause(true, 1), 30.0));
    }
}
