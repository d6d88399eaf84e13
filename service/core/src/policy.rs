//! Every limit and preference, as a value: the YAML of the policy file.
//!
//! A file gives only what differs from the defaults; `clusters` overrides the
//! same keys for the clusters that match.

mod file;

use serde::Deserialize;
use wildmatch::WildMatch;

use self::file::{ClusterMatch, File, Keys};
use crate::keys;
use crate::observed::{Kind, Pod};

/// Name of the tier that takes what no other tier matches, by default.
pub const DEFAULT_TIER: &str = "workload";

/// The policy in force for one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Notice from the start of a maintenance to the stop of the host.
    pub windows: PerKind,
    /// Value of the maintenance label.
    pub label_value: String,
    /// Which nodes are handled.
    pub scope: Scope,
    /// What a notice of a later window does.
    pub scheduled: Scheduled,
    /// When a disruption budget stops counting.
    pub force: Force,
    /// And no later than this after the start.
    pub patience: PerKind,
    /// Kept free before the deadline for each later tier that has pods.
    pub reserve_s: i64,
    /// How far pods of one gang leave together.
    pub gangs: Gangs,
    /// Tiers, in the order of eviction.
    pub tiers: Vec<Tier>,
}

/// Seconds by kind of node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerKind {
    /// GPU nodes.
    pub gpu: i64,
    /// TPU nodes.
    pub tpu: i64,
    /// All others.
    pub other: i64,
}

impl PerKind {
    /// The seconds for `kind`.
    #[must_use]
    pub fn of(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Gpu => self.gpu,
            Kind::Tpu => self.tpu,
            Kind::Other => self.other,
        }
    }
}

/// Which nodes are handled.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Nodes whose VM stops for maintenance.
    Terminate,
    /// Of these, only GPU and TPU nodes.
    Accelerators,
    /// Also nodes whose VM live-migrates.
    All,
}

/// What a notice of a later window does.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduled {
    /// It is recorded on the Node.
    Record,
    /// Nothing.
    Ignore,
}

/// When a disruption budget stops counting.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Force {
    /// At the pod's latest start, or when patience ends.
    LatestStart,
    /// At the deadline.
    Deadline,
    /// Never.
    Never,
}

/// How far pods of one gang leave together.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gangs {
    /// Those on one node.
    Node,
    /// Also those on the other nodes of the same multi-host TPU slice.
    Slice,
}

/// A group of pods evicted together.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Name, for logs and the override annotation.
    pub name: String,
    /// Takes what no other tier matches.
    pub default: bool,
    /// It matches when one of these does.
    pub matches: Vec<Match>,
}

/// All keys that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Globs, one of which the namespace fits.
    pub namespaces: Option<Vec<Glob>>,
    /// Labels that the pod has.
    pub labels: Option<std::collections::BTreeMap<String, String>>,
    /// Kind of the controlling owner.
    pub owner: Option<String>,
    /// Priority classes, one of which the pod has.
    pub priority_classes: Option<Vec<String>>,
}

/// A pattern with `*` and `?`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "String")]
pub struct Glob(WildMatch);

impl From<String> for Glob {
    fn from(pattern: String) -> Self {
        Self(WildMatch::new(&pattern))
    }
}

impl Match {
    fn holds(&self, pod: &Pod) -> bool {
        let fits = |globs: &Vec<Glob>| globs.iter().any(|g| g.0.matches(&pod.id.namespace));
        self.namespaces.as_ref().is_none_or(fits)
            && self.labels.as_ref().is_none_or(|wanted| {
                wanted
                    .iter()
                    .all(|(key, value)| pod.labels.get(key) == Some(value))
            })
            && self
                .owner
                .as_ref()
                .is_none_or(|kind| pod.owner_kind.as_ref() == Some(kind))
            && self.priority_classes.as_ref().is_none_or(|names| {
                pod.priority_class
                    .as_ref()
                    .is_some_and(|name| names.contains(name))
            })
    }
}

