//! The rules of the core, as tables and properties. One `check` a file.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test reports what is wrong by ending"
)]

mod confirm;
mod holding;
mod intent;
mod lifecycle;
mod manual;
mod merge;
mod notice;
mod odd_entries;
mod plan;
mod policy;
mod properties;
mod slice;
mod worlds;
