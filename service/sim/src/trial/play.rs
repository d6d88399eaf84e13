//! Plays a history: starts the instances, lets the steps happen, looks at
//! everything once a simulated second, and then gives it time to come to rest.

use std::sync::{Arc, Mutex, PoisonError};

use drainwell_app::clock::Clock;
use drainwell_app::driver::report::PassReport;
use drainwell_core::keys;
use drainwell_core::time::{seconds_between, shift};
use jiff::{SignedDuration, Timestamp};

use super::bench::Bench;
use super::check_pods::SKEW_S;
use super::draw::INSTANCES;
use super::instance::Running;
use super::mail::{Doors, Post};
use super::scene;
use super::step::Step;

/// After the last step, everything is over within this.
const REST_S: i64 = 6 * 3600;
/// And stays so for this long.
const IDLE_S: i64 = 200;
/// A history while it is played.
pub(super) struct Play {
    pub(super) bench: Arc<Bench>,
    doors: Doors,
    pub(super) post: Post,
    running: Vec<Option<Running>>,
    clocks: Vec<Clock>,
    /// When an instance that is down comes back.
    back_at: Vec<Timestamp>,
    /// Nodes to be built anew, and when.
    pub(super) rebuilds: Vec<(Timestamp, String)>,
    builds: u64,
}

impl Play {
    pub(super) fn new(bench: &Arc<Bench>) -> Self {
        let doors: Doors = Arc::new(Mutex::new(vec![None; INSTANCES]));
        let post = Post::new(bench, &doors);
        let mut dice = bench.dice("clocks");
        let clocks = (0..INSTANCES).map(|_| {
            let off_s = if dice.bool() {
                dice.i64(-SKEW_S..=SKEW_S)
            } else {
                0
            };
            Clock::scaled(shift(bench.begin, off_s), 1.0)
        });
        Self {
            clocks: clocks.collect(),
            bench: Arc::clone(bench),
            doors,
            post,
            running: (0..INSTANCES).map(|_| None).collect(),
            back_at: vec![bench.begin; INSTANCES],
            rebuilds: Vec::new(),
            builds: 0,
        }
    }

    /// With instances whose clocks are right.
    pub(super) fn with_true_clocks(mut self) -> Self {
        self.clocks = vec![self.bench.clock; INSTANCES];
        self
    }

    /// Plays it all.
    pub(super) async fn play(mut self, steps: &[Step]) {
        let bench = Arc::clone(&self.bench);
        for step in steps {
            let at = bench
                .begin
                .checked_add(millis(step.at_ms))
                .unwrap_or(bench.begin);
            self.run_until(at).await;
            if bench.ledger().has_breaches() {
                return;
            }
            bench
                .ledger()
                .note(false, bench.now(), || format!("STEP {:?}", step.what));
            self.take(&step.what).await;
        }
        self.run_until(shift(bench.now(), 60)).await;
        self.come_to_rest().await;
    }

    async fn come_to_rest(&mut self) {
        let bench = Arc::clone(&self.bench);
        bench.calm();
        self.post.calm();
        self.back_at = vec![bench.now(); INSTANCES];
        let end = shift(bench.now(), REST_S);
        let mut clean_since = None;
        loop {
            self.run_until(shift(bench.now(), 5)).await;
            let now = bench.now();
            let reports = self.reports();
            let reports: Vec<&PassReport> = reports.iter().map(Arc::as_ref).collect();
            let mut ledger = bench.ledger();
            if ledger.has_breaches() {
                return;
            }
            let mut unclean = ledger.unclean(&reports);
            let far = bench.far.list_nodes(keys::MANAGED_LABEL, "true");
            unclean.extend(far.iter().map(|node| format!("{} is not clean", node.name)));
            if unclean.is_empty() {
                let since = *clean_since.get_or_insert(now);
                if seconds_between(since, now) > IDLE_S && !self.maintained() {
                    ledger.check_idle(2 * INSTANCES, now);
                    return;
                }
            } else {
                clean_since = None;
                if now > end {
                    unclean
                        .into_iter()
                        .for_each(|what| ledger.breach(now, what));
                    return;
                }
            }
        }
    }

    /// Whether Compute still shows a maintenance.
    fn maintained(&self) -> bool {
        let mut any = !self.rebuilds.is_empty();
        for world in [&self.bench.world, &self.bench.far] {
            world.each_instance(|_, vm| {
                any |= vm.is_some_and(|vm| vm.maintenance.is_some() || !vm.running);
            });
        }
        any
    }

    /// Lets time pass, second by second.
    pub(super) async fn run_until(&mut self, end: Timestamp) {
        loop {
            let now = self.bench.now();
            self.bury().await;
            self.revive();
            self.rebuild();
            self.post.collect();
            let reports = self.reports();
            let reports: Vec<&PassReport> = reports.iter().map(Arc::as_ref).collect();
            self.bench.ledger().check_progress(&reports, now);
            if now >= end {
                return;
            }
            let next = shift(now, 1).min(end);
            self.bench.clock.sleep_until(next).await;
        }
    }

    fn reports(&self) -> Vec<Arc<PassReport>> {
        let up = self.running.iter().flatten();
        up.flat_map(|running| running.door.wake.reports().into_values())
            .collect()
    }

    async fn bury(&mut self) {
        for (index, slot) in self.running.iter_mut().enumerate() {
            if slot.as_mut().is_some_and(Running::has_ended) {
                let now = self.bench.now();
                let what = format!("the loops of instance {index} have ended by themselves");
                self.bench.ledger().breach(now, what);
            }
        }
        for index in self.bench.take_doomed() {
            self.end(index, false, 20).await;
        }
    }

    pub(super) async fn end(&mut self, index: usize, gently: bool, down_s: u32) {
        let Some(running) = self.running[index].take() else {
            return;
        };
        self.door(index, None);
        running.end(gently).await;
        self.bench.ledger().model.forget_refusals(index);
        let now = self.bench.now();
        self.back_at[index] = shift(now, i64::from(down_s));
        self.bench.ledger().disturbed(self.back_at[index]);
    }

    fn door(&self, index: usize, running: Option<&Running>) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors[index] = running.map(|r| r.door.clone());
    }

    fn revive(&mut self) {
        let now = self.bench.now();
        for index in 0..INSTANCES {
            if self.running[index].is_none() && self.back_at[index] <= now {
                let running = Running::start(&self.bench, index, self.clocks[index]);
                self.door(index, Some(&running));
                self.running[index] = Some(running);
                self.bench.ledger().disturbed(now);
            }
        }
    }

    pub(super) fn rebuild_at(&mut self, at: Timestamp, node: &str) {
        self.rebuilds.push((at, node.to_owned()));
        self.rebuild();
    }

    fn rebuild(&mut self) {
        let now = self.bench.now();
        let due = self.rebuilds.extract_if(.., |(at, _)| *at <= now);
        for (_, name) in due.collect::<Vec<_>>() {
            self.builds += 1;
            self.bench
                .world
                .rebuild_node(scene::node(&name, self.builds));
        }
    }
}

fn millis(ms: u64) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}