impl Policy {
    /// Index of the tier of `pod`: its annotation if it names a tier, else
    /// the last tier that matches, else the default one.
    #[must_use]
    pub fn tier_of(&self, pod: &Pod) -> usize {
        let named = pod.annotations.get(keys::TIER_ANNOTATION);
        let by_name = named.and_then(|name| self.tiers.iter().position(|t| t.name == *name));
        by_name
            .or_else(|| {
                self.tiers
                    .iter()
                    .rposition(|t| t.matches.iter().any(|m| m.holds(pod)))
            })
            .or_else(|| self.tiers.iter().position(|t| t.default))
            .unwrap_or(0)
    }

    /// What is kept free for each later tier: at most a tenth of the window.
    #[must_use]
    pub fn reserve_s(&self, window_s: i64) -> i64 {
        self.reserve_s.min(window_s / 10).max(0)
    }
}

impl Default for Policy {
    fn default() -> Self {
        let platform = [
            "kube-system",
            "gke-managed-*",
            "gke-gmp-system",
            "gmp-system",
            "gmp-public",
        ];
        let critical = ["system-cluster-critical", "system-node-critical"];
        let globs = platform.map(|pattern| Glob::from(pattern.to_owned()));
        let tier = |name: &str, default, matches| Tier {
            name: name.to_owned(),
            default,
            matches,
        };
        Self {
            windows: PerKind {
                gpu: 3600,
                tpu: 300,
                other: 60,
            },
            label_value: "true".to_owned(),
            scope: Scope::Terminate,
            scheduled: Scheduled::Record,
            force: Force::LatestStart,
            patience: PerKind {
                gpu: 900,
                tpu: 60,
                other: 10,
            },
            reserve_s: 20,
            gangs: Gangs::Slice,
            tiers: vec![
                tier(DEFAULT_TIER, true, vec![]),
                tier(
                    "daemon",
                    false,
                    vec![Match {
                        owner: Some("DaemonSet".to_owned()),
                        ..Match::default()
                    }],
                ),
                tier(
                    "system",
                    false,
                    vec![
                        Match {
                            namespaces: Some(globs.into()),
                            ..Match::default()
                        },
                        Match {
                            priority_classes: Some(critical.map(str::to_owned).into()),
                            ..Match::default()
                        },
                    ],
                ),
            ],
        }
    }
}

/// The policies of all clusters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    base: Policy,
    overrides: Vec<(ClusterMatch, Keys)>,
}

/// Why a policy file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not YAML, or a key or value of the wrong kind; names the line.
    #[error("{0}")]
    Yaml(#[from] serde_saphyr::Error),
    /// Well formed, but it makes no sense.
    #[error("{0}")]
    Senseless(String),
}

impl Policies {
    /// Reads a policy file.
    ///
    /// # Errors
    /// When it isn't valid YAML, has an unknown key, or values that make no sense.
    pub fn from_yaml(text: &str) -> Result<Self, PolicyError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let Some(file) = serde_saphyr::from_str::<Option<File>>(text)? else {
            return Ok(Self::default());
        };
        let base = file.keys().applied_to(&Policy::default())?;
        let mut overrides = Vec::new();
        for cluster in file.clusters.unwrap_or_default() {
            let keys = cluster.keys();
            // A bad override is an error now, not when its cluster has a maintenance.
            keys.applied_to(&base)?;
            overrides.push((cluster.r#match, keys));
        }
        Ok(Self { base, overrides })
    }

    /// The policy for one cluster: the base, then each override that matches.
    #[must_use]
    pub fn of(&self, cluster_name: &str) -> Policy {
        let matching = self.overrides.iter().filter(|(m, _)| m.holds(cluster_name));
        matching.fold(self.base.clone(), |policy, (_, keys)| {
            keys.applied_to(&policy).unwrap_or(policy)
        })
    }
}
