//! One instance's way to the world: each call takes its time, may fail in
//! every way that a real one may, is written to the ledger, and is checked.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drainwell_app::clock::Clock;
use drainwell_app::driver::events::KubeEvent;
use drainwell_app::driver::ports::{
    CallError, Changed, Cloud, Cluster, ClusterId, PodList, Watching,
};
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::notice::Vm;
use drainwell_core::observed::{Instance, Node, PodRef};
use drainwell_core::time::shift;
use jiff::Timestamp;

use super::bench::{Bench, Doing, End, Hearing};
use super::check_pods::{Telling, Told};
use super::draw::INSTANCES;
use super::ledger::Ledger;
use super::scene;
use crate::journal::Way;
use crate::world::World;

/// An instance's clients.
pub(super) struct Faulty {
    pub(super) bench: Arc<Bench>,
    pub(super) instance: usize,
    pub(super) clock: Clock,
    /// To the other cluster, of which nothing is checked.
    pub(super) far: bool,
}

/// An answer that may tell of a failure.
trait Answer: Debug + Send {
    fn failed(why: &str, after_s: Option<u32>) -> Self;
    fn conflict() -> Self;
}

impl<T: Debug + Send> Answer for Result<T, CallError> {
    fn failed(why: &str, after_s: Option<u32>) -> Self {
        let after = after_s.map(|s| Duration::from_secs(s.into()));
        let why = why.to_owned();
        Err(CallError::Unavailable { why, after })
    }

    fn conflict() -> Self {
        Err(CallError::Stale)
    }
}

impl Answer for Outcome {
    fn failed(why: &str, after_s: Option<u32>) -> Self {
        let why = why.to_owned();
        Self::Retry { why, after_s }
    }

    fn conflict() -> Self {
        Self::Stale
    }
}

impl Faulty {
    fn world(&self) -> &World {
        if self.far {
            &self.bench.far
        } else {
            &self.bench.world
        }
    }

    /// Writes about a call into the ledger.
    fn note<T>(&self, far: bool, note: impl FnOnce(&mut Ledger, usize, Timestamp) -> T) -> T {
        let (bench, now) = (&self.bench, self.bench.now());
        if far {
            bench.ledger_as_is(|ledger| note(ledger, self.instance + INSTANCES, now))
        } else {
            note(&mut bench.ledger(), self.instance, now)
        }
    }

    async fn call<T: Answer>(
        &self,
        doing: Doing,
        what: impl Fn() -> String + Send,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        self.call_to(self.far, doing, what, work).await
    }

    async fn call_to<T: Answer>(
        &self,
        far: bool,
        doing: Doing,
        what: impl Fn() -> String + Send,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        let bench = &self.bench;
        let what = what();
        let fate = if far {
            bench.far_fate(self.instance, &what)
        } else {
            bench.fate(self.instance, doing, &what)
        };
        let too_many = self.note(far, |ledger, caller, now| {
            ledger.note(far, now, || format!("{caller} asks {what}"));
            ledger.count(caller, now)
        });
        if too_many {
            // A hot loop has been found: it needn't go on.
            return std::future::pending().await;
        }
        tokio::time::sleep(Duration::from_millis(fate.before_ms)).await;
        let answer = match fate.end {
            End::DiesBefore => self.die().await,
            End::Fails => T::failed("the server can't be reached", None),
            End::Throttled(after_s) => T::failed("too many requests", Some(after_s)),
            End::Conflict => T::conflict(),
            End::Answered => work(),
            End::LosesAnswer => {
                drop(work());
                T::failed("the answer was lost", None)
            }
            End::DiesAfter => {
                drop(work());
                self.die().await
            }
        };
        tokio::time::sleep(Duration::from_millis(fate.after_ms)).await;
        self.note(far, |ledger, caller, now| {
            ledger.note(far, now, || {
                format!("{caller} hears {what} -> {}", digest(&answer))
            });
        });
        answer
    }

    /// The process ends at this very await.
    async fn die<T>(&self) -> T {
        self.bench.doom(self.instance);
        std::future::pending().await
    }

