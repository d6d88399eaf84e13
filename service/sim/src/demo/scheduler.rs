//! Cloud Scheduler: posts `/tick` each simulated minute, never two at once.

use std::time::Duration;

use anyhow::Context as _;
use drainwell_app::clock::Clock;
use drainwell_core::time::shift;
use jiff::Timestamp;

/// A tick may hold its request for almost three minutes. In real time,
/// because HTTP is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);
const EVERY_S: i64 = 60;

/// Ticks, for as long as the demo lasts.
pub(super) async fn run(clock: Clock, base: String) -> anyhow::Result<()> {
    let client = reqwest::Client::builder()
        .timeout(ANSWER_TIMEOUT)
        .no_proxy()
        .build()
        .context("no HTTP client")?;
    let url = format!("{base}/tick");
    loop {
        clock.sleep_until(next_minute(clock.now())).await;
        // A run that fails is not repeated: the next one comes in a minute.
        drop(client.post(&url).send().await);
    }
}

/// The minute of the wall clock after `now`.
fn next_minute(now: Timestamp) -> Timestamp {
    shift(now, EVERY_S - now.as_second().rem_euclid(EVERY_S))
}
