//! One instance of the service: the real driver and intake, put together as
//! `serve` does it, without HTTP. It can die at any await.

use std::sync::Arc;
use std::time::Duration;

use drainwell_app::clock::Clock;
use drainwell_app::driver::lanes::Laned;
use drainwell_app::driver::pass::Driver;
use drainwell_app::driver::ports::{Cloud, Cluster};
use drainwell_app::driver::wake::{self, Wake};
use drainwell_app::intake::{Intake, Verify};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bench::Bench;
use super::faulty::Faulty;

/// What a stopping instance has to end its work.
const DRAIN: Duration = Duration::from_secs(8);

/// What senders need of an instance.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) intake: Arc<Intake>,
    pub(super) wake: Wake,
    pub(super) clock: Clock,
    /// Shows true when the instance is dead.
    pub(super) dead: watch::Receiver<bool>,
}

/// A running instance.
pub(super) struct Running {
    pub(super) door: Door,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    dead: watch::Sender<bool>,
}

impl Running {
    /// Starts one.
    pub(super) fn start(bench: &Arc<Bench>, instance: usize, clock: Clock) -> Self {
        let faulty = |far| {
            Arc::new(Faulty {
                bench: Arc::clone(bench),
                instance,
                clock,
                far,
            })
        };
        let laned = |far| -> Arc<dyn Cluster> { Arc::new(Laned::new(faulty(far))) };
        let clusters = vec![laned(true), laned(false)];
        let asked = bench.verify != Verify::Off;
        let cloud = asked.then(|| faulty(false) as Arc<dyn Cloud>);
        let policies = bench.policies.clone();
        let (wake, ends) = wake::channel(clusters.len());
        let driver = Driver::new(
            clusters.clone(),
            cloud.clone(),
            policies.clone(),
            clock,
            false,
        );
        let intake = Intake::new(clusters, cloud, policies, clock, bench.verify, false);
        let (stop, stopped) = watch::channel(false);
        let (dead, died) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { wake::run(&driver, ends, stopped).await });
        let door = Door {
            intake: Arc::new(intake),
            wake,
            clock,
            dead: died,
        };
        Self {
            door,
            tasks,
            stop,
            dead,
        }
    }

    /// Ends it: at once, or with the time that a platform gives.
    pub(super) async fn end(mut self, gently: bool) {
        if gently {
            self.stop.send_replace(true);
            let ended = async { while self.tasks.join_next().await.is_some() {} };
            drop(tokio::time::timeout(DRAIN, ended).await);
        }
        self.dead.send_replace(true);
        self.tasks.shutdown().await;
    }

    /// Whether its loops have ended by themselves, which they never should.
    pub(super) fn has_ended(&mut self) -> bool {
        self.tasks.try_join_next().is_some()
    }
}
