//! Scripts: a history that an operator can read, one step a line, played
//! without chance, with what happened between the steps.
//!
//! ```text
//! at 0 pod gpu-1 job train grace 600 takes 240
//! at 5 begin gpu-1 notice 3600 repair 600
//! at 20 expect marked gpu-1
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use drainwell_core::keys;
use drainwell_core::time::{seconds_between, shift};

use super::bench::Bench;
use super::phrase::phrase;
use super::play::Play;
use super::scene;
use super::step::{Fault, Forged, Mail, Touch, What};
use crate::journal::{PodChange, What as Happened};
use crate::spec::{BudgetSpec, Owner, PodSpec};

/// A line of a script.
struct Line<'a> {
    text: &'a str,
    at_s: i64,
    words: Vec<&'a str>,
}

/// Plays a script; returns what happened, and whether all that was expected
/// came true.
///
/// # Errors
/// When a line can't be read; the error names it.
pub fn play(script: &str) -> anyhow::Result<(String, bool)> {
    let lines = script.lines().filter_map(|line| {
        let text = line.split('#').next()?.trim();
        (!text.is_empty()).then_some(text)
    });
    let lines: Vec<Line<'_>> = lines.map(read).collect::<anyhow::Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("no runtime")?;
    runtime.block_on(async {
        let bench = Arc::new(Bench::new(7, scene::bare, false)?);
        let mut teller = Teller {
            bench: Arc::clone(&bench),
            told: 0,
            held: BTreeSet::new(),
            out: String::new(),
            good: true,
        };
        let mut play = Play::new(&bench);
        for line in &lines {
            play.run_until(shift(bench.begin, line.at_s)).await;
            teller.tell();
            let done = teller.line(line, &mut play).await;
            done.with_context(|| format!("line `{}`", line.text))?;
        }
        teller.tell();
        for breach in bench.ledger_as_is(super::ledger::Ledger::take_parts).0 {
            writeln!(teller.out, "FAILED {breach}")?;
            teller.good = false;
        }
        Ok((teller.out, teller.good))
    })
}

fn read(text: &str) -> anyhow::Result<Line<'_>> {
    let mut words = text.split_whitespace();
    let (Some("at"), Some(at)) = (words.next(), words.next()) else {
        bail!("line `{text}` does not begin with `at SECONDS`");
    };
    let at_s = at
        .parse()
        .with_context(|| format!("line `{text}`: `{at}` is no number"))?;
    let words = words.collect();
    Ok(Line { text, at_s, words })
}

impl Line<'_> {
    /// The number after a word, or the default.
    fn number(&self, word: &str, default: u32) -> anyhow::Result<u32> {
        let Some(index) = self.words.iter().position(|w| *w == word) else {
            return Ok(default);
        };
        let text = self.words.get(index + 1).copied().unwrap_or_default();
        text.parse()
            .with_context(|| format!("no number after `{word}`"))
    }
}

/// Writes down what happens.
struct Teller {
    bench: Arc<Bench>,
    told: usize,
    /// Pods of which it has been told that a budget holds them.
    held: BTreeSet<String>,
    out: String,
    good: bool,
}

impl Teller {
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

    async fn line(&mut self, line: &Line<'_>, play: &mut Play) -> anyhow::Result<()> {
        if let ["expect", what, object] = line.words[..] {
            let holds = self.holds(what, object)?;
            let answer = if holds { "yes" } else { "NO" };
            writeln!(
                self.out,
                "{:>6} s > expect {what} {object}: {answer}",
                line.at_s
            )?;
            self.good &= holds;
            return Ok(());
        }
        writeln!(self.out, "{:>6} s > {}", line.at_s, line.words.join(" "))?;
        match line.words[..] {
            ["pod", node, kind, name, ..] => {
                let pod = pod(line, kind, name)?;
                self.bench.world.add_pod(Some(node), pod);
            }
            ["budget", app, min] => self.bench.world.add_budget(BudgetSpec {
                namespace: "default".to_owned(),
                name: app.to_owned(),
                selector: [("app".to_owned(), app.to_owned())].into(),
                min_available: min.parse().context("no number of pods")?,
            }),
            ["free", app] => self.bench.world.remove_budget("default", app),
            _ => play.take(&deed(line)?).await,
        }
        Ok(())
    }

