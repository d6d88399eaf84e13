//! The harness of the end-to-end tests. Everything that can be real is: the
//! service is its own binary in its own process, and talks to a real API server
//! with the real controllers. Kubelets, Compute Engine and the metadata server
//! are stood in for, since they need machines.
//!
//! A test begins with `let cluster = lease().await;` and has the cluster to
//! itself until that value is dropped.

#![expect(
    clippy::panic,
    reason = "a harness reports what is wrong by ending the test"
)]

pub mod audit;
pub mod command;
pub mod compute;
pub mod control_plane;
pub mod fixture;
pub mod front;
pub mod issuer;
pub mod journal;
pub mod key_server;
pub mod kubeconfig;
pub mod kubelet;
mod lease;
mod leash;
pub mod proxy;
pub mod pubsub;
pub mod service;
mod sweep;
pub mod wait;
mod watch;

pub use lease::{Lease, context, is_ready, lease, owner};
