//! Pub/Sub: Google's own in-memory server as a process of its own, and what a
//! test does with it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::leash;

/// Covers a first compilation on a slow machine.
const BUILD_WITHIN: Duration = Duration::from_secs(1200);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The server, while this lives. What is published goes to every subscription.
#[derive(Debug)]
pub struct PubSub {
    /// `HOST:PORT`, as `PUBSUB_EMULATOR_HOST` wants it.
    pub address: String,
    control: String,
    http: reqwest::Client,
    _process: Child,
}

/// What became of a message.
#[derive(Clone, Debug, Deserialize)]
pub struct Delivered {
    /// Its id.
    pub id: String,
    /// How often it was delivered.
    pub deliveries: u32,
    /// How often it was acknowledged.
    pub acks: u32,
    /// How often it was given back.
    pub nacks: u32,
}

#[derive(Deserialize)]
struct Streams {
    opened: u64,
    open: u64,
}

#[derive(Deserialize)]
struct Addresses {
    pubsub: String,
    control: String,
}

impl PubSub {
    /// Starts one, without subscriptions.
    pub async fn start() -> anyhow::Result<Self> {
        let program = program().await?;
        let mut command = Command::from(leash::command(program));
        let mut process = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start Pub/Sub")?;
        let stdout = process.stdout.take().context("no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(ANSWER_WITHIN, lines.next_line())
            .await
            .context("Pub/Sub says nothing")??
            .context("Pub/Sub has ended")?;
        let Addresses { pubsub, control } = serde_json::from_str(&line)?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(ANSWER_WITHIN)
            .build()?;
        Ok(Self {
            address: pubsub,
            control: format!("http://{control}"),
            http,
            _process: process,
        })
    }

    /// Makes a subscription; what was published before does not go to it.
    pub async fn subscribe(&self, name: &str) -> anyhow::Result<()> {
        self.post("subscriptions", &json!({ "name": name })).await
    }

    /// Makes one with exactly-once delivery.
    pub async fn subscribe_exactly_once(&self, name: &str) -> anyhow::Result<()> {
        let wanted = json!({ "name": name, "exactlyOnce": true });
        self.post("subscriptions", &wanted).await
    }

    /// Publishes entries, and gives the ids of the messages.
    pub async fn publish(&self, entries: &[Value]) -> anyhow::Result<Vec<String>> {
        let texts: Vec<_> = entries.iter().map(|e| e.to_string().into_bytes()).collect();
        self.publish_raw(&texts).await
    }

    /// Publishes any data, and gives the ids of the messages.
    pub async fn publish_raw(&self, data: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
        let data: Vec<_> = data.iter().map(|data| BASE64.encode(data)).collect();
        self.post("messages", &json!(data)).await
    }

    /// All messages so far, in the order in which they were published.
    pub async fn messages(&self) -> anyhow::Result<Vec<Delivered>> {
        let request = self.http.get(format!("{}/messages", self.control));
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// One of them.
    pub async fn message(&self, id: &str) -> anyhow::Result<Delivered> {
        let all = self.messages().await?.into_iter();
        all.into_iter()
            .find(|message| message.id == id)
            .with_context(|| format!("no message {id}"))
    }

    /// Fails unless each of these messages was acknowledged once, at least.
    pub async fn all_acknowledged(&self, ids: &[String]) -> anyhow::Result<()> {
        let all = self.messages().await?;
        let waiting = all.iter().filter(|m| m.acks == 0 && ids.contains(&m.id));
        let waiting: Vec<_> = waiting.collect();
        let first = waiting.first();
        ensure!(first.is_none(), "{} wait, as {first:?}", waiting.len());
        Ok(())
    }

    /// How many streams were opened so far, those that failed at once too.
    pub async fn streams(&self) -> anyhow::Result<u64> {
        Ok(self.count_streams().await?.opened)
    }

    /// How many of them are open.
    pub async fn open_streams(&self) -> anyhow::Result<u64> {
        Ok(self.count_streams().await?.open)
    }

    async fn count_streams(&self) -> anyhow::Result<Streams> {
        let request = self.http.get(format!("{}/streams", self.control));
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Lets the server's clock go on: leases run out, and what was not
    /// acknowledged is delivered again. After ten minutes it would be forgotten.
    pub async fn advance(&self, seconds: u32) -> anyhow::Result<()> {
        self.post("advance", &json!(seconds)).await
    }

    /// Answers everything with this gRPC status, and ends open streams with it,
    /// until `heal`.
    pub async fn fail(&self, code: u32, message: &str) -> anyhow::Result<()> {
        self.post("fault", &json!({ "code": code, "message": message }))
            .await
    }

    /// Ends that.
    pub async fn heal(&self) -> anyhow::Result<()> {
        self.post("fault", &json!({ "code": 0 })).await
    }

    /// Cuts all connections and closes the port. Nothing is forgotten.
    pub async fn go_down(&self) -> anyhow::Result<()> {
        self.post("down", &Value::Null).await
    }

    /// Listens again where it did.
    pub async fn come_up(&self) -> anyhow::Result<()> {
        self.post("up", &Value::Null).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> anyhow::Result<T> {
        let url = format!("{}/{path}", self.control);
        let answer = self.http.post(url).json(body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{path}: {text}");
        Ok(serde_json::from_str(&text)?)
    }
}

/// The binary, built once if it is missing.
async fn program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(PROGRAM.get_or_try_init(build).await?)
}

async fn build() -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("pubsub/build.sh");
    let mut command = Command::new(&script);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = timeout(BUILD_WITHIN, command.output())
        .await
        .context("pubsub/build.sh takes too long")?
        .with_context(|| format!("run {}", script.display()))?;
    ensure!(
        output.status.success(),
        "{} failed, see above",
        script.display()
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