    async fn tell(&self, telling: Telling, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        if !self.far {
            let now = self.bench.now();
            self.bench.ledger().check_told(&Told {
                instance: self.instance,
                telling,
                pod,
                grace_s,
                now,
                own_now: self.clock.now(),
            });
        }
        let what = || format!("{telling:?} {pod} {} {grace_s:?}", pod.uid);
        let world = self.world();
        let outcome = self
            .call(Doing::Tells, what, || match telling {
                Telling::Evict => world.evict_now(pod, grace_s),
                Telling::Force => world.delete_now(pod, grace_s, Way::Forced),
                Telling::Shorten => world.delete_now(pod, grace_s, Way::Shortened),
            })
            .await;
        self.bench
            .ledger()
            .note_outcome(self.instance, pod, &outcome);
        outcome
    }

    fn edit(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        let (world, now) = (self.world(), self.bench.now());
        if self.far {
            return world.edit_now(edit);
        }
        let mut ledger = self.bench.ledger();
        let before = world.find_node(&edit.node);
        let result = world.edit_now(edit);
        if let (Some(before), Ok(after)) = (before, &result) {
            ledger.check_edit(self.instance, &before, after, now);
        }
        result
    }
}

#[async_trait]
impl Cluster for Faulty {
    fn id(&self) -> &ClusterId {
        Cluster::id(self.world())
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        let world = self.world();
        self.call(
            Doing::Reads,
            || format!("node {name}"),
            || Ok(world.find_node(name)),
        )
        .await
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        let world = self.world();
        let what = || format!("nodes {label}={value}");
        self.call(Doing::Reads, what, || Ok(world.list_nodes(label, value)))
            .await
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        let world = self.world();
        self.call(
            Doing::Reads,
            || format!("pods of {node}"),
            || Ok(world.list_pods(node)),
        )
        .await
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        let what = || format!("edit {} {}", edit.node, edit.patch);
        self.call(Doing::Edits, what, || self.edit(edit)).await
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        self.tell(Telling::Evict, pod, grace_s).await
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, _now: Timestamp) -> Outcome {
        self.tell(Telling::Force, pod, grace_s).await
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        self.tell(Telling::Shorten, pod, Some(grace_s)).await
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        let what = || format!("event {} on {}", event.reason, event.uid());
        let world = self.world();
        self.call(Doing::Reads, what, || {
            world.note_event(event);
            Ok(())
        })
        .await
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        let hearing = if self.far {
            Hearing::Good
        } else {
            self.bench.hearing(self.instance)
        };
        let changed = match hearing {
            Hearing::Good => {
                let changed = self.world().changed(watching).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                changed
            }
            Hearing::Deaf => std::future::pending().await,
            Hearing::Short(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Changed::Pods(None)
            }
        };
        self.note(self.far, |ledger, caller, now| {
            ledger.note(self.far, now, || format!("{caller} wakes for {changed:?}"));
        });
        changed
    }
}

#[async_trait]
impl Cloud for Faulty {
    async fn instance(&self, vm: &Vm) -> Result<Option<Instance>, CallError> {
        let name = vm.name.clone().unwrap_or_default();
        let far = scene::FAR_NODES.contains(&name.as_str());
        let work = || {
            if far {
                return Ok(self.bench.far.instance_now(vm));
            }
            let lag_s = self.bench.compute_lag_s(self.instance);
            Ok(if lag_s == 0 {
                self.bench.world.instance_now(vm)
            } else {
                let then = shift(self.bench.now(), -lag_s);
                self.bench.ledger().model.machine_at(&name, then)
            })
        };
        let what = || format!("instance {vm}");
        self.call_to(far, Doing::Asks, what, work).await
    }
}

/// An answer in short: its beginning, and a hash of all of it.
fn digest(answer: &impl Debug) -> String {
    let text = format!("{answer:?}");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let short: String = text.chars().take(100).collect();
    format!("{short} #{hash:016x}")
}
