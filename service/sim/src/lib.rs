//! A simulated cloud and cluster behind the service's own ports, the demo
//! that plays a maintenance in it, and trials that look for histories in which
//! the service breaks its rules.
//!
//! ```text
//! World ──Cluster, Cloud──► the real service ◄──HTTP── simulated Pub/Sub and Scheduler
//!   └────► Journal ──► what the demo prints, and what a test checks
//! ```
//!
//! A script is a maintenance that an operator can read; trials play it in the
//! world, and the end-to-end tests on a real control plane, to the same end.
//!
//! The world knows nothing of the service: it is told to stop pods and to
//! rewrite Nodes, and answers as an API server, kubelets and controllers do.
//! It has one source of time, the clock that it is given, and one of chance,
//! its seed.

pub mod demo;
pub mod journal;
pub mod script;
mod seed;
pub mod spec;
#[cfg(feature = "trial")]
pub mod trial;
pub mod world;

pub use world::World;
