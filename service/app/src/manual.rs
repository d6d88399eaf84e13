//! Draining one node by hand, in the foreground: the same marks, the same plan
//! and the same driver as the service's, for this node alone.

mod follow;
mod marks;
mod one_node;
pub mod progress;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use drainwell_core::intent::Intent;
use drainwell_core::policy::Policies;
use jiff::SignedDuration;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::cluster::KubeCluster;
use crate::driver::lanes::Laned;
use crate::driver::pass::Driver;
use crate::driver::ports::{CallError, Cluster};
use crate::driver::wake;

pub use self::follow::{End, PodLeft};
pub use self::marks::Undone;

/// Longest window: a drain in the foreground that takes days is a mistake.
const WINDOW_MAX_S: i64 = 24 * 3600;

/// Reads a window such as `10m`, as seconds.
///
/// # Errors
/// When it is no time, or out of range.
pub fn window_s(text: &str) -> anyhow::Result<i64> {
    let window: SignedDuration = text.parse().context("give a time such as 10m or 90s")?;
    let seconds = window.as_secs();
    ensure!(
        (1..=WINDOW_MAX_S).contains(&seconds),
        "give a time from 1s to 24h"
    );
    Ok(seconds)
}

/// A cluster, as somebody works on it by hand.
pub struct Hand {
    cluster: Arc<dyn Cluster>,
    policies: Policies,
    clock: Clock,
}

impl Hand {
    /// Takes the time from the cluster's API server, since the clock of the
    /// machine that this runs on may be wrong.
    ///
    /// # Errors
    /// When the API server doesn't answer.
    pub async fn on(cluster: KubeCluster, policies: Policies) -> Result<Self, CallError> {
        let clock = Clock::corrected(cluster.ahead().await?);
        Ok(Self {
            cluster: Arc::new(cluster),
            policies,
            clock,
        })
    }

    /// Drains a node that has been marked with `intent`, until it is drained,
    /// the window is over, or `stop` returns. The marks stay.
    pub async fn drain(&self, node: &str, intent: &Intent, stop: impl Future<Output = ()>) -> End {
        let (stopping, stopped) = watch::channel(false);
        let alone = one_node::OneNode::new(Arc::clone(&self.cluster), node, stopped.clone());
        let cluster = Arc::new(Laned::new(Arc::new(alone)));
        let policies = self.policies.clone();
        let driver = Driver::new(vec![cluster], None, policies, self.clock, false).by_hand();
        let (wake, ends) = wake::channel(1);
        let mut loops = pin!(wake::run(&driver, ends, stopped));
        let end = tokio::select! {
            end = follow::to_the_end(&wake, &self.clock, intent) => end,
            () = stop => End::Stopped,
            () = &mut loops => return End::Stopped,
        };
        stopping.send_replace(true);
        // Calls under way are waited for: they may be carried out all the same.
        loops.await;
        end
    }
}
