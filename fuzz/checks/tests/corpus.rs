//! Every kept input goes through its check. One that once broke something is
//! kept under a name that says what.

#![expect(clippy::unwrap_used, reason = "a test reports what is wrong by ending")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use drainwell_checks::{TARGETS, Target};

/// Each is read by everybody who clones the project.
const FILES_MAX: usize = 300;
const BYTES_MAX: usize = 300_000;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names in a folder of `fuzz`, without what follows a dot.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = format!("corpus/{target}");
    let mut files: Vec<_> = fs::read_dir(fuzz().join(&folder))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = format!("fuzz/{folder}/{}", entry.file_name().to_str().unwrap());
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// The files that fail. Each has a thread of its own name, which is what a panic
/// or an exhausted stack is reported with.
fn failing(target: &'static Target, reached: &mut BTreeSet<&'static str>) -> Vec<String> {
    let mut failed = vec![];
    for (file, data) in kept(target.name) {
        let named = std::thread::Builder::new().name(file.clone());
        match named.spawn(move || (target.check)(&data)).unwrap().join() {
            Ok(outcome) => drop(reached.insert(outcome)),
            Err(_) => failed.push(file),
        }
    }
    failed
}

#[test]
fn kept_inputs_pass_and_reach_every_outcome() {
    let (mut failed, mut missed) = (vec![], vec![]);
    for target in TARGETS {
        let mut reached = BTreeSet::new();
        failed.extend(failing(target, &mut reached));
        let outcomes = target.outcomes.iter().filter(|o| !reached.contains(*o));
        missed.extend(outcomes.map(|outcome| (target.name, outcome)));
        let unheard = reached.iter().find(|r| !target.outcomes.contains(r));
        assert_eq!(unheard, None, "an outcome of {} is not listed", target.name);
    }
    assert!(failed.is_empty(), "why is said above: {failed:#?}");
    assert!(missed.is_empty(), "no kept input reaches {missed:?}");
}

#[test]
fn every_check_has_a_target_a_dictionary_and_inputs() {
    let checks: BTreeSet<String> = TARGETS.iter().map(|t| t.name.to_owned()).collect();
    for folder in ["targets", "dict", "corpus"] {
        assert_eq!(names(folder), checks, "fuzz/{folder}");
    }
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in checks {
        let path = format!("path = \"targets/{name}.rs\"");
        assert!(manifest.contains(&path), "fuzz/Cargo.toml has no {path}");
        let target = fs::read_to_string(fuzz().join(format!("targets/{name}.rs"))).unwrap();
        assert!(
            target.contains(&format!("{name}::check(")),
            "fuzz/targets/{name}.rs"
        );
    }
}

#[test]
fn the_kept_inputs_are_few_and_small() {
    let sizes: Vec<usize> = TARGETS
        .iter()
        .flat_map(|t| kept(t.name))
        .map(|(_, data)| data.len())
        .collect();
    assert!(sizes.len() <= FILES_MAX, "{} files", sizes.len());
    let bytes = sizes.iter().sum::<usize>();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}
