//! The policy file: its YAML, key by key, and what is refused in it.

use jiff::SignedDuration;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Force, Gangs, Glob, Match, PerKind, Policy, PolicyError, Scheduled, Scope, Tier};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterMatch {
    name: Glob,
}

impl ClusterMatch {
    pub(super) fn holds(&self, cluster_name: &str) -> bool {
        self.name.0.matches(cluster_name)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Keys {
    windows: Option<PerKindFile>,
    label_value: Option<String>,
    scope: Option<Scope>,
    scheduled: Option<Scheduled>,
    force: Option<Force>,
    patience: Option<PerKindFile>,
    reserve: Option<SignedDuration>,
    gangs: Option<Gangs>,
    tiers: Option<Vec<TierFile>>,
}

// Two structs with the same keys, because serde's `flatten` would lose both
// the refusal of unknown keys and the line they stand on.
macro_rules! file_struct {
    ($name:ident { $($own:ident: $type:ty),* }) => {
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $(pub(super) $own: $type,)*
            windows: Option<PerKindFile>,
            label_value: Option<String>,
            scope: Option<Scope>,
            scheduled: Option<Scheduled>,
            force: Option<Force>,
            patience: Option<PerKindFile>,
            reserve: Option<SignedDuration>,
            gangs: Option<Gangs>,
            tiers: Option<Vec<TierFile>>,
        }
        impl $name {
            pub(super) fn keys(&self) -> Keys {
                Keys {
                    windows: self.windows,
                    label_value: self.label_value.clone(),
                    scope: self.scope,
                    scheduled: self.scheduled,
                    force: self.force,
                    patience: self.patience,
                    reserve: self.reserve,
                    gangs: self.gangs,
                    tiers: self.tiers.clone(),
                }
            }
        }
    };
}
file_struct!(File { clusters: Option<Vec<ClusterFile>> });
file_struct!(ClusterFile {
    r#match: ClusterMatch
});

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PerKindFile {
    gpu: Option<SignedDuration>,
    tpu: Option<SignedDuration>,
    other: Option<SignedDuration>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierFile {
    name: String,
    #[serde(default)]
    default: bool,
    #[serde(default)]
    r#match: Option<Matches>,
}

/// A list of matches holds when one does; a single one needs no list. Read by
/// hand, since an untagged enum would not name the key that it doesn't know.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Matches(Vec<Match>);

impl<'de> Deserialize<'de> for Matches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Matches;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a match, or a list of matches")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Matches, A::Error> {
                let one = Match::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Matches(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Matches, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Matches)
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl Keys {
    pub(super) fn applied_to(&self, base: &Policy) -> Result<Policy, PolicyError> {
        let mut policy = base.clone();
        if let Some(windows) = self.windows {
            policy.windows = windows.applied_to(base.windows, "windows", 1)?;
        }
        if let Some(patience) = self.patience {
            policy.patience = patience.applied_to(base.patience, "patience", 0)?;
        }
        if let Some(value) = &self.label_value {
            check_label_value(value)?;
            policy.label_value.clone_from(value);
        }
        policy.scope = self.scope.unwrap_or(base.scope);
        policy.scheduled = self.scheduled.unwrap_or(base.scheduled);
        policy.force = self.force.unwrap_or(base.force);
        policy.gangs = self.gangs.unwrap_or(base.gangs);
        if let Some(reserve) = self.reserve {
            policy.reserve_s = seconds(reserve, "reserve", 0)?;
        }
        if let Some(tiers) = &self.tiers {
            policy.tiers = checked_tiers(tiers)?;
        }
        Ok(policy)
    }
}

impl PerKindFile {
    fn applied_to(self, base: PerKind, key: &str, least: i64) -> Result<PerKind, PolicyError> {
        let pick = |given: Option<SignedDuration>, base: i64, kind: &str| {
            given.map_or(Ok(base), |d| seconds(d, &format!("{key}.{kind}"), least))
        };
        Ok(PerKind {
            gpu: pick(self.gpu, base.gpu, "gpu")?,
            tpu: pick(self.tpu, base.tpu, "tpu")?,
            other: pick(self.other, base.other, "other")?,
        })
    }
}

/// A day is far more than any notice; it keeps sums of times far from overflow.
const LONGEST_S: i64 = 86_400;

fn seconds(duration: SignedDuration, key: &str, least: i64) -> Result<i64, PolicyError> {
    let s = duration.as_secs();
    if (least..=LONGEST_S).contains(&s) {
        Ok(s)
    } else {
        Err(PolicyError::Senseless(format!(
            "{key}: {duration} is not between {least}s and 24h"
        )))
    }
}

/// Label values: at most 63 characters, `[A-Za-z0-9._-]`, ends alphanumeric.
fn check_label_value(value: &str) -> Result<(), PolicyError> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let valid = (1..=63).contains(&value.len())
        && value.chars().all(inner)
        && ends(value.chars().next())
        && ends(value.chars().last());
    if valid {
        Ok(())
    } else {
        Err(PolicyError::Senseless(format!(
            "label_value: {value:?} is no valid label value"
        )))
    }
}

fn checked_tiers(files: &[TierFile]) -> Result<Vec<Tier>, PolicyError> {
    let senseless = |why: String| Err(PolicyError::Senseless(format!("tiers: {why}")));
    let defaults = files.iter().filter(|t| t.default).count();
    if defaults != 1 {
        return senseless(format!("{defaults} tiers have `default: true`, one must"));
    }
    let mut tiers: Vec<Tier> = Vec::new();
    for file in files {
        if tiers.iter().any(|t| t.name == file.name) {
            return senseless(format!("the name {:?} is there twice", file.name));
        }
        let matches = file
            .r#match
            .as_ref()
            .map(|m| m.0.clone())
            .unwrap_or_default();
        if matches.is_empty() && !file.default {
            return senseless(format!("{:?} has neither `match` nor `default`", file.name));
        }
        if matches.contains(&Match::default()) {
            return senseless(format!(
                "{:?} has an empty `match`, which would take all",
                file.name
            ));
        }
        tiers.push(Tier {
            name: file.name.clone(),
            default: file.default,
            matches,
        });
    }
    Ok(tiers)
}