    fn holds(&self, what: &str, object: &str) -> anyhow::Result<bool> {
        let world = &self.bench.world;
        let node = world.find_node(object);
        let pods = world.all_pods();
        let bound = pods.iter().filter(|(_, node)| node.is_some());
        let mut bound = bound.filter(|(pod, _)| pod.id.name.starts_with(object));
        let pod = bound.next();
        let marked = node.as_ref().is_some_and(|node| {
            node.labels.contains_key(keys::MAINTENANCE_LABEL) && node.termination_taint().is_some()
        });
        let clean = node.as_ref().is_some_and(|node| {
            let label = node.labels.contains_key(keys::MAINTENANCE_LABEL);
            let taint = node.termination_taint().is_some();
            !label && !taint && !node.annotations.contains_key(keys::INTENT_ANNOTATION)
        });
        Ok(match what {
            "marked" => marked,
            "clean" => clean,
            "ready" => node.is_some_and(|node| node.ready),
            "gone" => pod.is_none(),
            "there" => pod.is_some_and(|(pod, _)| pod.deletion_at.is_none()),
            "stopping" => pod.is_some_and(|(pod, _)| pod.deletion_at.is_some()),
            _ => bail!("expect marked, clean, ready, gone, there or stopping"),
        })
    }
}

fn pod(line: &Line<'_>, kind: &str, name: &str) -> anyhow::Result<PodSpec> {
    let (namespace, owner) = match kind {
        "alone" => ("default", Owner::Nobody),
        "job" => ("default", Owner::Job),
        "stateful" => ("default", Owner::StatefulSet),
        "daemon" => ("default", Owner::DaemonSet),
        "static" => ("kube-system", Owner::Static),
        "system" => ("kube-system", Owner::Nobody),
        _ => bail!("a pod is alone, job, stateful, daemon, static or system"),
    };
    let grace_s = line.number("grace", 30)?;
    let spec = PodSpec::new(namespace, name, owner)
        .stops(grace_s, line.number("takes", 2)?)
        .label("app", name);
    let tolerates = line.words.contains(&"tolerates");
    Ok(if tolerates { spec.tolerates("") } else { spec })
}

fn deed(line: &Line<'_>) -> anyhow::Result<What> {
    let owned = |text: &str| text.to_owned();
    let touch = |node: &str, how| What::Touch {
        node: node.to_owned(),
        how,
    };
    Ok(match line.words[..] {
        ["begin", node, ..] => What::Announce {
            node: owned(node),
            in_s: line.number("in", 0)?,
            notice_s: line.number("notice", 60)?,
            repair_s: line.number("repair", 300)?,
            cleared_s: line.number("cleared", 60)?,
        },
        ["move", node, ..] => What::Move {
            node: owned(node),
            in_s: line.number("in", 0)?,
        },
        ["cancel", node] => What::Cancel(owned(node)),
        ["notice", entry, node, ..] => What::Forge {
            node: owned(node),
            entry: match entry {
                "scheduled" => Forged::Scheduled,
                "ongoing" => Forged::Ongoing,
                "completed" => Forged::Completed,
                "terminated" => Forged::Terminated,
                "restarted" => Forged::Restarted,
                _ => bail!("a notice is scheduled, ongoing, completed, terminated or restarted"),
            },
            age_s: line.number("age", 0)?,
        },
        ["mail", how, ..] => What::Mail {
            how: match how {
                "lost" => Mail::Lost,
                "twice" => Mail::Twice,
                "late" => Mail::Late(line.number("by", 60)?),
                _ => bail!("mail is lost, twice or late"),
            },
            for_s: line.number("for", 60)?,
        },
        ["crash", instance, ..] => What::Crash {
            instance: usize::from(instance == "1"),
            gently: line.words.contains(&"gently"),
            down_s: line.number("down", 30)?,
        },
        ["partition", ..] => What::Fault {
            instance: None,
            kind: Fault::Partition,
            for_s: line.number("for", 60)?,
        },
        ["skip", node] => touch(node, Touch::Skip),
        ["unskip", node] => touch(node, Touch::Unskip),
        ["untaint", node] => touch(node, Touch::StripTaint),
        ["relabel", node] => touch(node, Touch::Relabel),
        ["cordon", node] => touch(node, Touch::Taint),
        _ => bail!("no such step"),
    })
}
