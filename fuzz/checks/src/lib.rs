//! What holds for any input, said once: `fuzz/targets` calls these checks with
//! what a fuzzer makes up, `tests/corpus.rs` with the inputs that are kept.
//!
//! A check panics when what it says doesn't hold. It returns in a word what
//! the input turned out to be, so that the kept inputs can be seen to reach all
//! of a check.

pub mod envelope;
pub mod intent;
mod node;
pub mod notice;
pub mod plan;
pub mod policy;
pub mod token;
mod world;

/// A check, with the name that its fuzz target, corpus and dictionary have.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name.
    pub name: &'static str,
    /// The check.
    pub check: fn(&[u8]) -> &'static str,
    /// All that an input may turn out to be.
    pub outcomes: &'static [&'static str],
}

/// Every check.
pub const TARGETS: &[Target] = &[
    Target {
        name: "envelope",
        check: envelope::check,
        outcomes: &[
            "no request",
            "malformed",
            "unsupported",
            "not ours",
            "notice",
        ],
    },
    Target {
        name: "intent",
        check: intent::check,
        outcomes: &["no text", "unreadable", "read"],
    },
    Target {
        name: "notice",
        check: notice::check,
        outcomes: &[
            "no JSON",
            "malformed",
            "not maintenance",
            "live migration",
            "wake-up",
            "scheduled",
            "ongoing",
            "completed",
            "stopping",
        ],
    },
    Target {
        name: "plan",
        check: plan::check,
        outcomes: &[
            "quiet",
            "only edited",
            "unmarked",
            "evicts",
            "forces",
            "shortens",
        ],
    },
    Target {
        name: "policy",
        check: policy::check,
        outcomes: &["no text", "not YAML", "senseless", "read"],
    },
    Target {
        name: "token",
        check: token::check,
        outcomes: &["no text", "unreadable", "read"],
    },
];
