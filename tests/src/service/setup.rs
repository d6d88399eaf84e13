//! How the service is built and started.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::Service;
use crate::compute::Compute;
use crate::control_plane::temporary_folder;
use crate::{context, kubeconfig, leash};

/// An optimised build of everything on a slow machine.
const BUILD_WITHIN: Duration = Duration::from_secs(1800);

/// How the service is to be started.
#[derive(Clone, Debug)]
pub struct Setup {
    folder: PathBuf,
    contexts: Vec<kubeconfig::Entry>,
    metadata_host: String,
    compute_url: String,
    policy: Option<String>,
    auth: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    program: Option<PathBuf>,
}

impl Setup {
    pub(crate) fn new(folder: &Path, contexts: Vec<kubeconfig::Entry>, compute: &Compute) -> Self {
        Self {
            folder: folder.to_owned(),
            contexts,
            metadata_host: compute.host(),
            compute_url: compute.url(),
            policy: None,
            auth: vec!["--auth".into(), "none".into()],
            arguments: Vec::new(),
            environment: Vec::new(),
            program: None,
        }
    }

    /// Of a service whose cluster and whose Compute are down: for what comes
    /// before either is asked.
    pub fn alone() -> anyhow::Result<Self> {
        // Nobody listens on the port that once was for multiplexing.
        let nowhere = "127.0.0.1:1";
        let cluster = kubeconfig::Entry {
            context: context(),
            server: format!("http://{nowhere}"),
            ca: None,
            token: "a-token-for-nobody".into(),
        };
        Ok(Self {
            folder: temporary_folder()?,
            contexts: vec![cluster],
            metadata_host: nowhere.into(),
            compute_url: format!("http://{nowhere}"),
            policy: None,
            auth: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            program: None,
        })
    }

    /// With these arguments instead of `--auth none`.
    pub fn auth(mut self, arguments: &[&str]) -> Self {
        self.auth = arguments.iter().map(|&argument| argument.into()).collect();
        self
    }

    /// With this policy file.
    pub fn policy(mut self, yaml: &str) -> Self {
        self.policy = Some(yaml.into());
        self
    }

    /// With these further arguments.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|&argument| argument.into()));
        self
    }

    /// With this environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// By another program than the service's own binary.
    pub(crate) fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// With these contexts in the kubeconfig; the first is the current one.
    pub fn contexts(mut self, contexts: Vec<kubeconfig::Entry>) -> Self {
        self.contexts = contexts;
        self
    }

    /// Starts it, and waits until it listens.
    pub async fn start(self) -> anyhow::Result<Service> {
        let mut service = self.launch().await?;
        service.listen().await?;
        Ok(service)
    }

    /// Starts it with settings with which it should refuse to; gives its exit
    /// code and what it wrote to stderr.
    pub async fn refused(self) -> anyhow::Result<(i32, String)> {
        let mut service = self.launch().await?;
        let code = service.exit_code().await?;
        Ok((code, service.stderr()))
    }

    async fn launch(self) -> anyhow::Result<Service> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let program = match &self.program {
            Some(program) => program.as_path(),
            None => program().await?,
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join(format!("service-{number}"));
        std::fs::create_dir_all(&folder)?;
        kubeconfig::write(&folder.join("kubeconfig"), &self.contexts)?;
        if let Some(policy) = &self.policy {
            std::fs::write(folder.join("policy.yaml"), policy)?;
        }
        let mut command = Command::from(leash::command(program));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json"])
            .args(&self.auth)
            .args([
                "--clusters",
                "kubeconfig",
                "--compute-endpoint",
                &self.compute_url,
            ]);
        if self.policy.is_some() {
            command.arg("--policy-file").arg(folder.join("policy.yaml"));
        }
        let stderr = folder.join("stderr.log");
        // Nothing of the machine's own Google or Kubernetes settings.
        command
            .args(&self.arguments)
            .env_clear()
            .env("HOME", &folder)
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("GCE_METADATA_HOST", &self.metadata_host)
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&stderr)?)
            .kill_on_drop(true);
        Service::adopt(self, command.spawn().context("start the service")?, stderr)
    }
}

/// The service's binary, built once per process with this binary's profile, in
/// the same target folder. `DRAINWELL_BIN` names one that is built already.
pub(crate) async fn program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    if let Some(given) = std::env::var_os("DRAINWELL_BIN") {
        return Ok(PROGRAM.get_or_init(async || given.into()).await);
    }
    Ok(PROGRAM.get_or_try_init(build).await?)
}

async fn build() -> anyhow::Result<PathBuf> {
    // TARGET/PROFILE/deps/THIS
    let this = std::env::current_exe()?;
    let profile_folder = this
        .ancestors()
        .nth(2)
        .context("an unknown target folder")?;
    let target = profile_folder
        .parent()
        .context("an unknown target folder")?;
    let profile = profile_folder.file_name().and_then(|name| name.to_str());
    let profile = match profile.context("an unknown profile")? {
        "debug" => "dev",
        other => other,
    };
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "build",
            "-q",
            "-p",
            "drainwell",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let built = timeout(BUILD_WITHIN, command.output())
        .await
        .context("cargo build takes too long")?;
    let output = built.context("run cargo")?;
    ensure!(
        output.status.success(),
        "cargo build: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(profile_folder.join("drainwell"))
}
