//! What was played, as a value: the same for the same seed, however fast or
//! slow the machine. So its times are rounded, and ids are left out.

use std::collections::BTreeMap;

use drainwell_core::observed::{Node, Pod};
use drainwell_core::pod;
use drainwell_core::policy::Policy;
use drainwell_core::time::seconds_between;
use jiff::Timestamp;
use serde::Serialize;

use super::play::differences;
use crate::journal::{Entry, NodeChange, PodChange, Way, What};
use crate::world::World;

/// All acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Story {
    /// In order.
    pub acts: Vec<ActStory>,
}

impl Story {
    /// What is not as it should be.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.acts.iter().flat_map(ActStory::faults).collect()
    }
}

/// One maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActStory {
    /// What it is about.
    pub title: String,
    /// The nodes whose hosts were maintained.
    pub nodes: Vec<NodeStory>,
    /// Pods of other nodes that were told to stop: there should be none.
    pub bystanders_told: Vec<String>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStory {
    /// Its name.
    pub name: String,
    /// Whether label and taint appeared on it, and how often.
    pub marked: usize,
    /// What the maintenance left behind; nothing, when the node is clean.
    pub left_behind: Vec<String>,
    /// Keys of its taints at the end.
    pub taints: Vec<String>,
    /// Tiers in the order in which their first pods were told to stop.
    pub tiers: Vec<String>,
    /// Pods told to stop while an earlier tier had not gone.
    pub out_of_turn: Vec<String>,
    /// The pods that were on it when the notice came.
    pub pods: Vec<PodStory>,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodStory {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// Its tier.
    pub tier: String,
    /// How it was told to stop, or why not.
    pub fate: Fate,
    /// Minutes from the notice until it was first told, to the next five.
    pub told_after_min: Option<i64>,
    /// The grace that it asks for.
    pub grace_asked_s: u32,
    /// The grace that it got.
    pub grace_got_s: Option<u32>,
    /// How it ended.
    pub end: End,
}

/// How a pod was told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Through the Eviction API.
    Evicted,
    /// Whatever its budget said.
    Forced,
    /// By the cluster itself.
    Deleted,
    /// Not at all, rightly so: why.
    LeftAlone(String),
    /// Not at all, though it should have been.
    Forgotten,
    /// It was, though it should have been left alone: why.
    Disturbed(String),
}

/// How a pod ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself.
    Stopped {
        /// Seconds after it was told to.
        after_s: u32,
    },
    /// At the end of its grace.
    Killed {
        /// Seconds after it was told to stop.
        after_s: u32,
    },
    /// With its host.
    WithHost,
    /// It was done before the notice came.
    Finished,
    /// It hasn't.
    Runs,
}

impl ActStory {
    fn faults(&self) -> Vec<String> {
        let told = self.bystanders_told.iter();
        let mut all: Vec<String> = told
            .map(|pod| format!("{pod} was told to stop, on a node that stays"))
            .collect();
        for node in &self.nodes {
            all.extend(
                node.left_behind
                    .iter()
                    .map(|what| format!("{}: {what}", node.name)),
            );
            if node.marked != 1 {
                all.push(format!("{} was marked {} times", node.name, node.marked));
            }
            let early = node.out_of_turn.iter();
            all.extend(early.map(|pod| format!("{pod} was told to stop before its turn")));
            all.extend(node.pods.iter().filter_map(PodStory::fault));
        }
        all
    }
}

impl PodStory {
    fn fault(&self) -> Option<String> {
        let Self {
            name,
            fate,
            end,
            grace_asked_s,
            grace_got_s,
            ..
        } = self;
        match (fate, end) {
            (Fate::Forgotten, _) => Some(format!("{name} was never told to stop")),
            (Fate::Disturbed(why), _) => Some(format!(
                "{name} was told to stop, and should not have been: {why}"
            )),
            (Fate::Deleted, _) => Some(format!("{name} was left to the cluster")),
            (Fate::Evicted | Fate::Forced, End::WithHost) => {
                Some(format!("{name} was told too late: its host stopped first"))
            }
            (Fate::Evicted | Fate::Forced, _) if *grace_got_s != Some(*grace_asked_s) => {
                let got = grace_got_s.map_or_else(|| "none".to_owned(), |s| format!("{s} s"));
                Some(format!("{name} asks for {grace_asked_s} s and got {got}"))
            }
            (
                Fate::Evicted | Fate::Forced,
                End::Stopped { .. } | End::Killed { .. } | End::Finished | End::Runs,
            )
            | (Fate::LeftAlone(_), _) => None,
        }
    }
}

/// The nodes and pods of an act, as they are when it begins.
pub(super) struct Cast {
    title: String,
    since: Timestamp,
    /// The nodes of the maintenance.
    pub(super) nodes: Vec<Node>,
    pods: BTreeMap<String, Vec<Pod>>,
    bystanders: Vec<Pod>,
    /// Length of the journal.
    begins_at: usize,
}

impl Cast {
    pub(super) fn of(
        world: &World,
        title: &str,
        nodes: &[&str],
        others: &[&str],
        since: Timestamp,
    ) -> Self {
        Self {
            title: title.to_owned(),
            since,
            nodes: nodes
                .iter()
                .filter_map(|name| world.find_node(name))
                .collect(),
            pods: nodes
                .iter()
                .map(|n| ((*n).to_owned(), world.pods_on(n)))
                .collect(),
            bystanders: others.iter().flat_map(|name| world.pods_on(name)).collect(),
            begins_at: world.journal().len(),
        }
    }

