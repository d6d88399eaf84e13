//! What a drain tells while it goes on, as lines on stderr: the same sentences
//! that the service logs.

use std::io::Write as _;
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::telemetry::filter;

/// Tells from now on; filters come from `RUST_LOG`.
///
/// # Errors
/// When the filters are none, or something in this process tells already.
pub fn start() -> anyhow::Result<()> {
    let filter = filter::from_environment("drainwell_app=info")?;
    let lines = Lines {
        started: Instant::now(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()?;
    Ok(())
}

struct Lines {
    started: Instant,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let after = self.started.elapsed().as_secs();
        // When stderr is gone, the exit code is all that is left to say.
        drop(writeln!(
            std::io::stderr(),
            "{after:>5}s  {level}{}",
            message.0
        ));
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
