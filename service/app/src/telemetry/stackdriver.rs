//! The form of a log line: JSON as Cloud Logging parses it, or text.
//!
//! `tracing-stackdriver` writes the JSON but knows neither `operation` nor
//! traces nor empty labels, and renames labels; each finished line passes
//! through here and gets them right.

use std::io::{self, IsTerminal as _, Write};

use serde_json::{Map, Value, json};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use super::stdout::Flush;
use super::{filter, stdout, trace};

const LABELS: &str = "logging.googleapis.com/labels";
const OPERATION: &str = "logging.googleapis.com/operation";
/// `tracing-stackdriver` writes every key in camel case; filters have these.
const NAMES: [(&str, &str); 2] = [("clusterName", "cluster_name"), ("nodeName", "node_name")];

/// Starts logging to stdout, as JSON or text; filters come from `RUST_LOG`.
/// Hold what it returns to the end: it writes what is left.
///
/// # Errors
/// When the filters are none, or logging has been started before.
pub fn start(json: bool) -> anyhow::Result<Flush> {
    let filter = filter::from_environment("info,google_cloud_auth=warn")?;
    let registry = tracing_subscriber::registry().with(filter);
    let (lines, flush) = stdout::start(json)?;
    if json {
        registry
            .with(json_layer(move |line| lines.put(line)))
            .try_init()?;
    } else {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let ansi = io::stdout().is_terminal() && !plain;
        let layer = tracing_subscriber::fmt::layer().compact();
        registry
            .with(
                layer
                    .with_ansi(ansi)
                    .with_writer(Finish(move |line: &[u8]| lines.put(line))),
            )
            .try_init()?;
    }
    Ok(flush)
}

/// A layer that hands each line, as JSON and with its line break, to `sink`.
pub fn json_layer<S>(sink: impl Fn(&[u8]) + 'static) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_stackdriver::layer().with_writer(Finish(sink))
}

struct Finish<F>(F);

impl<'a, F: Fn(&[u8]) + 'a> MakeWriter<'a> for Finish<F> {
    type Writer = Line<'a, F>;

    fn make_writer(&'a self) -> Line<'a, F> {
        Line(Vec::new(), &self.0)
    }
}

/// Collects one line, and hands it on in one piece when it is complete.
struct Line<'a, F: Fn(&[u8])>(Vec<u8>, &'a F);

impl<F: Fn(&[u8])> Write for Line<'_, F> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Fn(&[u8])> Drop for Line<'_, F> {
    fn drop(&mut self) {
        let line = match serde_json::from_slice::<Map<String, Value>>(&self.0) {
            Ok(line) => Value::Object(finish(line)).to_string() + "\n",
            Err(_) => String::from_utf8_lossy(&self.0).into_owned(),
        };
        (self.1)(line.as_bytes());
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
        for (theirs, ours) in NAMES {
            if let Some(value) = labels.remove(theirs) {
                labels.insert(ours.to_owned(), value);
            }
        }
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
    trace::add_to(&mut line);
    line
}
