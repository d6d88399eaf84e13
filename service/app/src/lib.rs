//! The service: notices come in, changes go out to Kubernetes.
//!
//! ```text
//! ingress, pull ──► intake ──► ports ◄── driver      serve: knows them all
//!                                ▲
//!                  cluster (Kubernetes), cloud (Compute)  and the simulated world
//! ```
//!
//! `manual` drains one node by hand, through the same driver.

pub mod clock;
pub mod cloud;
pub mod cluster;
pub mod config;
pub mod driver;
pub mod ingress;
pub mod intake;
pub mod manual;
pub mod pull;
pub mod reception;
pub mod serve;
pub mod telemetry;
pub mod troubles;
