//! Starts the processes of a control plane, and waits until they are ready.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use axum::http::Request;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::{
    ADMIN_TOKEN, CONTROLLER_TOKEN, Component, ControlPlane, SERVICE_TOKEN, SERVICE_USER, tail,
};
use crate::{kubeconfig, leash};

/// Takes about six seconds on two idle cores, and many times that beside a
/// compiler.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// A port that was free may be taken before a component listens on it.
const ATTEMPTS: usize = 3;
/// Covers a first compilation of Kubernetes on a slow machine.
const BUILD_WITHIN: Duration = Duration::from_secs(3600);

const CONTROLLERS: &str = "disruption-controller,replicaset-controller,deployment-controller,\
    daemonset-controller,job-controller,garbage-collector-controller,serviceaccount-controller,\
    namespace-controller,pod-garbage-collector-controller";

/// Everything that the service does, and every write of anybody.
const AUDIT_POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - { level: Metadata, users: [drainwell] }
  - { level: Metadata, verbs: [create, update, patch, delete, deletecollection] }
  - { level: None }
";

pub(super) async fn start() -> anyhow::Result<ControlPlane> {
    let assets = assets().await?;
    let mut attempt = 1;
    loop {
        match start_once(&assets).await {
            Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains("in use") => {
                attempt += 1;
            }
            result => return result,
        }
    }
}

async fn start_once(assets: &Path) -> anyhow::Result<ControlPlane> {
    let folder = temporary_folder()?;
    let [etcd, server] = free_ports()?;
    let mut plane = ControlPlane {
        folder,
        assets: assets.to_owned(),
        server: format!("https://127.0.0.1:{server}"),
        components: Vec::new(),
    };
    plane.write_files()?;
    plane.start_store_and_server(etcd, server)?;
    plane.ready().await?;
    plane.start_controllers()?;
    plane.apply_rbac().await?;
    plane.check_alive()?;
    Ok(plane)
}

/// The folder with the binaries, which are built when they are missing.
async fn assets() -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kube/build.sh");
    let mut command = Command::new(&script);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = timeout(BUILD_WITHIN, command.output())
        .await
        .context("kube/build.sh takes too long")?
        .with_context(|| format!("run {}", script.display()))?;
    ensure!(
        output.status.success(),
        "{} failed, see above",
        script.display()
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// A new folder that is removed when this process has ended.
pub(crate) fn temporary_folder() -> anyhow::Result<PathBuf> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("drainwell-tests-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)?;
    if std::env::var_os("DRAINWELL_TESTS_KEEP").is_none() {
        // Its stdin must stay open as long as this process lives.
        std::mem::forget(leash::janitor(&folder).spawn()?);
    }
    Ok(folder)
}

/// Ports that were free a moment ago, and differ.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

impl ControlPlane {
    /// Fails with the tail of its log when a component has ended.
    fn check_alive(&mut self) -> anyhow::Result<()> {
        for component in &mut self.components {
            if let Some(status) = component.leash.try_wait()? {
                bail!(
                    "{} ended ({status}): {}",
                    component.name,
                    tail(&component.log)
                );
            }
        }
        Ok(())
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.check_alive()?;
            let seen = match timeout(Duration::from_secs(5), self.readyz()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "/readyz gives no answer".into(),
            };
            if Instant::now() > deadline {
                bail!(
                    "not ready within {READY_WITHIN:?}: {seen}{}",
                    self.log_tails()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn readyz(&self) -> anyhow::Result<()> {
        let request = Request::get("/readyz").body(Vec::new())?;
        let answer = self.admin().await?.request_text(request).await?;
        ensure!(answer == "ok", "/readyz: {answer}");
        Ok(())
    }

    fn start_store_and_server(&mut self, etcd: u16, server: u16) -> anyhow::Result<()> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let store = format!("http://127.0.0.1:{etcd}");
        let store_flags = [
            format!("--data-dir={}", path("etcd")),
            format!("--listen-client-urls={store}"),
            format!("--advertise-client-urls={store}"),
            "--listen-peer-urls=http://127.0.0.1:0".into(),
            "--unsafe-no-fsync".into(),
        ];
        let server_flags = [
            format!("--etcd-servers={store}"),
            "--bind-address=127.0.0.1".into(),
            // Any address that is not loopback: it is only written into an
            // object that nothing here reads, and a machine without a default
            // route has none to offer.
            "--advertise-address=192.0.2.1".into(),
            format!("--secure-port={server}"),
            format!("--cert-dir={}", path("certs")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            // The key that the API server makes for itself will do.
            format!("--service-account-key-file={}", path("certs/apiserver.key")),
            format!(
                "--service-account-signing-key-file={}",
                path("certs/apiserver.key")
            ),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            // Pods and nodes stay as the tests write them: no default
            // tolerations, no not-ready taint on a new node.
            "--disable-admission-plugins=DefaultTolerationSeconds,TaintNodesByCondition".into(),
            format!("--audit-policy-file={}", path("audit-policy.yaml")),
            format!("--audit-log-path={}", path("audit.log")),
        ];
        self.spawn("etcd", &store_flags)?;
        self.spawn("kube-apiserver", &server_flags)
    }

    fn start_controllers(&mut self) -> anyhow::Result<()> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let common = [
            format!("--kubeconfig={}", path("controllers.kubeconfig")),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ];
        let mut manager = common.to_vec();
        manager.push(format!(
            "--service-account-private-key-file={}",
            path("certs/apiserver.key")
        ));
        manager.push(format!("--controllers={CONTROLLERS}"));
        self.spawn("kube-controller-manager", &manager)?;
        self.spawn("kube-scheduler", &common)
    }

    fn write_files(&self) -> anyhow::Result<()> {
        let tokens = format!(
            "{ADMIN_TOKEN},harness,harness,\"system:masters\"\n\
             {CONTROLLER_TOKEN},control-plane,control-plane,\"system:masters\"\n\
             {SERVICE_TOKEN},{SERVICE_USER},{SERVICE_USER}\n"
        );
        std::fs::write(self.folder.join("tokens.csv"), tokens)?;
        std::fs::write(self.folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        for (name, token) in [("admin", ADMIN_TOKEN), ("controllers", CONTROLLER_TOKEN)] {
            let file = self.folder.join(format!("{name}.kubeconfig"));
            kubeconfig::write(&file, &[self.entry(name, token)])?;
        }
        Ok(())
    }

    /// Applies `deploy/rbac.yaml` as an operator would, for the service's user.
    async fn apply_rbac(&self) -> anyhow::Result<()> {
        let manifest = include_str!("../../../deploy/rbac.yaml");
        let placeholder = "name: drainwell@PROJECT_ID.iam.gserviceaccount.com";
        ensure!(
            manifest.matches(placeholder).count() == 1,
            "deploy/rbac.yaml lost its placeholder"
        );
        let file = self.folder.join("rbac.yaml");
        std::fs::write(
            &file,
            manifest.replace(placeholder, &format!("name: {SERVICE_USER}")),
        )?;
        self.kubectl(&["apply", "-f", &file.display().to_string()])
            .await
            .map(drop)
    }

    fn spawn(&mut self, name: &'static str, flags: &[String]) -> anyhow::Result<()> {
        let program = self.assets.join(name);
        ensure!(
            program.exists(),
            "there is no {name} in {}",
            self.assets.display()
        );
        let log = self.folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let leash = leash::command(&program)
            .args(flags)
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        self.components.push(Component { name, log, leash });
        Ok(())
    }
}
