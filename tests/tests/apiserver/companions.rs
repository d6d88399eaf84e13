//! Others at work on the same nodes: another component that fights for the
//! marks, and a second instance of the service.

use anyhow::ensure;
use drainwell_tests::fixture::{Amount, BudgetSpec, PodSpec, completed};
use drainwell_tests::wait::{eventually, secs};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{MANAGED, Scene, UNHURRIED, marked, outcome, tainted};

impl Scene {
    /// Takes the taint away, as GKE's own handler does while its metadata
    /// says that there is no maintenance.
    async fn strip_taint(&self) {
        let none = Patch::Merge(json!({"spec": {"taints": null}}));
        let (nodes, params) = (self.cluster.nodes(), PatchParams::default());
        nodes.patch(&self.node.name, &params, &none).await.unwrap();
    }
}

#[tokio::test]
async fn a_taint_that_another_took_away_is_put_back_while_the_drain_goes_on() {
    let scene = Scene::new(UNHURRIED).await;
    let slow = PodSpec::new("slow")
        .node(&scene.node.name)
        .grace_s(60)
        .shutdown_ms(4000);
    let slow = scene.cluster.add_pod(&slow).await.unwrap();
    scene.begin().await;
    scene.strip_taint().await;
    scene.service.tick().await.unwrap();
    eventually(secs(20), "the taint is back", async || {
        ensure!(tainted(&scene.node().await));
        Ok(())
    })
    .await;
    assert_eq!(scene.intent().await["reasserted"], 1);
    eventually(secs(5), "it is told", async || {
        ensure!(scene.service.log_of("marks_reasserted").len() == 1);
        Ok(())
    })
    .await;
    scene.is_gone(&slow, 20).await;
    // Ours, so it comes off in the end.
    scene.cluster.compute.set_maintenance(
        &scene.node.name,
        drainwell_tests::compute::Maintenance::None,
    );
    scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    scene.is_unmarked(20).await;
}

#[tokio::test]
async fn two_instances_at_once_do_no_harm() {
    let scene = Scene::new("windows: { gpu: 10m }\npatience: { gpu: 3s }").await;
    let cluster = &scene.cluster;
    let second = cluster
        .service()
        .policy("windows: { gpu: 10m }\npatience: { gpu: 3s }");
    let second = second.start().await.unwrap();
    let on = |name: &str| PodSpec::new(name).node(&scene.node.name).grace_s(45);
    let web = cluster.add_pod(&on("web")).await.unwrap();
    let train = cluster
        .add_pod(&on("train").shutdown_ms(1500))
        .await
        .unwrap();
    let system = cluster
        .add_pod(&on("dns").namespace("kube-system"))
        .await
        .unwrap();
    cluster
        .add_budget(&BudgetSpec::new("web", Amount::MinAvailable(1)), 1)
        .await
        .unwrap();
    let entry = drainwell_tests::fixture::ongoing(&scene.node.vm(), scene.since);
    let (one, two) = tokio::join!(scene.begin(), second.push_wrapped(&entry));
    let mut told = [outcome(&one).0, outcome(&two.unwrap()).0];
    told.sort();
    assert_eq!(told, ["marked", "unchanged"]);
    scene.is_gone(&system, 40).await;
    cluster.journal.catch_up().await;
    let uids = |pods: &[&k8s_openapi::api::core::v1::Pod]| super::uids(pods);
    cluster
        .journal
        .ensure_order(&uids(&[&web, &train]), &uids(&[&system]))
        .unwrap();
    for pod in [&web, &train, &system] {
        let left = cluster.kubelet.departure(&pod.uid().unwrap()).unwrap();
        assert_eq!(left.grace_s, 45, "nobody's grace was cut by a second call");
    }
    assert!(marked(&scene.node().await));
}

#[tokio::test]
async fn a_node_that_lost_its_managed_label_is_found_again_by_the_next_notice() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    let gone = Patch::Merge(json!({"metadata": {"labels": {MANAGED: null}}}));
    let (nodes, params) = (scene.cluster.nodes(), PatchParams::default());
    nodes.patch(&scene.node.name, &params, &gone).await.unwrap();
    assert_eq!(outcome(&scene.begin().await).0, "unchanged");
    let node = scene.node().await;
    assert_eq!(node.labels().get(MANAGED).map(String::as_str), Some("true"));
    assert!(marked(&node));
}
