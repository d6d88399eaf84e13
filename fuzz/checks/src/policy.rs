//! Any text as a policy file.

use drainwell_core::keys;
use drainwell_core::observed::{Pod, PodRef};
use drainwell_core::policy::{PerKind, Policies, Policy, PolicyError};

use crate::node::t0;

const DAY_S: i64 = 86_400;

/// Keys that a message about values may begin with.
const KEYS: [&str; 5] = [
    "windows.",
    "patience.",
    "reserve:",
    "label_value:",
    "tiers:",
];

/// An error names its place, and what is read is a policy that can be worked with.
pub fn check(data: &[u8]) -> &'static str {
    let Ok(text) = std::str::from_utf8(data) else {
        return "no text";
    };
    refuses_a_key_that_it_does_not_know(text);
    match Policies::from_yaml(text) {
        Ok(policies) => {
            for cluster_name in ["", "train-eu", "web"] {
                let policy = policies.of(cluster_name);
                sound(&policy);
                assert_eq!(policy, policies.of(cluster_name));
            }
            "read"
        }
        Err(error @ PolicyError::Yaml(_)) => {
            names_the_line(&error);
            "not YAML"
        }
        Err(PolicyError::Senseless(why)) => {
            assert!(KEYS.iter().any(|key| why.starts_with(key)), "{why}");
            "senseless"
        }
    }
}

fn names_the_line(error: &PolicyError) {
    let PolicyError::Yaml(yaml) = error else {
        return;
    };
    let said = error.to_string();
    let line = yaml.location().map(|at| format!("line {}", at.line()));
    assert!(line.is_some_and(|line| said.contains(&line)), "{said}");
}

fn refuses_a_key_that_it_does_not_know(text: &str) {
    let error = Policies::from_yaml(&format!("windoes: 1\n{text}"));
    let said = error.expect_err("a key is not known").to_string();
    assert!(
        said.contains("windoes") && said.contains("line 1"),
        "{said}"
    );
}

fn sound(policy: &Policy) {
    let within = |s: &PerKind, least: i64| {
        [s.gpu, s.tpu, s.other]
            .iter()
            .all(|s| (least..=DAY_S).contains(s))
    };
    assert!(within(&policy.windows, 1) && within(&policy.patience, 0));
    assert!((0..=DAY_S).contains(&policy.reserve_s));
    for window_s in [i64::MIN, -1, 0, 60, i64::MAX] {
        assert!((0..=DAY_S).contains(&policy.reserve_s(window_s)));
    }
    assert!((1..=63).contains(&policy.label_value.len()));
    let defaults = policy.tiers.iter().filter(|tier| tier.default);
    assert_eq!(defaults.count(), 1);
    for tier in &policy.tiers {
        let same = policy.tiers.iter().filter(|t| t.name == tier.name);
        assert_eq!(same.count(), 1, "{}", tier.name);
        let named = pod("default", [(keys::TIER_ANNOTATION, tier.name.as_str())]);
        assert_eq!(policy.tiers[policy.tier_of(&named)].name, tier.name);
    }
    for namespace in ["", "kube-system", "training"] {
        assert!(policy.tier_of(&pod(namespace, [])) < policy.tiers.len());
    }
}

fn pod<const N: usize>(namespace: &str, annotations: [(&str, &str); N]) -> Pod {
    let owned = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Pod {
        id: PodRef {
            namespace: namespace.to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
        },
        owner_kind: Some("DaemonSet".to_owned()),
        finished: false,
        priority_class: Some("system-node-critical".to_owned()),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        annotations: owned.into(),
        tolerations: vec![],
        grace_s: 30,
        created: t0(),
        deletion_at: None,
        deletion_grace_s: None,
    }
}
