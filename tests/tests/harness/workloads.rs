//! Budgets, the real controllers, and what pods the API server accepts.

use anyhow::{Context as _, Result, ensure};
use drainwell_tests::fixture::{
    Amount, BudgetSpec, NodeSpec, PodSpec, daemon_set, deployment, job, ongoing, unwrap, wrap,
};
use drainwell_tests::wait::{eventually, secs};
use drainwell_tests::{lease, owner};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

#[tokio::test]
async fn a_budget_without_room_refuses_an_eviction() -> Result<()> {
    let cluster = lease().await;
    cluster.add_node(&NodeSpec::gpu("n1")).await?;
    let pod = cluster.add_pod(&PodSpec::new("web").node("n1")).await?;
    let budget = cluster
        .add_budget(&BudgetSpec::new("web", Amount::MinAvailable(1)), 1)
        .await?;
    assert_eq!(budget.status.context("no status")?.disruptions_allowed, 0);
    let Err(kube::Error::Api(refusal)) = cluster.evict(&pod, None).await else {
        anyhow::bail!("the eviction was allowed");
    };
    let details = refusal.details.context("no details")?;
    assert_eq!(
        (refusal.code, details.causes[0].reason.as_str()),
        (429, "DisruptionBudget")
    );
    Ok(())
}

#[tokio::test]
async fn controllers_make_pods_and_the_scheduler_places_them() -> Result<()> {
    let cluster = lease().await;
    cluster.namespace("batch").await?;
    cluster.add_node(&NodeSpec::gpu("a1").pool("a")).await?;
    cluster.add_node(&NodeSpec::gpu("a2").pool("a")).await?;
    cluster.add_node(&NodeSpec::plain("b1").pool("b")).await?;
    cluster
        .create(&deployment(&PodSpec::new("web").pool("b"), 2))
        .await?;
    cluster
        .create(&daemon_set(&PodSpec::new("agent").pool("a")))
        .await?;
    let train = PodSpec::new("train")
        .namespace("batch")
        .pool("a")
        .shutdown_ms(100);
    cluster.create(&job(&train, 3)).await?;

    let on = |pods: &[Pod]| -> Vec<String> {
        pods.iter()
            .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
            .collect()
    };
    assert_eq!(
        on(&cluster.ready_pods("default", "web", 2).await),
        ["b1", "b1"]
    );
    let mut agents = on(&cluster.ready_pods("default", "agent", 2).await);
    agents.sort();
    assert_eq!(agents, ["a1", "a2"]);
    let ranks = cluster.ready_pods("batch", "train", 3).await;
    ensure!(ranks.iter().all(|pod| {
        pod.annotations()["batch.kubernetes.io/job-completion-index"]
            .parse::<u8>()
            .is_ok()
    }));

    // An eviction is no failure of this Job: the rank comes back.
    cluster.evict(&ranks[0], None).await?;
    let lost = ranks[0].uid();
    eventually(secs(60), "the rank is replaced", async || {
        let pods = cluster.ready_pods("batch", "train", 3).await;
        ensure!(pods.iter().all(|pod| pod.uid() != lost), "not yet");
        Ok(())
    })
    .await;
    let job = cluster.api::<Job>("batch").get("train").await?;
    assert_eq!(job.status.and_then(|status| status.failed), None);
    Ok(())
}

#[tokio::test]
async fn every_kind_of_pod_that_tests_need_is_accepted() -> Result<()> {
    let cluster = lease().await;
    let node = cluster.add_node(&NodeSpec::tpu("t1", "2x4", 4)).await?;
    let critical = PodSpec::new("critical")
        .node("t1")
        .priority_class("system-node-critical");
    let pod = cluster.add_pod(&critical).await?;
    assert_eq!(pod.spec.and_then(|spec| spec.priority), Some(2_000_001_000));
    let mut mirror = PodSpec::new("mirror").node("t1").mirror();
    mirror.owners.extend(owner(&node));
    assert_eq!(
        cluster.add_pod(&mirror).await?.owner_references()[0].kind,
        "Node"
    );
    cluster
        .add_pod(&PodSpec::new("unready").node("t1").unready())
        .await?;
    let instant = PodSpec::new("instant")
        .node("t1")
        .grace_s(0)
        .tolerates_everything();
    cluster.add_pod(&instant.tolerates_termination()).await?;
    let held = PodSpec::new("held")
        .node("t1")
        .finalizer("drainwell.dev/test");
    cluster.add_pod(&held.label("role", "leader")).await?;
    let done = cluster.add_pod(&PodSpec::new("done").node("t1")).await?;
    let done = cluster.kubelet.finish(&done, true).await?;
    assert_eq!(
        done.status.and_then(|status| status.phase).as_deref(),
        Some("Succeeded")
    );
    Ok(())
}

#[test]
fn an_entry_survives_its_envelope() -> Result<()> {
    let vm = NodeSpec::gpu("n1").vm();
    let entry = ongoing(&vm, "2026-11-02T03:04:05.678Z".parse()?);
    assert_eq!(unwrap(&wrap(&entry))?, entry);
    assert_eq!(
        entry["resource"]["labels"]["instance_id"],
        vm.id.to_string()
    );
    assert_eq!(entry["receiveTimestamp"], "2026-11-02T03:04:06.028Z");
    Ok(())
}
