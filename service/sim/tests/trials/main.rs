//! Trials of the service: first that they are what they claim to be, then
//! fixed seeds, seeds that ever failed, and a few fresh ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test reports what is wrong by ending"
)]

mod scripts;

use drainwell_sim::trial::{STEPS, Trial, shrink};

/// As many as take half a minute in a debug build.
const FIXED: u64 = 20;
const FRESH: u64 = 3;

/// Seeds that failed once, each with the reason after it.
const FAILED_ONCE: &str = include_str!("../../seeds.txt");

#[test]
fn the_same_seed_gives_the_same_trace_byte_by_byte() {
    for seed in [7, 11, 383] {
        let play = || Trial::of(seed, STEPS).play(true).unwrap();
        let (first, second) = (play(), play());
        assert!(first.trace.len() > 100, "seed {seed} tells nothing");
        let other = first.trace.iter().zip(&second.trace).find(|(a, b)| a != b);
        assert_eq!(other, None, "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn fixed_seeds_break_no_rule() {
    for seed in 1000..1000 + FIXED {
        pass(seed);
    }
}

#[test]
fn seeds_that_failed_once_break_no_rule_any_more() {
    let lines = FAILED_ONCE.lines().filter(|line| !line.starts_with('#'));
    for seed in lines.filter_map(|line| line.split_whitespace().next()) {
        pass(seed.parse().unwrap());
    }
}

#[test]
fn fresh_seeds_break_no_rule() {
    let now = std::time::SystemTime::now();
    let nanos = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    let first = u64::try_from(nanos % 1_000_000_000).unwrap() + 1_000_000;
    println!("fresh seeds from {first} on");
    for seed in first..first + FRESH {
        pass(seed);
    }
}

fn pass(seed: u64) {
    let trial = Trial::of(seed, STEPS);
    if trial.play(false).unwrap().breaches.is_empty() {
        return;
    }
    let (trial, breaches) = shrink(&trial).unwrap();
    let steps: Vec<String> = trial.steps.iter().map(ToString::to_string).collect();
    panic!(
        "seed {seed} breaks rules, add it to service/sim/seeds.txt:\n{}\n{}",
        breaches.join("\n"),
        steps.join("\n")
    );
}
