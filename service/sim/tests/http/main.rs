//! The service at its surface: raw connections, good and bad, against the real
//! service on a simulated world.

#![expect(clippy::unwrap_used, reason = "a test reports what is wrong by ending")]

mod burst;
mod client;
mod heads;
mod places;
mod scene;

use std::time::Duration;

/// More than anything here takes, on a machine with other things to do.
const SOON: Duration = Duration::from_secs(20);
