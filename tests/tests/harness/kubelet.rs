//! The kubelets, and the journal of what they do.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use drainwell_tests::fixture::{NodeSpec, PodSpec};
use drainwell_tests::journal::Change;
use drainwell_tests::lease;
use drainwell_tests::wait::{always, eventually, millis, secs};
use kube::ResourceExt as _;
use kube::api::DeleteParams;

#[tokio::test]
async fn an_evicted_pod_leaves_after_its_shutdown_time_with_its_grace() -> Result<()> {
    let cluster = lease().await;
    cluster.add_node(&NodeSpec::gpu("n1")).await?;
    let pod = cluster
        .add_pod(&PodSpec::new("slow").node("n1").shutdown_ms(700))
        .await?;
    let started = Instant::now();
    cluster.evict(&pod, Some(20)).await?;
    let uid = pod.uid().context("no uid")?;
    let gone = eventually(secs(10), "the pod is gone", async || {
        cluster.kubelet.departure(&uid).context("it is still there")
    });
    let gone = gone.await;
    ensure!(
        started.elapsed() >= millis(700),
        "it left after {:?}",
        started.elapsed()
    );
    assert_eq!((gone.grace_s, gone.killed), (20, false));
    let condition = gone.disruption_target.context("no DisruptionTarget")?;
    assert_eq!(condition.reason.as_deref(), Some("EvictionByEvictionAPI"));

    cluster.journal.catch_up().await;
    let versions = cluster.journal.pod(&uid);
    assert_eq!(
        versions.first().map(|seen| seen.change),
        Some(Change::Added)
    );
    assert_eq!(
        versions.last().map(|seen| seen.change),
        Some(Change::Deleted)
    );
    let asked = cluster
        .journal
        .asked_to_leave(&uid)
        .context("never asked to leave")?;
    let gone = cluster.journal.gone(&uid).context("never gone")?;
    ensure!(
        asked.version < gone.version,
        "{} {}",
        asked.version,
        gone.version
    );
    Ok(())
}

#[tokio::test]
async fn a_pod_is_killed_when_its_grace_is_over_even_if_that_was_shortened_later() -> Result<()> {
    let cluster = lease().await;
    cluster.add_node(&NodeSpec::gpu("n1")).await?;
    let spec = PodSpec::new("stubborn")
        .node("n1")
        .grace_s(600)
        .shutdown_ms(600_000);
    let pod = cluster.add_pod(&spec).await?;
    let pods = cluster.pods("default");
    pods.delete("stubborn", &DeleteParams::default()).await?;
    always(millis(300), "it uses its grace", async || {
        pods.get("stubborn").await?;
        Ok(())
    })
    .await;
    pods.delete("stubborn", &DeleteParams::default().grace_period(1))
        .await?;
    let uid = pod.uid().context("no uid")?;
    let gone = eventually(secs(10), "it is killed", async || {
        cluster.kubelet.departure(&uid).context("it is still there")
    });
    let gone = gone.await;
    assert_eq!((gone.grace_s, gone.killed), (1, true));
    assert_eq!(gone.disruption_target, None);
    Ok(())
}

#[tokio::test]
async fn a_halted_kubelet_neither_starts_nor_ends_pods() -> Result<()> {
    let cluster = lease().await;
    cluster.add_node(&NodeSpec::gpu("n1")).await?;
    let pod = cluster.add_pod(&PodSpec::new("stuck").node("n1")).await?;
    cluster.kubelet.halt("n1");
    cluster
        .pods("default")
        .delete("stuck", &DeleteParams::default())
        .await?;
    let uid = pod.uid().context("no uid")?;
    always(millis(500), "it stays", async || {
        ensure!(cluster.kubelet.departure(&uid).is_none(), "it went");
        Ok(())
    })
    .await;
    cluster.kubelet.resume("n1");
    eventually(secs(5), "it goes", async || {
        cluster.kubelet.departure(&uid).context("it is still there")
    })
    .await;

    let node = cluster.kubelet.set_node_ready("n1", false).await?;
    let node_status = node.status.context("no status")?;
    assert_eq!(
        node_status.conditions.context("no conditions")?[0].status,
        "Unknown"
    );
    let node = cluster.kubelet.set_boot_id("n1", "another").await?;
    assert_eq!(
        node.status
            .and_then(|s| s.node_info)
            .context("no info")?
            .boot_id,
        "another"
    );
    let node = cluster
        .kubelet
        .set_capacity("n1", "google.com/tpu", 4)
        .await?;
    let capacity = node
        .status
        .and_then(|s| s.capacity)
        .context("no capacity")?;
    assert_eq!(capacity["google.com/tpu"].0, "4");
    assert_eq!(capacity["nvidia.com/gpu"].0, "8");
    Ok(())
}
