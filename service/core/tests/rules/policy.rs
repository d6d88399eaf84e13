//! The policy file: defaults, overrides, and what is refused.

use drainwell_core::policy::{Force, Policies, Policy, Scope};

use super::worlds::{daemon, pod, pod_in};
use drainwell_core::keys;
use drainwell_core::observed::{Kind, Pod};

fn refused(yaml: &str, in_words: &[&str]) {
    let error = Policies::from_yaml(yaml).expect_err(yaml).to_string();
    for word in in_words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn an_empty_file_is_the_defaults() {
    for text in ["", "\n\n", "{}", "# nothing yet\n", "null"] {
        assert_eq!(
            Policies::from_yaml(text).unwrap().of("any"),
            Policy::default()
        );
    }
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let documented = r#"
windows: { gpu: 60m, tpu: 5m, other: 60s }
label_value: "true"
scope: terminate
scheduled: record
force: latest-start
patience: { gpu: 15m, tpu: 60s, other: 10s }
reserve: 20s
gangs: slice
tiers:
  - { name: workload, default: true }
  - { name: daemon, match: { owner: DaemonSet } }
  - name: system
    match:
      - { namespaces: [kube-system, "gke-managed-*", gke-gmp-system, gmp-system, gmp-public] }
      - { priority_classes: [system-cluster-critical, system-node-critical] }
"#;
    assert_eq!(
        Policies::from_yaml(documented).unwrap(),
        Policies::default()
    );
}

#[test]
fn clusters_override_what_they_name() {
    let yaml = r#"
windows: { tpu: 4m }
clusters:
  - { match: { name: "train-*" }, windows: { gpu: 45m }, force: never }
  - { match: { name: "train-eu" }, scope: all }
"#;
    let policies = Policies::from_yaml(yaml).unwrap();
    let (eu, us, other) = (
        policies.of("train-eu"),
        policies.of("train-us"),
        policies.of("web"),
    );
    assert_eq!(eu.windows.of(Kind::Gpu), 2700);
    assert_eq!(
        (eu.windows.of(Kind::Tpu), eu.force, eu.scope),
        (240, Force::Never, Scope::All)
    );
    assert_eq!((us.force, us.scope), (Force::Never, Scope::Terminate));
    assert_eq!(
        (other.windows.of(Kind::Gpu), other.force),
        (3600, Force::LatestStart)
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    refused("windws: {}", &["windws", "line 1"]);
    refused(
        "force: deadline\nwindows: { gpu: 1h, tpuu: 1m }",
        &["tpuu", "line 2"],
    );
    refused("windows: { gpu: 0s }", &["windows.gpu"]);
    refused("windows: { gpu: 25h }", &["windows.gpu"]);
    refused("windows: { gpu: soon }", &["line 1"]);
    refused("patience: { tpu: -1s }", &["patience.tpu"]);
    refused("label_value: 'no spaces'", &["label_value"]);
    refused("tiers: [{ name: a, match: { owner: Job } }]", &["default"]);
    refused(
        "tiers: [{ name: a, default: true }, { name: b }]",
        &["\"b\""],
    );
    refused(
        "tiers: [{ name: a, default: true }, { name: a, match: { owner: Job } }]",
        &["twice"],
    );
    refused(
        "tiers: [{ name: a, default: true }, { name: b, match: {} }]",
        &["empty"],
    );
    refused(
        "clusters: [{ match: { name: x }, reserve: 48h }]",
        &["reserve"],
    );
    refused("clusters: [{ windows: { gpu: 1h } }]", &["match"]);
    refused("- a\n- b", &["line 1"]);
}

#[test]
fn tiers_match_from_the_last_to_the_first() {
    let policy = Policy::default();
    let tier = |pod: &Pod| policy.tiers[policy.tier_of(pod)].name.clone();
    assert_eq!(tier(&pod("train")), "workload");
    assert_eq!(tier(&daemon("logs")), "daemon");
    let of_system = Pod {
        owner_kind: Some("DaemonSet".to_owned()),
        ..pod_in("kube-system", "p")
    };
    assert_eq!(tier(&of_system), "system");
    assert_eq!(tier(&pod_in("gke-managed-dcgm", "d")), "system");
    let critical = Pod {
        priority_class: Some("system-node-critical".to_owned()),
        ..pod("c")
    };
    assert_eq!(tier(&critical), "system");
    let mut named = pod_in("kube-system", "n");
    named
        .annotations
        .insert(keys::TIER_ANNOTATION.to_owned(), "workload".to_owned());
    assert_eq!(tier(&named), "workload");
    named
        .annotations
        .insert(keys::TIER_ANNOTATION.to_owned(), "no such tier".to_owned());
    assert_eq!(tier(&named), "system");
}
