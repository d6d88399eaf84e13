//! Google Cloud adapters: Compute Engine, and the credentials for it.

pub mod compute;
pub mod google;
pub mod tokens;
