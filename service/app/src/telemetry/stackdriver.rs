//! The form of a log line: JSON as Cloud Logging parses it, or text.
//!
//! `tracing-stackdriver` writes the JSON but knows neither `operation` nor
//! empty labels; each finished line passes through here and gets both right.

use std::io::{self, IsTerminal as _, Write};

use serde_json::{Map, Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use super::stdout::Flush;
use super::stdout::{self, Lines};

const LABELS: &str = "logging.googleapis.com/labels";
const OPERATION: &str = "logging.googleapis.com/operation";

/// Starts logging to stdout, as JSON or text; filters come from `RUST_LOG`.
/// Hold what it returns to the end: it writes what is left.
///
/// # Errors
/// When logging has been started before.
pub fn start(json: bool) -> anyhow::Result<Flush> {
    // An empty variable is none.
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let asked = asked.filter(|asked| !asked.is_empty());
    let filter = asked.and_then(|asked| EnvFilter::try_new(asked).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new("info,google_cloud_auth=warn"));
    let registry = tracing_subscriber::registry().with(filter);
    let (lines, flush) = stdout::start(json)?;
    if json {
        registry
            .with(tracing_stackdriver::layer().with_writer(Finish(lines)))
            .try_init()?;
    } else {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let ansi = io::stdout().is_terminal() && !plain;
        let layer = tracing_subscriber::fmt::layer().compact();
        registry
            .with(layer.with_ansi(ansi).with_writer(Finish(lines)))
            .try_init()?;
    }
    Ok(flush)
}

struct Finish(Lines);

impl<'a> MakeWriter<'a> for Finish {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::new(), self.0.clone())
    }
}

/// Collects one line, and writes it in one piece when it is complete.
struct Line(Vec<u8>, Lines);

impl Write for Line {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = match serde_json::from_slice::<Map<String, Value>>(&self.0) {
            Ok(line) => Value::Object(finish(line)).to_string() + "\n",
            Err(_) => String::from_utf8_lossy(&self.0).into_owned(),
        };
        self.1.put(line.as_bytes());
    }
}

fn finish(mut line: Map<String, Value>) -> Map<String, Value> {
    if let Some(time) = line.remove("time") {
        line.insert("timestamp".to_owned(), time);
    }
    let first = line.remove("operationFirst");
    let last = line.remove("operationLast");
    let key = if let Some(Value::Object(labels)) = line.get_mut(LABELS) {
        labels.retain(|_, value| value != "");
        labels.get("maintenance").cloned()
    } else {
        None
    };
    if line.get(LABELS).is_some_and(|labels| *labels == json!({})) {
        line.remove(LABELS);
    }
    if let Some(key) = key {
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let operation =
            json!({"id": key, "producer": "drainwell.dev", "first": first, "last": last});
        line.insert(OPERATION.to_owned(), operation);
    }
    line
}
