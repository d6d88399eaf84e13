//! Marks go before evictions, and don't keep them for good.

use std::sync::Arc;

use drainwell_app::driver::lanes::Laned;
use drainwell_app::driver::ports::Cluster;
use drainwell_core::action::Outcome;
use drainwell_sim::spec::Owner;
use tokio::time::{Instant, timeout};

use super::{NODE, pass, pod, world_with_latency};

#[tokio::test(start_paused = true)]
async fn a_stream_of_notices_without_a_gap_keeps_no_eviction_for_long() {
    let world = world_with_latency(400);
    let pod = world.add_pod(Some(NODE), pod("job", Owner::Job));
    let laned = Arc::new(Laned::new(Arc::new(world)));
    let notices = async |offset: u64| {
        tokio::time::sleep(std::time::Duration::from_millis(offset)).await;
        loop {
            laned.node(NODE).await.unwrap();
        }
    };
    let began = Instant::now();
    let evicted = async {
        pass(1).await;
        let _turn = laned.turn(jiff::Timestamp::MAX).await;
        laned.evict(&pod, None).await
    };
    // Two at once, so that one is always under way.
    let outcome = tokio::select! {
        biased;
        () = notices(0) => None,
        () = notices(200) => None,
        outcome = timeout(std::time::Duration::from_secs(10), evicted) => outcome.ok(),
    };
    assert!(matches!(outcome, Some(Outcome::Done)), "{outcome:?}");
    let waited = began.elapsed().as_millis() - 1000 - 400;
    assert!((900..1500).contains(&waited), "{waited} ms: they go first");
}
