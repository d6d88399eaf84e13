//! The simulated world: one cluster and the VMs beneath it, as one shared
//! state that is brought up to the clock whenever somebody looks.
//!
//! No task of its own: whoever waits sleeps until the next event and lets it
//! happen. The lock is never held across an await.

mod budgets;
mod cloud;
mod cluster;
mod controllers;
mod direct;
mod hosts;
mod nodes;
mod people;
mod pods;
mod state;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::ClusterId;
use drainwell_core::notice::Vm;
use drainwell_core::observed::{Instance, Node, Pod, PodRef};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::journal::Entry;
use crate::seed::Seed;
use crate::spec::{BudgetSpec, MaintenanceSpec, NodeSpec, PodSpec};
use state::State;

/// What a world starts from.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The cluster.
    pub id: ClusterId,
    /// The project of its VMs.
    pub project: String,
    /// The one source of time.
    pub clock: Clock,
    /// The one source of chance.
    pub seed: u64,
    /// How long each call takes, on that clock.
    pub latency: SignedDuration,
}

/// A simulated cluster and its VMs. Clones share one state.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    id: ClusterId,
    clock: Clock,
    latency: SignedDuration,
    state: Mutex<State>,
    /// Told after every change that a call or a person makes.
    changed: Notify,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(options: WorldOptions) -> Self {
        let WorldOptions {
            id,
            project,
            clock,
            seed,
            latency,
        } = options;
        let state = State::new(&id, project, Seed(seed), clock.now());
        Self(Arc::new(Inner {
            id,
            clock,
            latency,
            state: Mutex::new(state),
            changed: Notify::new(),
        }))
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Adds a node that is Ready, and its VM.
    pub fn add_node(&self, spec: NodeSpec) {
        self.change(|state| state.add_node(spec));
    }

    /// Adds a pod that runs on a node, or one that waits to be bound.
    pub fn add_pod(&self, node: Option<&str>, spec: PodSpec) -> PodRef {
        self.change(|state| state.add_pod(node, spec))
    }

    /// Adds a disruption budget.
    pub fn add_budget(&self, spec: BudgetSpec) {
        self.change(|state| state.add_budget(spec));
    }

    /// Takes a disruption budget away.
    pub fn remove_budget(&self, namespace: &str, name: &str) {
        self.change(|state| state.remove_budget(namespace, name));
    }

    /// From now on admission refuses to let pods of a namespace be told to stop.
    pub fn guard(&self, namespace: &str) {
        self.change(|state| state.guarded.insert(namespace.to_owned()));
    }

    /// Compute shows a maintenance of a node's host: one that lies ahead, or
    /// one that begins now. Returns whether there is such a node.
    pub fn announce(&self, node: &str, starts_at: Timestamp, spec: MaintenanceSpec) -> bool {
        self.change(|state| state.announce(node, starts_at, spec))
    }

    /// A maintenance that has not begun is called off.
    pub fn cancel(&self, node: &str) {
        self.change(|state| state.cancel(node));
    }

    /// A Node as it is now.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<Node> {
        self.look(|state| state.nodes.get(name).map(|n| n.node.clone()))
    }

    /// The pods bound to a node now.
    #[must_use]
    pub fn pods_on(&self, node: &str) -> Vec<Pod> {
        self.look(|state| state.pods_on(node).map(|p| p.pod.clone()).collect())
    }

    /// The pods that wait for a node now.
    #[must_use]
    pub fn pods_waiting(&self) -> Vec<Pod> {
        self.look(|state| {
            state
                .pods
                .values()
                .filter(|p| p.node.is_none())
                .map(|p| p.pod.clone())
                .collect()
        })
    }

    /// A node's VM as it is now, and its full identity.
    #[must_use]
    pub fn find_vm(&self, node: &str) -> Option<(Vm, Instance)> {
        self.look(|state| {
            state
                .machines
                .get(node)
                .map(|m| (m.vm(), m.instance.clone()))
        })
    }

    /// All that has happened so far.
    #[must_use]
    pub fn journal(&self) -> Vec<Entry> {
        self.look(|state| state.journal.clone())
    }

    /// Waits until more than `seen` things have happened; returns the rest.
    pub async fn journal_after(&self, seen: usize) -> Vec<Entry> {
        self.until(|state| {
            let rest = state.journal.get(seen..).unwrap_or_default();
            (!rest.is_empty()).then(|| rest.to_vec())
        })
        .await
    }

    /// Waits until a Node is there and `holds` is true of it.
    pub async fn until_node(&self, name: &str, holds: impl Fn(&Node) -> bool) {
        self.until(|state| state.nodes.get(name).filter(|n| holds(&n.node)).map(drop))
            .await;
    }

    /// Waits until Compute shows no maintenance of a node's host.
    pub async fn until_maintenance_over(&self, node: &str) {
        self.until(|state| {
            let shown = state
                .machines
                .get(node)
                .and_then(|m| m.instance.maintenance.as_ref());
            shown.is_none().then_some(())
        })
        .await;
    }

    /// Changes the state as it is now, and wakes those who wait.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = self.look(|state| {
            let result = change(state);
            state.settle();
            result
        });
        self.0.changed.notify_waiters();
        changed
    }

    /// Looks at the state as it is now.
    fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(self.0.clock.now());
        look(&mut state)
    }

    /// Waits until `ask` has an answer.
    async fn until<T>(&self, mut ask: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            let (answer, next) = self.look(|state| (ask(state), state.next_event()));
            if let Some(answer) = answer {
                return answer;
            }
            // Nothing planned: only a change can bring the answer.
            let next = next.unwrap_or(Timestamp::MAX);
            tokio::select! {
                biased;
                () = changed => {}
                () = self.0.clock.sleep_until(next) => {}
            }
        }
    }

    /// The time that one call takes.
    async fn wait_for_call(&self) {
        if self.0.latency.is_positive() {
            let now = self.0.clock.now();
            let until = now.checked_add(self.0.latency).unwrap_or(now);
            self.0.clock.sleep_until(until).await;
        } else {
            // A call is a point where others may run, however short it is.
            tokio::task::yield_now().await;
        }
    }
}

/// A latency that is felt and yet bends no result.
pub const USUAL_LATENCY: SignedDuration = SignedDuration::from_millis(80);
