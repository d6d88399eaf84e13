//! The decisions of Drainwell, as pure functions over plain values.
//!
//! ```text
//! log entry ──notice::read──► Notice ──confirm──► admit? ──merge──► Intent ──edit──► one PATCH
//! Node, Pods, Intent, Look ──plan──► Plan { actions, tiers, wake_at }
//! ```
//!
//! Deliberately absent: clocks, randomness, I/O, async, hash maps. `now` is
//! always an argument, so that anyone can run a decision again and get the
//! same answer. `clippy.toml` beside this crate enforces it.

pub mod action;
pub mod confirm;
pub mod edit;
pub mod intent;
pub mod keys;
pub mod lifecycle;
pub mod manual;
pub mod merge;
pub mod notice;
pub mod observed;
pub mod plan;
pub mod pod;
pub mod policy;
pub mod slice;
pub mod time;
