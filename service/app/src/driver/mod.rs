//! Observe, plan, apply, report: the loop that turns intents into drains.
//!
//! Progress is derived from the clusters, never from memory or from a notice:
//! any instance may die at any time. What is kept in memory only paces tries
//! and fills reports.

mod apply;
mod calls;
pub mod events;
pub mod lanes;
pub mod memory;
mod node;
pub mod pass;
pub mod ports;
pub mod report;
mod slices;
mod tell;
pub mod wake;
