//! What all parts of a trial share: the world, the faults in force, the
//! ledger, and the dice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use drainwell_app::clock::Clock;
use drainwell_app::intake::Verify;
use drainwell_core::policy::Policies;
use drainwell_core::time::shift;
use fastrand::Rng;
use jiff::Timestamp;

use super::ledger::Ledger;
use super::scene::{self, Setup};
use super::step::Fault;
use crate::seed::Seed;
use crate::world::World;

/// Simulated time begins here.
const BEGIN_S: i64 = 1_800_000_000;

/// No call takes longer.
const TIMEOUT_MS: u64 = 10_000;

/// Shared by the parts of one trial.
pub(super) struct Bench {
    pub(super) seed: u64,
    pub(super) policies: Policies,
    pub(super) world: World,
    /// Another cluster, which no rule watches: it may take nothing from this one.
    pub(super) far: World,
    pub(super) verify: Verify,
    /// The world's clock; each instance has one of its own.
    pub(super) clock: Clock,
    pub(super) begin: Timestamp,
    ledger: Mutex<Ledger>,
    windows: Mutex<Vec<Window>>,
    doomed: Mutex<BTreeSet<usize>>,
    rolls: Mutex<BTreeMap<String, u64>>,
}

/// A fault in force.
struct Window {
    instance: Option<usize>,
    kind: Fault,
    until: Timestamp,
}

/// What a call does, as far as faults tell calls apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Reads from the cluster.
    Reads,
    /// Writes a Node.
    Edits,
    /// Tells a pod to stop.
    Tells,
    /// Asks Compute.
    Asks,
}

/// How a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) before_ms: u64,
    pub(super) after_ms: u64,
    pub(super) end: End,
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    Fails,
    Throttled(u32),
    Conflict,
    LosesAnswer,
    DiesBefore,
    DiesAfter,
}

/// How a watch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hearing {
    Good,
    Deaf,
    Short(u64),
}

