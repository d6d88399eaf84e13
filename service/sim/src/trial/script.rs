//! Plays a script in the simulated world, without chance, and tells what
//! happens between its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};

use anyhow::Context as _;
use drainwell_core::observed::PodRef;
use drainwell_core::time::{seconds_between, shift};

use super::bench::Bench;
use super::phrase::phrase;
use super::play::Play;
use super::scene;
use super::step::{Fault, Mail, What};
use crate::journal::{Entry, PodChange, What as Happened};
use crate::script::{self, End, Line, Script, Step, Told, stage};

/// Plays a script; returns what happened, and whether all that was expected
/// came true.
///
/// # Errors
/// When a line can't be read; the error names it.
pub fn play(script: &str) -> anyhow::Result<(String, bool)> {
    let script = Script::read(script)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("no runtime")?;
    runtime.block_on(async {
        let bench = Arc::new(Bench::new(7, scene::bare, false)?);
        let mut teller = Teller {
            bench: Arc::clone(&bench),
            script: &script,
            told: 0,
            held: BTreeSet::new(),
            first: BTreeMap::new(),
            out: String::new(),
            good: true,
        };
        let mut play = Play::new(&bench).with_true_clocks();
        for line in &script.lines {
            play.run_until(shift(bench.begin, line.at_s)).await;
            teller.tell();
            teller.line(line, &mut play).await?;
        }
        teller.tell();
        for breach in bench.ledger_as_is(super::ledger::Ledger::take_parts).0 {
            writeln!(teller.out, "FAILED {breach}")?;
            teller.good = false;
        }
        let end = teller.end(&play).print(&script);
        teller.out.push_str(&end);
        Ok((teller.out, teller.good))
    })
}

/// Writes down what happens.
struct Teller<'a> {
    bench: Arc<Bench>,
    script: &'a Script,
    told: usize,
    /// Pods of which it has been told that a budget holds them.
    held: BTreeSet<String>,
    /// Pods that the script has put there.
    first: BTreeMap<String, PodRef>,
    out: String,
    good: bool,
}

impl Teller<'_> {
    fn tell(&mut self) {
        let journal = self.bench.world.journal();
        for entry in journal.get(self.told..).unwrap_or_default() {
            if let Happened::Pod {
                pod,
                change: PodChange::Blocked { .. },
            } = &entry.what
                && !self.held.insert(pod.uid.clone())
            {
                continue;
            }
            let at_s = seconds_between(self.bench.begin, entry.at);
            // A String takes every write.
            writeln!(self.out, "{at_s:>6} s   {}", phrase(entry, &self.bench)).ok();
        }
        self.told = journal.len();
    }

    async fn line(&mut self, line: &Line, play: &mut Play) -> anyhow::Result<()> {
        let Line { text, at_s, step } = line;
        let mut answer = "";
        if let Step::Expect { what, object } = step {
            let holds = what.holds(object, &self.end(play), self.script);
            self.good &= holds;
            answer = if holds { ": yes" } else { ": NO" };
        }
        writeln!(self.out, "{at_s:>6} s > {text}{answer}")?;
        self.step(step, play).await;
        Ok(())
    }

    async fn step(&mut self, step: &Step, play: &mut Play) {
        let world = self.bench.world.clone();
        let in_seconds = |seconds: &u32| shift(self.bench.now(), i64::from(*seconds));
        let what = match step {
            Step::Expect { .. } => return,
            Step::Pod { node, pod } => {
                let pod = world.add_pod(Some(node), pod.clone());
                self.first.insert(pod.uid.clone(), pod);
                return;
            }
            Step::Budget(budget) => return world.add_budget(budget.clone()),
            Step::Free(app) => return world.remove_budget("default", app),
            Step::Begin { node, in_s, how } => {
                return stage::announce(&world, node, in_seconds(in_s), how);
            }
            Step::Notice { node, entry, age_s } => {
                let at = shift(self.bench.now(), -i64::from(*age_s));
                return play.post.send(node, *entry, at);
            }
            Step::Touch { node, how } => {
                world.change_node(node, |node| how.apply(node));
                return;
            }
            Step::Remove(node) => return world.remove_node(node),
            Step::Rebuild(node) => return play.rebuild_at(self.bench.now(), node),
            Step::Move { node, in_s } => What::Move {
                node: node.clone(),
                in_s: *in_s,
            },
            Step::Cancel(node) => What::Cancel(node.clone()),
            Step::Mail { how, for_s } => What::Mail {
                how: match how {
                    script::Mail::Lost => Mail::Lost,
                    script::Mail::Twice => Mail::Twice,
                    script::Mail::Late(by_s) => Mail::Late(*by_s),
                },
                for_s: *for_s,
            },
            Step::Crash {
                instance,
                gently,
                down_s,
            } => What::Crash {
                instance: *instance,
                gently: *gently,
                down_s: *down_s,
            },
            Step::Partition(for_s) => What::Fault {
                instance: None,
                kind: Fault::Partition,
                for_s: *for_s,
            },
        };
        play.take(&what).await;
    }

    /// What there is now, and what led to it.
    fn end(&self, play: &Play) -> End {
        let world = &self.bench.world;
        let answers = &play.post.answers;
        End {
            nodes: world.all_nodes(),
            pods: world.all_pods(),
            first: self.first.clone(),
            told: told(&world.journal()),
            notices: answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

/// Each pod that was told to stop, by the first telling.
fn told(journal: &[Entry]) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    for Entry { at, what } in journal {
        let Happened::Pod { pod, change } = what else {
            continue;
        };
        let known = all.iter_mut().find(|told| told.pod == *pod);
        match (change, known) {
            (PodChange::Told { way, grace_s }, None) => all.push(Told {
                pod: pod.clone(),
                at: *at,
                way: *way,
                grace_s: *grace_s,
                gone_at: None,
            }),
            (PodChange::Told { grace_s, .. }, Some(told)) => told.grace_s = *grace_s,
            (PodChange::Stopped { .. } | PodChange::Killed { .. }, Some(told)) => {
                told.gone_at = Some(*at);
            }
            _ => {}
        }
    }
    all
}
