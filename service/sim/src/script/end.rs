//! How a script ends, in words that are the same wherever it was played.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use drainwell_core::intent::Stored;
use drainwell_core::keys;
use drainwell_core::observed::{Node, Pod, PodRef};
use drainwell_core::time::seconds_between;
use jiff::Timestamp;
use serde_json::Value;

use super::{Entry, Script, State};
use crate::journal::Way;

/// Pods that are told within this time were told together.
const TOGETHER_S: i64 = 5;
/// What became of a notice that nobody has acknowledged.
pub const UNANSWERED: &str = "not acknowledged";
/// What the part of an output file begins with that is the same wherever the
/// script was played.
const HEAD: &str = "in the end\n";

/// What there is in the end, and what led to it.
#[derive(Debug, Clone, Default)]
pub struct End {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All pods, each with the node that it is bound to.
    pub pods: Vec<(Pod, Option<String>)>,
    /// The pods that the script has put there, by UID.
    pub first: BTreeMap<String, PodRef>,
    /// The pods that were told to stop.
    pub told: Vec<Told>,
    /// The notices in the order in which they were sent: what each says, about
    /// which node, and what became of it.
    pub notices: Vec<(Entry, String, String)>,
}

/// A pod that was told to stop.
#[derive(Debug, Clone)]
pub struct Told {
    /// Which.
    pub pod: PodRef,
    /// When.
    pub at: Timestamp,
    /// By which way.
    pub way: Way,
    /// With how much grace.
    pub grace_s: u32,
    /// When it was gone, if it is.
    pub gone_at: Option<Timestamp>,
}

/// The timeline and the end of an output file.
#[must_use]
pub fn split_end(output: &str) -> (&str, &str) {
    output
        .find(HEAD)
        .map_or((output, ""), |at| output.split_at(at))
}

/// What became of a notice, by the answer to it.
#[must_use]
pub fn outcome(answer: &Value) -> String {
    match (answer["outcome"].as_str(), answer["reason"].as_str()) {
        (None, _) => UNANSWERED.to_owned(),
        (Some(outcome), None) => outcome.to_owned(),
        (Some(outcome), Some(reason)) => format!("{outcome} ({reason})"),
    }
}

impl State {
    /// Whether this is so.
    #[must_use]
    pub fn holds(self, object: &str, end: &End, script: &Script) -> bool {
        let node = end.nodes.iter().find(|node| node.name == object);
        let mut bound = end.pods.iter().filter(|(_, node)| node.is_some());
        let pod = bound.find(|(pod, _)| script.app_of(&pod.id.name) == object);
        let pod = pod.map(|(pod, _)| pod);
        let label = node.is_some_and(|n| n.labels.contains_key(keys::MAINTENANCE_LABEL));
        let taint = node.is_some_and(|n| n.termination_taint().is_some());
        let intent = node.is_some_and(|n| n.annotations.contains_key(keys::INTENT_ANNOTATION));
        match self {
            Self::Marked => label && taint,
            Self::Clean => node.is_some() && !label && !taint && !intent,
            Self::Ready => node.is_some_and(|node| node.ready),
            Self::Gone => pod.is_none(),
            Self::There => pod.is_some_and(|pod| pod.deletion_at.is_none()),
            Self::Stopping => pod.is_some_and(|pod| pod.deletion_at.is_some()),
        }
    }
}

impl End {
    /// The end in words, of what the script speaks of.
    #[must_use]
    pub fn print(&self, script: &Script) -> String {
        let mut out = HEAD.to_owned();
        let mut say = |line: &str| {
            // A String takes every write.
            writeln!(out, "  {line}").ok();
        };
        for (entry, node, outcome) in &self.notices {
            let outcome = match (entry, outcome.as_str()) {
                // Which of them depends on whether a look at Compute was faster.
                (Entry::Completed, "completed" | "unchanged") => "acknowledged",
                (_, outcome) => outcome,
            };
            say(&format!("notice {} {node}: {outcome}", entry.word()));
        }
        for (number, wave) in self.waves(script).iter().enumerate() {
            let order = if number == 0 { "first" } else { "then" };
            say(&format!("{order} told to stop: {}", wave.join(", ")));
        }
        for line in self.untold(script) {
            say(&line);
        }
        for name in script.nodes() {
            let node = self.nodes.iter().find(|node| node.name == name);
            match node {
                Some(node) => say(&format!("node {name}: {}", described(node))),
                None => say(&format!("node {name}: is not there")),
            }
            self.pods_at(Some(name), script).iter().for_each(|p| say(p));
        }
        self.pods_at(None, script).iter().for_each(|p| say(p));
        out
    }

