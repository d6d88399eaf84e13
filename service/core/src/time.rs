//! Arithmetic on timestamps that can't overflow, whatever a notice claims.

use jiff::{SignedDuration, Timestamp};

/// `t` moved by `seconds`, held within what a timestamp can express.
#[must_use]
pub fn shift(t: Timestamp, seconds: i64) -> Timestamp {
    let end = if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    t.checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(end)
}

/// Whole seconds from `a` to `b`, rounded down; negative when `b` is earlier.
#[must_use]
pub fn seconds_between(a: Timestamp, b: Timestamp) -> i64 {
    let nanos = b.as_nanosecond() - a.as_nanosecond();
    i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_held_at_the_ends_of_time() {
        assert_eq!(shift(Timestamp::MAX, 1), Timestamp::MAX);
        assert_eq!(shift(Timestamp::MIN, -1), Timestamp::MIN);
        assert_eq!(
            seconds_between(shift(Timestamp::UNIX_EPOCH, 7), Timestamp::UNIX_EPOCH),
            -7
        );
    }
}
