//! The log of a test's service, as Cloud Logging would get it.

use std::sync::{Arc, Mutex};

use drainwell_app::telemetry::stackdriver;
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt as _;

/// Everything that is logged on this thread while it is there.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _here: tracing::subscriber::DefaultGuard,
}

impl Log {
    pub(crate) fn capture() -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let layer = stackdriver::json_layer(move |line| {
            let line = String::from_utf8(line.to_vec()).unwrap();
            kept.lock().unwrap().push(line);
        });
        let filter = tracing_subscriber::filter::LevelFilter::INFO;
        let subscriber = tracing_subscriber::registry().with(filter).with(layer);
        Self {
            lines,
            _here: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The lines since this was last asked for.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    /// The same, parsed.
    pub(crate) fn take_parsed(&self) -> Vec<Value> {
        let lines = self.take();
        let parse = |line: &String| serde_json::from_str(line).unwrap();
        lines.iter().map(parse).collect()
    }
}
