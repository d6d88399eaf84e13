//! Reads the API server's audit log: what the service really asked for.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;

use crate::control_plane::SERVICE_USER;

/// One call to the API server that was answered.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who called.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `patch`, `delete`, …
    pub verb: String,
    /// `pods`, `nodes`, …; empty for paths that are no resource.
    pub resource: String,
    /// `eviction`, `status`; empty for the object itself.
    pub subresource: String,
    /// The object's namespace; empty when there is none.
    pub namespace: String,
    /// The object's name; empty for lists and watches.
    pub name: String,
    /// Path and query.
    pub uri: String,
    /// The caller's `User-Agent`.
    pub user_agent: String,
    /// The answer's status.
    pub code: u64,
    /// When the API server received it, in microseconds.
    pub at: Timestamp,
}

impl Call {
    /// `create pods/eviction`, for comparing with what was expected.
    pub fn what(&self) -> String {
        match self.subresource.as_str() {
            "" => format!("{} {}", self.verb, self.resource),
            subresource => format!("{} {}/{subresource}", self.verb, self.resource),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| {
            event
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        // A watch counts from its beginning, any other call when it is over.
        let counts = match event["verb"].as_str()? {
            "watch" => "ResponseStarted",
            _ => "ResponseComplete",
        };
        (event["stage"] == counts).then_some(())?;
        Some(Self {
            user: text("/user/username"),
            verb: text("/verb"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            uri: text("/requestURI"),
            user_agent: text("/userAgent"),
            code: event.pointer("/responseStatus/code")?.as_u64()?,
            at: text("/requestReceivedTimestamp").parse().ok()?,
        })
    }
}

/// The audit log from some moment on.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    from: u64,
}

impl Audit {
    /// The audit log from now on.
    pub fn from_now(path: PathBuf) -> Self {
        let from = std::fs::metadata(&path)
            .map(|file| file.len())
            .unwrap_or_default();
        Self { path, from }
    }

    /// Calls of everybody (of others than the service only writes), in the
    /// order in which the API server received them. A call is in the log before
    /// its caller has the answer, except for answers of many kilobytes.
    pub fn all(&self) -> Vec<Call> {
        let mut text = String::new();
        let read = std::fs::File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.from))?;
            file.read_to_string(&mut text)
        });
        if let Err(error) = read {
            panic!("the audit log can't be read: {error}");
        }
        let mut calls: Vec<_> = text.lines().filter_map(Call::parse).collect();
        calls.sort_by_key(|call| call.at);
        calls
    }

    /// Calls of the service, in the order in which they were received.
    pub fn calls(&self) -> Vec<Call> {
        self.all()
            .into_iter()
            .filter(|call| call.user == SERVICE_USER)
            .collect()
    }

    /// Calls of the service that change something. (To ask for a review of
    /// one's own rights is a create that stores nothing.)
    pub fn writes(&self) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| {
            let reads = ["get", "list", "watch"].contains(&call.verb.as_str());
            !reads && !call.resource.ends_with("reviews")
        });
        calls
    }

    /// How many calls of the service are `what`, such as `create pods/eviction`.
    pub fn count(&self, what: &str) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.what() == what)
            .count()
    }
}
