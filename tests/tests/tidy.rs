//! What keeps the tree pleasant to live in, checked like everything else.

#![expect(clippy::unwrap_used, reason = "a test reports what is wrong by ending")]

use std::path::{Path, PathBuf};
use std::process::Command;

use drainwell_core::policy::{Policies, Policy};

/// Past this a file is split.
const LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// The files of the project, as paths from its root.
fn files(suffix: &str) -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success(), "the tests run in a git checkout");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let there = listed
        .lines()
        .filter(|f| f.ends_with(suffix) && root().join(f).exists());
    let files: Vec<String> = there.map(str::to_owned).collect();
    assert!(!files.is_empty(), "no files end with {suffix}");
    files
}

fn text(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

#[test]
fn every_rust_file_says_what_it_is_and_is_short() {
    for file in files(".rs") {
        let text = text(&file);
        assert!(
            text.starts_with("//! "),
            "{file} does not begin with `//! `"
        );
        let lines = text.lines().count();
        assert!(
            lines <= LINES_MAX,
            "{file} has {lines} lines, over {LINES_MAX}"
        );
    }
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    for file in files("") {
        let stem = Path::new(&file)
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let empty = ["utils", "util", "common", "helpers", "misc", "manager"];
        assert!(!empty.contains(&stem.as_str()), "{file}");
    }
}

#[test]
fn the_core_depends_on_nothing_that_does_anything() {
    let manifest = text("service/core/Cargo.toml");
    let dependencies = manifest
        .split("[dependencies]")
        .nth(1)
        .unwrap()
        .split('[')
        .next()
        .unwrap();
    let allowed = [
        "jiff",
        "serde",
        "serde_json",
        "serde-saphyr",
        "thiserror",
        "wildmatch",
    ];
    for line in dependencies.lines().filter(|l| !l.trim().is_empty()) {
        let name = line.split(['.', ' ', '=']).next().unwrap();
        assert!(
            allowed.contains(&name),
            "the core must not depend on {name}"
        );
    }
}

/// Folder or file of `service/app/src`, and what it must not name.
const RULES: &[(&str, &[&str])] = &[
    (
        "driver/",
        &[
            "crate::ingress",
            "crate::intake",
            "crate::cluster",
            "crate::cloud",
            "kube::",
        ],
    ),
    (
        "cluster/",
        &["crate::ingress", "crate::intake", "crate::cloud"],
    ),
    (
        "cloud/",
        &[
            "crate::ingress",
            "crate::intake",
            "crate::cluster",
            "kube::",
        ],
    ),
    (
        "intake.rs",
        &[
            "crate::ingress",
            "crate::cluster",
            "crate::cloud",
            "driver::pass",
            "kube::",
        ],
    ),
    (
        "pull/",
        &[
            "crate::ingress",
            "crate::cluster",
            "crate::cloud",
            "driver::pass",
            "driver::apply",
            "kube::",
        ],
    ),
    (
        "reception.rs",
        &[
            "crate::ingress",
            "crate::pull",
            "crate::cluster",
            "crate::cloud",
            "driver::pass",
            "kube::",
        ],
    ),
    (
        "ingress/",
        &[
            "crate::pull",
            "crate::cluster",
            "crate::cloud",
            "driver::pass",
            "driver::apply",
            "kube::",
        ],
    ),
];

#[test]
fn modules_know_only_those_that_they_may() {
    for file in files(".rs") {
        let Some(inner) = file.strip_prefix("service/app/src/") else {
            continue;
        };
        for (folder, forbidden) in RULES.iter().filter(|(folder, _)| inner.starts_with(folder)) {
            for name in *forbidden {
                assert!(
                    !text(&file).contains(name),
                    "{file} ({folder}) names {name}"
                );
            }
        }
    }
}

/// How many paths and tests a page names; each has to exist.
fn names_what_is_there(page: &str) -> usize {
    let sources: String = files(".rs").iter().map(|file| text(file)).collect();
    let mut named = 0;
    for word in text(page).split('`').skip(1).step_by(2) {
        if word.contains('/') && !word.contains([' ', ':', '{', '.', '#'])
            || word.ends_with(".rs")
            || word.ends_with(".md")
        {
            assert!(
                root().join(word).exists(),
                "{page} names {word}, which is not there"
            );
            named += 1;
        }
        // Tests have sentences as names.
        if word.matches('_').count() >= 4 && !word.contains([' ', '/']) {
            let function = format!("fn {word}(");
            assert!(
                sources.contains(&function),
                "{page} names the test {word}, which is not there"
            );
            named += 1;
        }
    }
    named
}

#[test]
fn the_map_names_only_what_is_there() {
    let named = names_what_is_there("ARCHITECTURE.md");
    assert!(named > 20, "the map names {named} places");
}

#[test]
fn each_complaint_has_a_source_and_a_test_or_a_reason() {
    let page = "docs/COMPLAINTS.md";
    let named = names_what_is_there(page);
    assert!(named > 80, "it names {named} tests");
    let text = text(page);
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| ---");
    for row in text
        .lines()
        .filter(is_row)
        .filter(|row| !row.contains("| source |"))
    {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [complaint, source, here] = cells[..] else {
            panic!("no three cells: {row}");
        };
        assert!(!complaint.is_empty() && !source.is_empty(), "{row}");
        let names_test = here.split('`').any(|word| word.matches('_').count() >= 4);
        let has_reason = here.split(' ').count() > 8;
        assert!(names_test || has_reason, "neither test nor reason: {row}");
    }
}

#[test]
fn the_policy_in_the_readme_is_the_default() {
    let readme = text("README.md");
    let yaml = readme
        .split("```yaml")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let shown = Policies::from_yaml(yaml).unwrap();
    assert_eq!(shown.of("any"), Policy::default());
    assert_ne!(
        shown.of("train-eu"),
        Policy::default(),
        "its example override has an effect"
    );
}
