//! What the service tells about itself.

pub mod filter;
pub mod log;
pub mod metrics;
pub mod project;
pub mod stackdriver;
mod stdout;
pub mod trace;
