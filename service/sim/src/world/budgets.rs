//! Disruption budgets, with the Eviction API's semantics: only
//! Running and Ready pods count, and only such pods are held back.

use drainwell_core::action::Outcome;
use drainwell_core::observed::PodRef;

use super::pods::{Life, PodState, key_of};
use super::state::{Key, State};
use crate::journal::{PodChange, Way, What};
use crate::spec::BudgetSpec;

/// A budget and what it allowed when it was last counted.
pub(super) struct BudgetState {
    spec: BudgetSpec,
    allowed: i64,
    /// The resourceVersion at which it last began to allow disruptions.
    freed: u64,
}

impl BudgetState {
    fn protects(&self, pod: &PodState) -> bool {
        pod.pod.id.namespace == self.spec.namespace
            && self
                .spec
                .selector
                .iter()
                .all(|(k, v)| pod.pod.labels.get(k) == Some(v))
    }
}

/// What stands against an eviction.
enum Against {
    Nothing,
    Budget { name: String, why: String },
    TooMany,
}

impl State {
    pub(super) fn add_budget(&mut self, spec: BudgetSpec) {
        let key = (spec.namespace.clone(), spec.name.clone());
        let mut budget = BudgetState {
            spec,
            allowed: 0,
            freed: 0,
        };
        budget.allowed = self.healthy(&budget) - i64::from(budget.spec.min_available);
        self.budgets.insert(key, budget);
    }

    pub(super) fn remove_budget(&mut self, namespace: &str, name: &str) {
        if self
            .budgets
            .remove(&(namespace.to_owned(), name.to_owned()))
            .is_some()
        {
            self.note(What::BudgetFreed {
                namespace: namespace.to_owned(),
                budget: name.to_owned(),
            });
        }
    }

    fn healthy(&self, budget: &BudgetState) -> i64 {
        let healthy = self
            .pods
            .values()
            .filter(|p| budget.protects(p) && p.healthy());
        i64::try_from(healthy.count()).unwrap_or(i64::MAX)
    }

    /// The disruption controller: counts each budget anew.
    pub(super) fn count_budgets(&mut self) {
        let counted: Vec<(Key, i64)> = self
            .budgets
            .iter()
            .map(|(key, b)| {
                (
                    key.clone(),
                    self.healthy(b) - i64::from(b.spec.min_available),
                )
            })
            .collect();
        for ((namespace, name), allowed) in counted {
            let revision = self.revision + 1;
            let key = (namespace, name);
            let Some(budget) = self.budgets.get_mut(&key) else {
                continue;
            };
            let freed = budget.allowed <= 0 && allowed > 0;
            budget.allowed = allowed;
            if freed {
                budget.freed = revision;
                self.revision = revision;
                let (namespace, budget) = key;
                self.note(What::BudgetFreed { namespace, budget });
            }
        }
    }

    /// The version at which a budget of this namespace last began to allow
    /// disruptions.
    pub(super) fn budgets_freed(&self, namespace: &str) -> u64 {
        let there = self.budgets.iter().filter(|((ns, _), _)| ns == namespace);
        there.map(|(_, b)| b.freed).max().unwrap_or_default()
    }

    /// The Eviction API.
    pub(super) fn evict(&mut self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        let Some(state) = self.pods.get(&key_of(pod)) else {
            return Outcome::Done;
        };
        if self.names_another(pod) {
            return Outcome::Stale;
        }
        if let Some(refused) = self.guards(pod) {
            return refused;
        }
        let own_s = state.pod.grace_s;
        match self.against(state) {
            Against::Nothing => {
                self.tell(pod, grace_s.unwrap_or(own_s), Way::Evicted);
                Outcome::Done
            }
            Against::Budget { name, why } => {
                self.note_pod(pod, PodChange::Blocked { budget: name });
                Outcome::Blocked { why }
            }
            Against::TooMany => Outcome::Blocked {
                why: "more than one disruption budget covers the pod".to_owned(),
            },
        }
    }

    /// Admission's answer about a pod that it keeps.
    pub(super) fn guards(&self, pod: &PodRef) -> Option<Outcome> {
        let why = format!(
            "admission webhook \"guard\" denied the request: namespace {} is managed",
            pod.namespace
        );
        let guarded = self.guarded.contains(&pod.namespace);
        guarded.then_some(Outcome::Refused { why })
    }

    fn against(&self, pod: &PodState) -> Against {
        match pod.life {
            Life::Waiting | Life::Starting | Life::Finished => return Against::Nothing,
            Life::Ready | Life::Down => {}
        }
        if pod.told_at.is_some() {
            return Against::Nothing;
        }
        let mut protecting = self.budgets.values().filter(|b| b.protects(pod));
        let (first, second) = (protecting.next(), protecting.next());
        let Some(budget) = first else {
            return Against::Nothing;
        };
        if second.is_some() {
            return Against::TooMany;
        }
        let needed = i64::from(budget.spec.min_available);
        let healthy = self.healthy(budget);
        let not_counted = pod.life == Life::Down && needed > 0 && healthy >= needed;
        if healthy > needed || not_counted {
            return Against::Nothing;
        }
        let name = budget.spec.name.clone();
        let why = format!(
            "Cannot evict pod as it would violate the pod's disruption budget. The disruption \
             budget {name} needs {needed} healthy pods and has {healthy} currently"
        );
        Against::Budget { name, why }
    }
}
