//! Ties log lines to the request that they were written in: Cloud Logging shows
//! them beneath Cloud Run's own line for it.
//!
//! Names are those of `LogEntry`: `trace`, `spanId`, `traceSampled`. The trace
//! lives in a task-local, so lines of other tasks (a pass, say) don't bear it.

use std::future::Future;
use std::sync::OnceLock;

use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

tokio::task_local! {
    static TRACE: Trace;
}

static PROJECT: OnceLock<String> = OnceLock::new();

/// Says in which project the traces of this process are. Counts once.
pub fn set_project(project: &str) {
    // An error means that it has been said before.
    drop(PROJECT.set(project.to_owned()));
}

/// Where a request belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// 32 hexadecimal digits.
    id: String,
    /// 16 of them.
    span: Option<String>,
    sampled: bool,
}

impl Trace {
    /// From W3C's `traceparent`, else from Google's older header.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        text("traceparent")
            .and_then(Self::from_w3c)
            .or_else(|| text("x-cloud-trace-context").and_then(Self::from_google))
    }

    /// `VERSION-TRACE-SPAN-FLAGS`; a version after 00 may have more behind.
    fn from_w3c(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut next = |length| parts.next().filter(|part| is_hex(part, length));
        let (version, id, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let known = match version {
            "00" => parts.next().is_none(),
            other => !other.eq_ignore_ascii_case("ff"),
        };
        (known && !is_zero(id) && !is_zero(span)).then(|| Self {
            id: id.to_ascii_lowercase(),
            span: Some(span.to_ascii_lowercase()),
            sampled: flags & 1 == 1,
        })
    }

    /// `TRACE/SPAN;o=OPTIONS`, with a decimal span; all but the trace may lack.
    fn from_google(text: &str) -> Option<Self> {
        let (text, options) = text.trim().split_once(';').unwrap_or((text.trim(), ""));
        let (id, span) = text.split_once('/').unwrap_or((text, ""));
        let span = span.parse::<u64>().ok().filter(|span| *span > 0);
        (is_hex(id, 32) && !is_zero(id)).then(|| Self {
            id: id.to_ascii_lowercase(),
            span: span.map(|span| format!("{span:016x}")),
            sampled: options == "o=1",
        })
    }

    fn resource(&self, project: Option<&str>) -> String {
        match project {
            Some(project) => format!("projects/{project}/traces/{}", self.id),
            None => self.id.clone(),
        }
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|b| b == b'0')
}

/// What the future writes to the log bears the trace.
pub async fn during<F: Future>(trace: Option<Trace>, future: F) -> F::Output {
    match trace {
        Some(trace) => TRACE.scope(trace, future).await,
        None => future.await,
    }
}

/// Adds the trace in force, if any, to a line.
pub(super) fn add_to(line: &mut Map<String, Value>) {
    let Ok(trace) = TRACE.try_with(Trace::clone) else {
        return; // No request is being served here.
    };
    let mut put = |key: &str, value: Value| {
        line.insert(format!("logging.googleapis.com/{key}"), value);
    };
    let project = PROJECT.get().map(String::as_str);
    put("trace", json!(trace.resource(project)));
    if let Some(span) = &trace.span {
        put("spanId", json!(span));
    }
    put("trace_sampled", json!(trace.sampled));
}
