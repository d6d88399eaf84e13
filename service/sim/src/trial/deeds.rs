//! What each step of a history does.

use drainwell_core::edit::{self, NodeEdit};
use drainwell_core::intent::Stored;
use drainwell_core::notice::Source;
use drainwell_core::observed::{Node, Taint};
use drainwell_core::time::shift;
use drainwell_core::{keys, manual};

use super::play::Play;
use super::scene;
use super::step::{Fault, PodChange, Touch, What};
use crate::script::stage;
use crate::spec::MaintenanceSpec;

/// A taint of somebody else.
const FOREIGN_TAINT: &str = "example.com/cordoned";
/// What comes with `kubectl cordon`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

impl Play {
    /// Lets it happen.
    pub(super) async fn take(&mut self, what: &What) {
        let world = self.bench.world.clone();
        let now = self.bench.now();
        match what {
            What::Announce {
                node,
                in_s,
                notice_s,
                repair_s,
                cleared_s,
            } => {
                let spec = MaintenanceSpec {
                    notice_s: *notice_s,
                    repair_s: *repair_s,
                    cleared_s: *cleared_s,
                    reasons: vec!["PLANNED_UPDATE".to_owned()],
                };
                let world = self.bench.world_of(node);
                stage::announce(world, node, shift(now, i64::from(*in_s)), &spec);
            }
            What::Move { node, in_s } => {
                if let Some(spec) = world.pending(node) {
                    let starts_at = shift(now, i64::from(*in_s));
                    world.announce(node, starts_at, spec);
                }
            }
            What::Cancel(node) => {
                world.cancel(node);
                world.end_early(node);
            }
            What::Forge { node, entry, age_s } => self.post.forge(node, *entry, *age_s),
            What::Mail { how, for_s } => self.post.rule(*how, *for_s),
            What::Fault {
                instance,
                kind,
                for_s,
            } => self.bench.open(*instance, *kind, *for_s),
            What::Crash {
                instance,
                gently,
                down_s,
            } => {
                self.end(*instance, *gently, *down_s).await;
            }
            What::Pod { node, template } => self.add_pod(node, *template),
            What::Change { node, pick, how } => self.change_pod(node, *pick, *how),
            What::Budget { app, min } => {
                let budget = scene::budget(app, min.unwrap_or_default());
                world.remove_budget(&budget.namespace, &budget.name);
                if min.is_some() {
                    world.add_budget(budget);
                }
            }
            What::ByHand { node, window_s } => self.by_hand(node, i64::from(*window_s)),
            What::Undo(node) => self.undo(node),
            What::Touch { node, how } => {
                world.change_node(node, |node| touch(node, *how));
            }
            What::Rebuild { node, away_s } => {
                world.remove_node(node);
                self.rebuilds
                    .push((shift(now, i64::from(*away_s)), node.clone()));
                // What becomes of a VM that is away, nobody can hurry.
                self.bench.open(None, Fault::Slow(1), *away_s + 60);
            }
        }
    }

    /// As `drainwell drain` marks a node; the evictions that follow are left out.
    fn by_hand(&self, node: &str, window_s: i64) {
        let policy = self.bench.policies.of("c");
        let Some(before) = self.bench.world.find_node(node) else {
            return;
        };
        if let Ok(intent) = manual::begin(&before, &policy, window_s, self.bench.now()) {
            let (edit, _) = edit::write(&before, &intent, &policy.label_value);
            self.write_by_hand(&before, &edit);
        }
    }

    fn undo(&self, node: &str) {
        let policy = self.bench.policies.of("c");
        let Some(before) = self.bench.world.find_node(node) else {
            return;
        };
        let by_hand =
            matches!(Stored::on(&before), Stored::Intent(i) if i.source == Source::Manual);
        if let Ok(Some((edit, _))) = manual::undo(&before, &policy, false, self.bench.now())
            && by_hand
        {
            self.write_by_hand(&before, &edit);
        }
    }

    fn write_by_hand(&self, before: &Node, edit: &NodeEdit) {
        let mut ledger = self.bench.ledger();
        if let Ok(after) = self.bench.world.edit_now(edit) {
            ledger.learn_marks(before, &after);
        }
    }

    /// Only a pod that tolerates the taints can still be bound to a node.
    fn add_pod(&self, node: &str, template: usize) {
        let Some(found) = self.bench.world.find_node(node) else {
            return;
        };
        let mut dice = self.bench.dice("pod");
        let pod = scene::pod(node, template, 0, &mut dice);
        if found.taints.is_empty() || pod.tolerations.iter().any(|t| t.key.is_empty()) {
            self.bench.world.add_pod(Some(node), pod);
        }
    }

    fn change_pod(&self, node: &str, pick: usize, how: PodChange) {
        let world = &self.bench.world;
        let pods = world.pods_on(node);
        let Some(pod) = pods.get(pick % pods.len().max(1)) else {
            return;
        };
        if pod.owner_kind.as_deref() == Some("Node") {
            return;
        }
        match how {
            PodChange::Finish => world.finish_pod(&pod.id),
            PodChange::Delete => world.delete_pod(&pod.id),
            PodChange::Skip => world.annotate_pod(&pod.id, keys::SKIP_ANNOTATION, "true"),
        }
    }
}

fn touch(node: &mut Node, how: Touch) {
    let taint = |key: &str, value: &str| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: keys::NO_SCHEDULE.to_owned(),
    };
    match how {
        Touch::StripLabel => {
            node.labels.remove(keys::MAINTENANCE_LABEL);
        }
        Touch::StripTaint => node.taints.retain(|t| t.key != keys::TERMINATION_TAINT),
        Touch::Relabel => {
            let value = "other-component".to_owned();
            node.labels
                .insert(keys::MAINTENANCE_LABEL.to_owned(), value);
        }
        // In front, so that every index after it moves.
        Touch::Taint => node.taints.insert(0, taint(FOREIGN_TAINT, "yes")),
        Touch::Untaint => node.taints.retain(|t| t.key != FOREIGN_TAINT),
        Touch::Cordon => node.taints.push(taint(CORDON_TAINT, "")),
        Touch::Uncordon => node.taints.retain(|t| t.key != CORDON_TAINT),
        Touch::TerminationTaint if node.termination_taint().is_none() => {
            node.taints.push(taint(keys::TERMINATION_TAINT, ""));
        }
        Touch::TerminationTaint => {}
        Touch::Skip => {
            let value = "true".to_owned();
            node.annotations
                .insert(keys::SKIP_ANNOTATION.to_owned(), value);
        }
        Touch::Unskip => {
            node.annotations.remove(keys::SKIP_ANNOTATION);
        }
        Touch::Scramble => {
            if let Some(text) = node.annotations.get_mut(keys::INTENT_ANNOTATION) {
                text.insert(0, '?');
            }
        }
    }
}
