//! The other commands of the binary, each as a process of its own that ends by
//! itself or is asked to.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::wait::{eventually, secs};
use crate::{Lease, context, kubeconfig, leash, service};

/// A command that runs, or has ended. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    folder: PathBuf,
    process: Child,
    leash: ChildStdin,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit code: 128 + the signal's number if by a signal.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Lease {
    /// Starts the binary with these arguments, and with the service's kubeconfig
    /// and nothing else of this machine's settings.
    pub async fn start(&self, arguments: &[&str]) -> anyhow::Result<Running> {
        self.start_with(arguments, None).await
    }

    /// The same with this policy file as `--policy-file`.
    pub async fn start_with(
        &self,
        arguments: &[&str],
        policy: Option<&str>,
    ) -> anyhow::Result<Running> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = self.plane.folder().join(format!("command-{number}"));
        std::fs::create_dir_all(&folder)?;
        let entry = self.plane.service_entry(&context());
        let entry = entry.through(&self.proxy.url());
        kubeconfig::write(&folder.join("kubeconfig"), &[entry])?;
        let mut command = Command::from(leash::command(service::program().await?));
        command.args(arguments);
        if let Some(policy) = policy {
            std::fs::write(folder.join("policy.yaml"), policy)?;
            command.arg("--policy-file").arg(folder.join("policy.yaml"));
        }
        let file = |name: &str| std::fs::File::create(folder.join(name));
        let mut process = command
            .env_clear()
            .env("HOME", &folder)
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("RUST_BACKTRACE", "1")
            .stdout(Stdio::from(file("stdout")?))
            .stderr(Stdio::from(file("stderr")?))
            .kill_on_drop(true)
            .spawn()
            .context("start the command")?;
        let leash = process.stdin.take().context("no leash")?;
        Ok(Running {
            folder,
            process,
            leash,
        })
    }

    /// Runs the binary with these arguments to its end.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<Finished> {
        self.start(arguments).await?.finish().await
    }
}

impl Running {
    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        text(&self.folder.join("stderr"))
    }

    /// Waits until stderr has this in it.
    #[track_caller]
    pub fn tells(&self, what: &str) -> impl Future<Output = ()> {
        eventually(secs(30), "the command tells it", async move || {
            let stderr = self.stderr();
            anyhow::ensure!(stderr.contains(what), "no {what:?} in:\n{stderr}");
            Ok(())
        })
    }

    /// SIGINT, as Ctrl-C sends it.
    pub async fn interrupt(&mut self) -> anyhow::Result<()> {
        self.leash.write_all(b"INT\n").await?;
        Ok(self.leash.flush().await?)
    }

    /// Waits for its end.
    pub async fn finish(mut self) -> anyhow::Result<Finished> {
        let ended = timeout(secs(120), self.process.wait()).await;
        let status = ended.with_context(|| format!("it does not end:\n{}", self.stderr()))??;
        Ok(Finished {
            code: status.code().context("the leash was killed")?,
            stdout: text(&self.folder.join("stdout")),
            stderr: self.stderr(),
        })
    }
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}