impl Bench {
    pub(super) fn new(
        seed: u64,
        build: fn(Clock, u64) -> World,
        keep_trace: bool,
    ) -> anyhow::Result<Self> {
        let begin = shift(Timestamp::UNIX_EPOCH, BEGIN_S);
        let clock = Clock::scaled(begin, 1.0);
        let setup = Setup::of(seed);
        Ok(Self {
            seed,
            policies: setup.policies()?,
            world: build(clock, seed),
            far: scene::far(clock, seed),
            verify: scene::verify(seed),
            clock,
            begin,
            ledger: Mutex::new(Ledger::new(begin, seed, keep_trace)),
            windows: Mutex::default(),
            doomed: Mutex::default(),
            rolls: Mutex::default(),
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The world that a node is in.
    pub(super) fn world_of(&self, node: &str) -> &World {
        let far = scene::FAR_NODES.contains(&node);
        if far { &self.far } else { &self.world }
    }

    /// The ledger, knowing the world as it is now.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = locked(&self.ledger);
        ledger.model.observe(&self.world, self.now());
        ledger
    }

    /// The ledger as it is: for what happens in the other cluster, and once the
    /// runtime is gone, and with it the clock's time.
    pub(super) fn ledger_as_is<T>(&self, take: impl FnOnce(&mut Ledger) -> T) -> T {
        take(&mut locked(&self.ledger))
    }

    /// Dice for one purpose, different at each call. What is rolled for other
    /// purposes changes nothing: of what happens in one moment in two clusters,
    /// nobody knows which comes first.
    pub(super) fn dice(&self, purpose: &str) -> Rng {
        let mut rolls = locked(&self.rolls);
        let roll = rolls.entry(purpose.to_owned()).or_default();
        *roll += 1;
        Seed(self.seed).generator(&format!("{purpose} {roll}"))
    }

    /// Puts a fault in force.
    pub(super) fn open(&self, instance: Option<usize>, kind: Fault, for_s: u32) {
        let until = shift(self.now(), i64::from(for_s));
        locked(&self.windows).push(Window {
            instance,
            kind,
            until,
        });
        if !kind.is_far() {
            self.ledger().disturbed(until);
        }
    }

    fn in_force(&self, instance: usize) -> Vec<Fault> {
        let now = self.now();
        let mut windows = locked(&self.windows);
        windows.retain(|w| w.until > now);
        let mine = windows
            .iter()
            .filter(|w| w.instance.is_none_or(|i| i == instance));
        mine.map(|w| w.kind).collect()
    }

    /// Rolls how a call of an instance goes.
    pub(super) fn fate(&self, instance: usize, doing: Doing, what: &str) -> Fate {
        let mut dice = self.dice(&format!("{instance} {what}"));
        let mut fate = Fate {
            before_ms: dice.u64(1..60),
            after_ms: dice.u64(1..60),
            end: End::Answered,
        };
        let writes = matches!(doing, Doing::Edits | Doing::Tells);
        for fault in self.in_force(instance) {
            let rolled = dice.u32(0..100);
            let hits = |share: u32| rolled < share;
            let first = dice.bool();
            let end = match fault {
                Fault::Errors(share) if hits(share) => End::Fails,
                Fault::Throttled(share) if hits(share) => End::Throttled(dice.u32(1..20)),
                Fault::LostAnswers(share) if writes && hits(share) => End::LosesAnswer,
                Fault::Conflicts(share) if writes && hits(share) => End::Conflict,
                Fault::Deaths(share) if hits(share) && first => End::DiesBefore,
                Fault::Deaths(share) if hits(share) => End::DiesAfter,
                Fault::Partition => {
                    fate.before_ms = [20, 5000][dice.usize(0..2)];
                    End::Fails
                }
                Fault::Slow(most_ms) => {
                    let more_ms = dice.u64(0..=most_ms);
                    fate.before_ms += more_ms / 2;
                    fate.after_ms += more_ms / 2;
                    continue;
                }
                Fault::Errors(_)
                | Fault::Throttled(_)
                | Fault::LostAnswers(_)
                | Fault::Conflicts(_)
                | Fault::Deaths(_)
                | Fault::DeafWatches
                | Fault::ShortWatches
                | Fault::OldCompute(_)
                | Fault::FarDead
                | Fault::FarSlow => continue,
            };
            fate.end = end;
        }
        fate
    }

    /// Rolls how a call on the other cluster goes.
    pub(super) fn far_fate(&self, instance: usize, what: &str) -> Fate {
        let mut dice = self.dice(&format!("far {instance} {what}"));
        let faults = self.in_force(instance);
        let dead = faults.contains(&Fault::FarDead);
        let slow = faults.contains(&Fault::FarSlow);
        Fate {
            before_ms: match (dead, slow) {
                (true, _) => TIMEOUT_MS,
                (false, true) => dice.u64(500..TIMEOUT_MS),
                (false, false) => dice.u64(1..60),
            },
            after_ms: 1,
            end: if dead { End::Fails } else { End::Answered },
        }
    }

    /// How an instance's next watch goes.
    pub(super) fn hearing(&self, instance: usize) -> Hearing {
        let mut dice = self.dice(&format!("hearing {instance}"));
        let mut hearing = Hearing::Good;
        for fault in self.in_force(instance) {
            match fault {
                Fault::DeafWatches => hearing = Hearing::Deaf,
                Fault::ShortWatches | Fault::Partition => {
                    hearing = Hearing::Short(dice.u64(1_000..9_000));
                }
                Fault::Errors(_)
                | Fault::Throttled(_)
                | Fault::LostAnswers(_)
                | Fault::Slow(_)
                | Fault::Conflicts(_)
                | Fault::Deaths(_)
                | Fault::OldCompute(_)
                | Fault::FarDead
                | Fault::FarSlow => {}
            }
        }
        hearing
    }

    /// By how much an answer of Compute lags behind, in seconds.
    pub(super) fn compute_lag_s(&self, instance: usize) -> i64 {
        let mut dice = self.dice(&format!("lag {instance}"));
        let lags = self.in_force(instance).into_iter().filter_map(|f| match f {
            Fault::OldCompute(most_s) => Some(i64::from(dice.u32(0..=most_s))),
            Fault::Errors(_)
            | Fault::Throttled(_)
            | Fault::LostAnswers(_)
            | Fault::Slow(_)
            | Fault::Conflicts(_)
            | Fault::Partition
            | Fault::Deaths(_)
            | Fault::DeafWatches
            | Fault::ShortWatches
            | Fault::FarDead
            | Fault::FarSlow => None,
        });
        lags.max().unwrap_or_default()
    }

    /// An instance dies: it does nothing more until it is buried.
    pub(super) fn doom(&self, instance: usize) {
        locked(&self.doomed).insert(instance);
    }

    /// Those that have died since the last time.
    pub(super) fn take_doomed(&self) -> BTreeSet<usize> {
        std::mem::take(&mut locked(&self.doomed))
    }

    /// All faults end.
    pub(super) fn calm(&self) {
        locked(&self.windows).clear();
    }
}

/// None of the locks is held while code runs that could panic half-way.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