    /// The pods that were told, in groups told together: a later group was told
    /// when a pod of the one before was gone, or after a while.
    fn waves(&self, script: &Script) -> Vec<Vec<String>> {
        let mut waves: Vec<(Timestamp, Option<Timestamp>, Vec<String>)> = Vec::new();
        let mut told: Vec<&Told> = self.told.iter().collect();
        told.sort_by_key(|told| told.at);
        for told in told {
            let way = match told.way {
                Way::Evicted => "evicted",
                Way::Forced => "forced",
                Way::Shortened => "shortened",
                Way::Platform => continue,
            };
            let asked_s = script.grace_of(&told.pod.name);
            // What remains is counted in whole seconds, rounded down.
            let cut = if told.grace_s + 1 < asked_s {
                ", with less than its grace"
            } else {
                ""
            };
            let line = format!("{} ({way}{cut})", self.name(&told.pod, script));
            match waves.last_mut() {
                Some((begun, gone, lines))
                    if gone.is_none_or(|gone| told.at < gone)
                        && seconds_between(*begun, told.at) < TOGETHER_S =>
                {
                    *gone = earlier(*gone, told.gone_at);
                    lines.push(line);
                }
                _ => waves.push((told.at, told.gone_at, vec![line])),
            }
        }
        let waves = waves.into_iter().map(|(_, _, mut lines)| {
            lines.sort();
            lines
        });
        waves.collect()
    }

    fn untold(&self, script: &Script) -> Vec<String> {
        let by_service = || self.told.iter().filter(|told| told.way != Way::Platform);
        let told = |uid: &String| by_service().any(|told| told.pod.uid == *uid);
        let there = |uid: &String| self.pods.iter().any(|(pod, _)| pod.id.uid == *uid);
        let untold = self.first.iter().filter(|(uid, _)| !told(uid));
        let mut lines: Vec<String> = untold
            .map(|(uid, pod)| {
                let gone = if there(uid) { "" } else { ", and gone" };
                format!("never told to stop: {}{gone}", self.name(pod, script))
            })
            .collect();
        lines.sort();
        lines
    }

    fn pods_at(&self, node: Option<&str>, script: &Script) -> Vec<String> {
        let here = self.pods.iter().filter(|(_, at)| at.as_deref() == node);
        let mut lines: Vec<String> = here
            .map(|(pod, node)| {
                let what = if pod.finished {
                    "has ended"
                } else if pod.deletion_at.is_some() {
                    "is stopping"
                } else if node.is_some() {
                    "is there"
                } else {
                    "waits for a node"
                };
                format!("  pod {}: {what}", self.name(&pod.id, script))
            })
            .collect();
        lines.sort();
        lines
    }

    fn name(&self, pod: &PodRef, script: &Script) -> String {
        let anew = if self.first.contains_key(&pod.uid) {
            ""
        } else {
            " made anew"
        };
        format!("{}/{}{anew}", pod.namespace, script.app_of(&pod.name))
    }
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Marks, intent, and what others have put there.
fn described(node: &Node) -> String {
    let mut parts = vec![if node.ready { "Ready" } else { "not Ready" }.to_owned()];
    if let Some(value) = node.labels.get(keys::MAINTENANCE_LABEL) {
        parts.push(format!("maintenance label {value}"));
    }
    if node.labels.contains_key(keys::MANAGED_LABEL) {
        parts.push("managed".to_owned());
    }
    let mut taints: Vec<String> = node.taints.iter().map(|t| t.key.clone()).collect();
    taints.sort();
    for taint in taints {
        parts.push(format!("taint {taint}"));
    }
    match Stored::on(node) {
        Stored::Nothing => parts.push("no intent".to_owned()),
        Stored::Intent(intent) => parts.push(format!("intent {:?}", intent.phase)),
        Stored::Unreadable(_) => parts.push("an intent that can't be read".to_owned()),
    }
    if node.skipped() {
        parts.push("skipped".to_owned());
    }
    parts.join(", ")
}
