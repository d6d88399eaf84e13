//! Kubeconfig files, written as JSON, which is YAML too.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// One context: a server and who calls it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the context, the cluster and the user.
    pub context: String,
    /// Base URL of the API server or of a proxy in front of it.
    pub server: String,
    /// Certificate that the server is trusted by; none for plain http.
    pub ca: Option<PathBuf>,
    /// Bearer token.
    pub token: String,
}

impl Entry {
    /// The same through a proxy, over plain http.
    pub fn through(mut self, url: &str) -> Self {
        self.server = url.into();
        self.ca = None;
        self
    }

    /// A client for it. It belongs to the runtime in which it is made.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let config: Kubeconfig = serde_json::from_value(content(std::slice::from_ref(self)))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(config, &options).await?;
        // An answer is what the API server said, not what it said at last.
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }
}

/// Writes a kubeconfig with one context per entry; the first is the current.
pub fn write(path: &Path, entries: &[Entry]) -> anyhow::Result<()> {
    let content = content(entries).to_string();
    std::fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

fn content(entries: &[Entry]) -> Value {
    let clusters: Vec<_> = entries
        .iter()
        .map(|entry| {
            let mut cluster = json!({ "server": entry.server });
            if let Some(ca) = &entry.ca {
                cluster["certificate-authority"] = json!(ca);
            }
            json!({ "name": entry.context, "cluster": cluster })
        })
        .collect();
    let users: Vec<_> = entries
        .iter()
        .map(|entry| json!({ "name": entry.context, "user": { "token": entry.token } }))
        .collect();
    let contexts: Vec<_> = entries
        .iter()
        .map(|entry| {
            let name = &entry.context;
            json!({ "name": name, "context": { "cluster": name, "user": name } })
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "users": users,
        "contexts": contexts,
        "current-context": entries.first().map(|entry| entry.context.as_str()),
    })
}
