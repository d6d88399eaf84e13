//! The service: the real binary, as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{Notice, wrap};
use crate::wait::{eventually, millis, secs};

mod setup;

pub use setup::Setup;
pub(crate) use setup::program;

const START_WITHIN: Duration = Duration::from_secs(30);
/// More than the service takes for any request: a tick holds its own for long.
const ANSWER_WITHIN: Duration = Duration::from_secs(240);
/// What follows this in the first line's message is the address.
const LISTENING: &str = "listening on http://";

/// A running service. It is killed when this is dropped.
#[derive(Debug)]
pub struct Service {
    setup: Setup,
    process: Child,
    leash: Option<ChildStdin>,
    lines: Lines,
    stderr: PathBuf,
    address: Option<SocketAddr>,
    http: reqwest::Client,
    _reader: JoinSet<()>,
}

/// An answer of the service.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body: JSON, or a string when it is none.
    pub body: Value,
}

impl Service {
    fn adopt(setup: Setup, mut process: Child, stderr: PathBuf) -> anyhow::Result<Self> {
        let lines = Lines::default();
        let mut reader = JoinSet::new();
        let stdout = process.stdout.take().context("no stdout")?;
        reader.spawn(lines.clone().collect(stdout));
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(ANSWER_WITHIN)
            .build()?;
        let leash = process.stdin.take();
        let address = None;
        Ok(Self {
            setup,
            process,
            leash,
            lines,
            stderr,
            address,
            http,
            _reader: reader,
        })
    }

    async fn listen(&mut self) -> anyhow::Result<()> {
        let bound = tokio::time::Instant::now() + START_WITHIN;
        loop {
            let listening = self.lines.lock().iter().find_map(listening_on);
            if listening.is_some() {
                self.address = listening;
                return Ok(());
            }
            let ended = self.process.try_wait()?;
            if ended.is_some() || tokio::time::Instant::now() > bound {
                bail!("the service does not listen ({ended:?}):{}", self.output());
            }
            tokio::time::sleep(millis(10)).await;
        }
    }

    /// Base URL.
    pub fn url(&self) -> String {
        self.address
            .map_or_else(String::new, |address| format!("http://{address}"))
    }

    /// Posts any body to `/`.
    pub async fn post_raw(
        &self,
        content_type: &str,
        body: impl Into<Vec<u8>>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Answer> {
        let request = self
            .http
            .post(self.url())
            .header(CONTENT_TYPE, content_type);
        let request = headers
            .iter()
            .fold(request, |r, (name, value)| r.header(*name, *value));
        answer(request.body(body.into())).await
    }

    /// Pushes an entry as a Pub/Sub subscription does.
    pub async fn push_wrapped(&self, entry: &Notice) -> anyhow::Result<Answer> {
        self.post_raw("application/json", wrap(entry).to_string(), &[])
            .await
    }

    /// Pushes an entry as a Pub/Sub subscription without wrapper does.
    pub async fn push_unwrapped(&self, entry: &Notice) -> anyhow::Result<Answer> {
        self.post_raw("application/json", entry.to_string(), &[])
            .await
    }

    /// Calls `POST /tick`, and gives its summary.
    pub async fn tick(&self) -> anyhow::Result<Value> {
        let answer = answer(self.http.post(format!("{}/tick", self.url()))).await?;
        ensure!(answer.status == 200, "tick: {answer:?}");
        Ok(answer.body)
    }

    /// Gets a path.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        answer(self.http.get(format!("{}{path}", self.url()))).await
    }

    /// All lines of the log so far; a line that is no JSON is a string.
    pub fn log(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    /// The lines of the log with this `event`.
    pub fn log_of(&self, event: &str) -> Vec<Value> {
        self.lines
            .lock()
            .iter()
            .filter(|line| line["event"] == event)
            .cloned()
            .collect()
    }

    /// Waits for the first line of the log for which `wanted`.
    #[track_caller]
    pub fn wait_for_log(
        &self,
        bound: Duration,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> impl Future<Output = Value> {
        eventually(bound, what, async move || {
            let lines = self.lines.lock();
            let found = lines.iter().find(|line| wanted(line)).cloned();
            found.with_context(|| format!("{} lines, the last: {:?}", lines.len(), lines.last()))
        })
    }

    /// What it wrote to stderr.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// SIGKILL. Returns when the process is gone.
    pub async fn kill9(&mut self) -> anyhow::Result<()> {
        self.leash = None;
        self.exit_code().await.map(drop)
    }

    /// SIGTERM. Returns the exit code when the process is gone.
    pub async fn terminate(&mut self) -> anyhow::Result<i32> {
        self.signal("TERM").await?;
        self.exit_code().await
    }

    /// Freezes the process, as Cloud Run does with one that answers nobody.
    pub async fn freeze(&mut self) -> anyhow::Result<()> {
        self.signal("STOP").await
    }

    /// Lets a frozen process go on.
    pub async fn thaw(&mut self) -> anyhow::Result<()> {
        self.signal("CONT").await
    }

    /// Kills it if it still runs, and starts it anew with the same settings, on
    /// another port and with an empty log.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill9().await?;
        *self = self.setup.clone().start().await?;
        Ok(())
    }

    /// Waits until it has ended: 128 + the signal's number if by a signal.
    pub async fn exit_code(&mut self) -> anyhow::Result<i32> {
        let ended = timeout(secs(60), self.process.wait()).await;
        let status = ended.context("the service does not end")??;
        status.code().context("the leash was killed")
    }

    async fn signal(&mut self, name: &str) -> anyhow::Result<()> {
        let leash = self
            .leash
            .as_mut()
            .context("the service was killed before")?;
        leash.write_all(format!("{name}\n").as_bytes()).await?;
        Ok(leash.flush().await?)
    }

    fn output(&self) -> String {
        let lines = self.lines.lock();
        let first = lines.iter().take(20);
        let stdout = first.fold(String::new(), |all, line| all + &format!("\n{line}"));
        format!("{stdout}\n--- stderr\n{}", self.stderr())
    }
}

/// Lines of the log, as they come.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<Value>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn collect(self, stdout: ChildStdout) {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            self.lock().push(value);
        }
    }
}

fn listening_on(line: &Value) -> Option<SocketAddr> {
    let address = line["message"].as_str()?.strip_prefix(LISTENING)?;
    let end = address.find(|c: char| !(c.is_ascii_digit() || ".:[]".contains(c)));
    address[..end.unwrap_or(address.len())]
        .trim_end_matches('.')
        .parse()
        .ok()
}

async fn answer(request: reqwest::RequestBuilder) -> anyhow::Result<Answer> {
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Answer {
        status,
        headers,
        body,
    })
}
