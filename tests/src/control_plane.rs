//! A real control plane: etcd, kube-apiserver, kube-controller-manager and
//! kube-scheduler as child processes on loopback, shared by all tests of this
//! process. There is no kubelet and no node; `kubelet` stands in for those.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::ensure;
use kube::Client;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::kubeconfig::Entry;

mod start;

pub(crate) use start::temporary_folder;

/// The cluster's GKE coordinates: its VMs carry them as labels, and the
/// service's kubeconfig context is named after them.
pub const PROJECT: &str = "fleet-lab-7";
/// Where the cluster is.
pub const LOCATION: &str = "europe-west4";
/// The cluster's name.
pub const CLUSTER: &str = "train-west";
/// The user that the service is; `deploy/rbac.yaml` is bound to it.
pub const SERVICE_USER: &str = "drainwell";

const ADMIN_TOKEN: &str = "admin-token-of-the-harness";
const CONTROLLER_TOKEN: &str = "controller-token-of-the-harness";
const SERVICE_TOKEN: &str = "service-token-of-the-harness";

/// A running control plane. It ends with this process.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    assets: PathBuf,
    server: String,
    components: Vec<Component>,
}

#[derive(Debug)]
struct Component {
    name: &'static str,
    log: PathBuf,
    leash: Child,
}

/// The control plane of this process, started by whoever asks first.
pub async fn shared() -> &'static ControlPlane {
    static PLANE: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
    // A failure is kept: starting it again for every test would take minutes.
    match PLANE
        .get_or_init(async || start::start().await.map_err(|e| format!("{e:#}")))
        .await
    {
        Ok(plane) => plane,
        Err(reason) => panic!("the control plane did not start: {reason}"),
    }
}

impl ControlPlane {
    /// The temporary folder with the data, logs and kubeconfigs. It is removed
    /// when the process ends, unless `DRAINWELL_TESTS_KEEP` is set.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Base URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The certificate that the API server is trusted by.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("certs/apiserver.crt")
    }

    /// The API server's audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// A kubeconfig entry for the service's own user. Through a proxy: set its
    /// URL with `Entry::through`.
    pub fn service_entry(&self, context: &str) -> Entry {
        self.entry(context, SERVICE_TOKEN)
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> anyhow::Result<Client> {
        self.entry("admin", ADMIN_TOKEN).client().await
    }

    /// A client that is the service's user.
    pub async fn as_service(&self) -> anyhow::Result<Client> {
        self.service_entry("service").client().await
    }

    /// A kubeconfig entry for the API server itself.
    fn entry(&self, context: &str, token: &str) -> Entry {
        Entry {
            context: context.into(),
            server: self.server.clone(),
            ca: Some(self.ca()),
            token: token.into(),
        }
    }

    /// Runs `kubectl` as admin and gives its stdout.
    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.assets.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.folder.join("admin.kubeconfig"))
            .args(arguments)
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(Duration::from_secs(60), command.output()).await??;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {arguments:?}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The last lines of every component's log.
    pub fn log_tails(&self) -> String {
        self.components
            .iter()
            .fold(String::new(), |all, component| {
                all + &format!("\n--- {}\n{}", component.name, tail(&component.log))
            })
    }
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
