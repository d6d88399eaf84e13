//! The control plane, its audit log, and the lease on it.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use drainwell_tests::fixture::{Amount, BudgetSpec, NodeSpec, PodSpec, deployment, job};
use drainwell_tests::wait::{eventually, secs};
use drainwell_tests::{control_plane, lease};
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::code;

/// What `deploy/rbac.yaml` grants. It stands here once more so that a change of
/// the manifest is a change of this list too.
const GRANTED: [&str; 11] = [
    "create events.k8s.io/events",
    "create pods/eviction",
    "delete pods",
    "get nodes",
    "list nodes",
    "list pods",
    "list policy/poddisruptionbudgets",
    "patch nodes",
    "patch pods/status",
    "watch pods",
    "watch policy/poddisruptionbudgets",
];

#[tokio::test]
async fn the_service_may_do_what_the_manifest_says_and_no_more() -> Result<()> {
    let cluster = lease().await;
    let service = cluster.plane.as_service().await?;
    let review = serde_json::from_value(json!({ "spec": { "namespace": "default" } }))?;
    let reviews = Api::<SelfSubjectRulesReview>::all(service.clone());
    let review = reviews.create(&PostParams::default(), &review).await?;
    let mut granted = BTreeSet::new();
    for rule in review.status.context("no status")?.resource_rules {
        for group in rule.api_groups.unwrap_or_default() {
            let prefix = if group.is_empty() {
                group.clone()
            } else {
                format!("{group}/")
            };
            // Everybody may ask who they are and what they may do.
            let reviews = ["authorization.k8s.io", "authentication.k8s.io"];
            for resource in rule.resources.iter().flatten() {
                let verbs = rule
                    .verbs
                    .iter()
                    .filter(|_| !reviews.contains(&group.as_str()));
                granted.extend(verbs.map(|verb| format!("{verb} {prefix}{resource}")));
            }
        }
    }
    assert_eq!(granted, GRANTED.map(str::to_owned).into());

    cluster.add_node(&NodeSpec::plain("kept")).await?;
    let nodes = Api::<Node>::all(service);
    assert_eq!(
        code(nodes.delete("kept", &DeleteParams::default()).await),
        403
    );
    assert_eq!(nodes.get("kept").await?.name_any(), "kept");
    Ok(())
}

#[tokio::test]
async fn the_audit_log_tells_the_services_calls_in_their_order() -> Result<()> {
    let cluster = lease().await;
    cluster.add_node(&NodeSpec::gpu("n1")).await?;
    let nodes = Api::<Node>::all(cluster.plane.as_service().await?);
    nodes.list(&ListParams::default()).await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "seen": "yes" } } }));
    nodes.patch("n1", &PatchParams::default(), &label).await?;
    assert_eq!(
        code(nodes.delete("n1", &DeleteParams::default()).await),
        403
    );
    let calls = cluster.audit.calls();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.what(), call.name.as_str(), call.code))
        .collect();
    let expected = [
        ("list nodes", "", 200),
        ("patch nodes", "n1", 200),
        ("delete nodes", "n1", 403),
    ];
    assert_eq!(
        seen,
        expected.map(|(what, name, code)| (what.to_owned(), name, code))
    );
    assert_eq!(cluster.audit.count("patch nodes"), 1);
    assert_eq!(cluster.audit.writes().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_lease_begins_with_an_empty_cluster() -> Result<()> {
    for _ in 0..2 {
        let cluster = lease().await;
        let everything = ListParams::default();
        assert_eq!(cluster.nodes().list(&everything).await?.items.len(), 0);
        assert_eq!(
            Api::<Pod>::all(cluster.admin.clone())
                .list(&everything)
                .await?
                .items
                .len(),
            0
        );
        cluster
            .add_node(&NodeSpec::gpu("left").pool("left"))
            .await?;
        cluster
            .add_pod(
                &PodSpec::new("left")
                    .node("left")
                    .finalizer("drainwell.dev/x"),
            )
            .await?;
        cluster
            .create(&deployment(&PodSpec::new("web").pool("left"), 2))
            .await?;
        cluster
            .create(&job(&PodSpec::new("train").pool("left"), 2))
            .await?;
        cluster.ready_pods("default", "train", 2).await;
        cluster
            .add_budget(&BudgetSpec::new("web", Amount::MaxUnavailable(1)), 2)
            .await?;
    }
    Ok(())
}

/// Set in the process that is killed: it starts a control plane and waits.
const VICTIM: &str = "DRAINWELL_TESTS_VICTIM";

#[tokio::test]
async fn victim() -> Result<()> {
    if std::env::var_os(VICTIM).is_some() {
        let plane = control_plane::shared().await;
        writeln!(stdout(), "folder={}", plane.folder().display())?;
        std::future::pending().await
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_when_the_tests_are_killed() -> Result<()> {
    let mut victim = Command::new(std::env::current_exe()?)
        .args(["--exact", "control_plane::victim", "--nocapture"])
        .env(VICTIM, "1")
        .env_remove("DRAINWELL_TESTS_KEEP")
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(victim.stdout.take().context("no stdout")?);
    let folder = tokio::task::spawn_blocking(move || {
        let mut lines = output.lines().map_while(Result::ok);
        lines.find_map(|line| Some(PathBuf::from(line.split_once("folder=")?.1)))
    });
    let folder = tokio::time::timeout(secs(240), folder)
        .await??
        .context("it did not start")?;
    ensure!(
        processes_of(&folder)?.len() >= 4,
        "{:?}",
        processes_of(&folder)?
    );
    victim.kill()?;
    victim.wait()?;
    eventually(secs(20), "all processes and files are gone", async || {
        let left = processes_of(&folder)?;
        ensure!(left.is_empty(), "{left:?}");
        ensure!(!folder.exists(), "{} is there", folder.display());
        Ok(())
    })
    .await;
    Ok(())
}

/// Command lines that name this folder.
fn processes_of(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.to_str().context("a strange folder")?;
    let lines = std::fs::read_dir("/proc")?.filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(folder).then_some(line)
    });
    Ok(lines.collect())
}