    /// What became of them.
    pub(super) fn story(&self, world: &World) -> ActStory {
        let journal = world.journal().split_off(self.begins_at);
        let told = |pod: &&Pod| Course::of(pod, &journal).told.is_some();
        ActStory {
            title: self.title.clone(),
            nodes: self
                .nodes
                .iter()
                .map(|n| self.node_story(world, n, &journal))
                .collect(),
            bystanders_told: self
                .bystanders
                .iter()
                .filter(told)
                .map(|pod| pod.id.to_string())
                .collect(),
        }
    }

    fn node_story(&self, world: &World, before: &Node, journal: &[Entry]) -> NodeStory {
        let policy = Policy::default();
        let marked = |entry: &&Entry| match &entry.what {
            What::Node {
                node,
                change: NodeChange::Marked { .. },
            } => *node == before.name,
            What::Node { .. } | What::Pod { .. } | What::BudgetFreed { .. } => false,
        };
        let now = world.find_node(&before.name);
        let pods = self
            .pods
            .get(&before.name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut courses: Vec<(usize, &Pod, Course)> = pods
            .iter()
            .map(|p| (policy.tier_of(p), p, Course::of(p, journal)))
            .collect();
        courses.sort_by(|a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
        let mut first_told: BTreeMap<usize, Timestamp> = BTreeMap::new();
        for (tier, _, course) in &courses {
            if let Some((at, _)) = course.told {
                first_told
                    .entry(*tier)
                    .and_modify(|t| *t = at.min(*t))
                    .or_insert(at);
            }
        }
        let mut order: Vec<_> = first_told.into_iter().collect();
        order.sort_by_key(|(tier, at)| (*at, *tier));
        let name_of = |tier: usize| policy.tiers[tier].name.clone();
        NodeStory {
            name: before.name.clone(),
            marked: journal.iter().filter(marked).count(),
            left_behind: now.as_ref().map_or_else(
                || vec!["the Node is gone".to_owned()],
                |now| differences(before, now),
            ),
            taints: now
                .into_iter()
                .flat_map(|n| n.taints)
                .map(|t| t.key)
                .collect(),
            tiers: order.into_iter().map(|(tier, _)| name_of(tier)).collect(),
            out_of_turn: out_of_turn(&courses),
            pods: courses
                .into_iter()
                .map(|(tier, pod, course)| course.story(pod, name_of(tier), self.since))
                .collect(),
        }
    }
}

/// Pods that were told to stop while one of an earlier tier was still there.
fn out_of_turn(courses: &[(usize, &Pod, Course)]) -> Vec<String> {
    let early = courses.iter().filter(|(tier, _, course)| {
        let earlier = courses
            .iter()
            .filter(|(other, _, c)| other < tier && c.told.is_some());
        course.told.is_some_and(|(at, _)| {
            earlier
                .into_iter()
                .any(|(_, _, c)| c.ended.is_none_or(|end| end > at))
        })
    });
    early.map(|(_, pod, _)| pod.id.to_string()).collect()
}

/// What the journal says of one pod.
struct Course {
    /// When and how it was first told to stop.
    told: Option<(Timestamp, Way)>,
    /// The last grace that it was given.
    grace_s: Option<u32>,
    ended: Option<Timestamp>,
    end: End,
}

impl Course {
    fn of(pod: &Pod, journal: &[Entry]) -> Self {
        let end = if pod::gone(pod) {
            End::Finished
        } else {
            End::Runs
        };
        let mut course = Self {
            told: None,
            grace_s: None,
            ended: None,
            end,
        };
        for entry in journal {
            let What::Pod { pod: about, change } = &entry.what else {
                continue;
            };
            if about.uid == pod.id.uid {
                course.follow(entry.at, change);
            }
        }
        course
    }

    fn follow(&mut self, at: Timestamp, change: &PodChange) {
        let end = match change {
            PodChange::Told { way, grace_s } => {
                self.told.get_or_insert((at, *way));
                self.grace_s = Some(*grace_s);
                return;
            }
            PodChange::Stopped { after_s } => End::Stopped { after_s: *after_s },
            PodChange::Killed { after_s } => End::Killed { after_s: *after_s },
            PodChange::Lost { .. } => End::WithHost,
            PodChange::Blocked { .. }
            | PodChange::Restarted
            | PodChange::Created { .. }
            | PodChange::Bound { .. } => return,
        };
        self.end = end;
        self.ended = Some(at);
    }

    fn story(self, pod: &Pod, tier: String, since: Timestamp) -> PodStory {
        let right = if pod::gone(pod) {
            Some("finished before the notice")
        } else {
            pod::exempt(pod).map(pod::Exempt::reason)
        };
        let fate = match (right, self.told.map(|(_, way)| way)) {
            (Some(why), None) => Fate::LeftAlone(why.to_owned()),
            (Some(why), Some(_)) => Fate::Disturbed(why.to_owned()),
            (None, None) => Fate::Forgotten,
            (None, Some(Way::Evicted)) => Fate::Evicted,
            (None, Some(Way::Forced | Way::Shortened)) => Fate::Forced,
            (None, Some(Way::Platform)) => Fate::Deleted,
        };
        PodStory {
            name: pod.id.to_string(),
            tier,
            fate,
            told_after_min: self.told.map(|(at, _)| about_minutes(since, at)),
            grace_asked_s: pod.grace_s,
            grace_got_s: self.grace_s,
            end: self.end,
        }
    }
}

/// Minutes, to the next five: on a busy machine times differ a little.
fn about_minutes(since: Timestamp, at: Timestamp) -> i64 {
    const STEP_S: i64 = 300;
    (seconds_between(since, at) + STEP_S / 2).div_euclid(STEP_S) * (STEP_S / 60)
}
