//! What may arrive as a notice, and what is made of it: read alone where that
//! is enough, else through the service itself, over HTTP, on a simulated world.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test reports what is wrong by ending"
)]

mod answers;
mod corpus;
mod forms;
mod log;
mod odd_envelopes;
mod one_notice;
mod service;
mod table;
