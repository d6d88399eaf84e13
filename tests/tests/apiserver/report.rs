//! What the API tells of a pod's end.

use anyhow::{Context as _, ensure};
use drainwell_tests::fixture::{PodSpec, ongoing, terminate};
use drainwell_tests::wait::{eventually, millis, secs};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;

use super::{Scene, outcome};

async fn reported(scene: &Scene, state: &str) -> Value {
    eventually(secs(40), "the pod is reported so", async || {
        let answer = scene.service.get("/api/v1/maintenances").await?;
        let pod = answer.body["maintenances"][0]["tiers"][0]["pods"][0].clone();
        ensure!(pod["state"] == state, "{pod}");
        Ok(pod)
    })
    .await
}

#[tokio::test]
async fn a_pod_cut_short_is_told_as_evicted_when_it_was_evicted() {
    // A stop's deadline is assumed, and shortens nothing; the maintenance that
    // is told of later has a known one.
    let scene = Scene::new("windows: { gpu: 20s }").await;
    let pod = PodSpec::new("train").node(&scene.node.name).grace_s(3600);
    let pod = pod.shutdown_ms(3_600_000);
    let pod = scene.cluster.add_pod(&pod).await.unwrap();
    let stop = terminate(&scene.node.vm(), Timestamp::now());
    assert_eq!(outcome(&scene.push(&stop).await).0, "marked");
    let first = reported(&scene, "evicted").await;
    let told_at: Timestamp = first["evicted_at"].as_str().unwrap().parse().unwrap();
    // The two moments must differ.
    eventually(secs(5), "a second has passed", async || {
        ensure!(Timestamp::now().duration_since(told_at) > millis(1100).try_into()?);
        Ok(())
    })
    .await;
    let now = Timestamp::now();
    let answer = scene.push(&ongoing(&scene.node.vm(), now)).await;
    assert_eq!(outcome(&answer).0, "updated");
    let uid = pod.uid().unwrap();
    let left = eventually(secs(40), "it is cut short", async || {
        let left = scene.cluster.kubelet.departure(&uid);
        left.context("it is there")
    })
    .await;
    // What is left then, and the second or two since it was told first: the API
    // server counts from there.
    assert!(left.killed && left.grace_s <= 22, "{left:?}");
    assert_eq!(scene.cluster.audit.count("delete pods"), 1);
    let last = reported(&scene, "gone").await;
    assert_eq!(last["evicted_at"], first["evicted_at"]);
    let gone_at: Timestamp = last["gone_at"].as_str().unwrap().parse().unwrap();
    assert!(gone_at > told_at);
}
