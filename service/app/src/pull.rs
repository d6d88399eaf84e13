//! Pulling notices from Pub/Sub, for fleets that nothing may be sent into.
//!
//! ```text
//! puller: one task a subscription ──► stream: many messages at once ──► message ──► reception
//!            again, after errors          bounded, clean stop            one notice
//! ```
//!
//! A message is acknowledged only when its effect is durable, or when there is
//! nothing to do. Any other comes again: the subscription's own policies decide
//! how often, and when it goes to the dead-letter topic.

#[cfg(not(feature = "pull"))]
mod absent;
#[cfg(feature = "pull")]
mod message;
#[cfg(feature = "pull")]
mod pace;
#[cfg(feature = "pull")]
mod puller;
mod settings;
#[cfg(feature = "pull")]
mod stream;
#[cfg(feature = "pull")]
mod tries;
#[cfg(feature = "pull")]
mod trouble;

#[cfg(not(feature = "pull"))]
pub use absent::Puller;
#[cfg(feature = "pull")]
pub use pace::Pace;
#[cfg(feature = "pull")]
pub use puller::Puller;
pub use settings::{PullArgs, PullConfig};
