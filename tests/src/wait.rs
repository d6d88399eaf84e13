//! Bounded waits on a predicate. Tests wait with nothing else: no sleep stands
//! for "by then it will have happened".

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// How often a predicate is looked at: short beside every time that a test is
/// about, long beside one call to the API server.
const INTERVAL: Duration = Duration::from_millis(25);

/// Seconds, for readable bounds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Milliseconds, for readable bounds.
pub const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Calls `probe` until it gives `Ok`, and returns that value. An `Err` means
/// "not yet" and says what was seen; `anyhow::ensure!` writes one well. When
/// `bound` is over, panics with `what` and what was seen last.
#[track_caller]
pub fn eventually<T>(
    bound: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> anyhow::Result<T>,
) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + bound;
        let mut last = String::from("the first look did not end");
        loop {
            match timeout_at(deadline, probe()).await {
                Ok(Ok(value)) => return value,
                Ok(Err(seen)) => last = format!("{seen:#}"),
                Err(_) => panic!("{caller}: not within {bound:?}: {what}; last seen: {last}"),
            }
            if Instant::now() + INTERVAL >= deadline {
                panic!("{caller}: not within {bound:?}: {what}; last seen: {last}");
            }
            sleep(INTERVAL).await;
        }
    }
}

/// Fails when `probe` gives `Err` at any look within `span`: for what must not
/// happen. The span is part of the claim, so keep it close to the time in which
/// a fault would show.
#[track_caller]
pub fn always(
    span: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> anyhow::Result<()>,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + span;
        while Instant::now() < end {
            match timeout_at(end + span, probe()).await {
                Ok(Ok(())) => {}
                Ok(Err(seen)) => panic!("{caller}: broken: {what}; seen: {seen:#}"),
                Err(_) => panic!("{caller}: a look at this did not end: {what}"),
            }
            sleep(INTERVAL).await;
        }
    }
}
