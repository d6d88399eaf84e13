//! Observe, plan, apply, report: the loop that turns intents into drains.
//!
//! Progress is derived from the clusters, never from memory or from a notice:
//! any instance may die at any time. What is kept in memory only paces tries
//! and fills reports.

pub mod apply;
pub mod memory;
pub mod pass;
pub mod ports;
pub mod report;
pub mod wake;
