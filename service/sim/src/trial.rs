//! Trials: the real driver and the real intake, in a world and under faults
//! drawn from a seed, checked against a reference model after every call.
//!
//! ```text
//! seed ──draw──► steps ──play──► World ◄── Faulty ◄── driver, intake (real)
//!                                  └──► model ──► rules ──► breaches
//! ```
//!
//! A trial is a value: a seed and its steps give the same trace each time.

mod bench;
mod check_nodes;
mod check_pods;
pub mod command;
mod deeds;
mod draw;
mod faulty;
mod instance;
mod ledger;
mod liveness;
mod mail;
mod model;
mod phrase;
mod play;
mod scene;
pub mod script;
mod shrink;
mod step;

use std::sync::Arc;

use anyhow::Context as _;
use drainwell_core::time::seconds_between;

use self::bench::Bench;
pub use self::draw::draw;
use self::play::Play;
pub use self::shrink::shrink;
pub use self::step::Step;

/// A world, its latencies, and what happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// Of the world and of all chance.
    pub seed: u64,
    /// What happens, in the order of time.
    pub steps: Vec<Step>,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Rules that were broken; none: it has passed.
    pub breaches: Vec<String>,
    /// Every step, call and answer, if it was to be kept.
    pub trace: Vec<String>,
    /// How many calls the service made.
    pub calls: u64,
    /// How much time passed in the world.
    pub simulated_s: i64,
}

/// Steps in a history by default.
pub const STEPS: usize = 24;

impl Trial {
    /// The trial of a seed.
    #[must_use]
    pub fn of(seed: u64, steps: usize) -> Self {
        let steps = draw(seed, steps);
        Self { seed, steps }
    }

    /// Plays it, in simulated time.
    ///
    /// # Errors
    /// When there is no runtime for it.
    pub fn play(&self, keep_trace: bool) -> anyhow::Result<Verdict> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .context("no runtime")?;
        let (bench, simulated_s) = runtime.block_on(async {
            let bench = Arc::new(Bench::new(self.seed, scene::build, keep_trace)?);
            Play::new(&bench).play(&self.steps).await;
            let simulated_s = seconds_between(bench.begin, bench.now());
            anyhow::Ok((bench, simulated_s))
        })?;
        drop(runtime);
        let calls = bench.ledger_as_is(|ledger| ledger.calls());
        let (breaches, trace) = bench.ledger_as_is(|ledger| ledger.take_parts());
        Ok(Verdict {
            breaches,
            trace,
            calls,
            simulated_s,
        })
    }
}
