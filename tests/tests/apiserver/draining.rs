//! Which pods go, in which order, and which stay.

use anyhow::ensure;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{NodeSpec, PodSpec, daemon_set};
use drainwell_tests::wait::{always, eventually, millis, secs};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Scene, TAINT, UNHURRIED, intent, marked, outcome, taints, uids, unmarked};

/// A stop that takes a while: a tier that didn't wait for it would show.
const SLOW_STOP_MS: u64 = 700;

/// A node with pods of every kind, cordoned and with a taint by others.
struct Full {
    scene: Scene,
    /// Pods by tier, in the order in which they are to leave.
    leave: [Vec<Pod>; 3],
    stay: Vec<Pod>,
}

async fn full() -> Full {
    let mut node = NodeSpec::gpu("gke-train-a3-0001");
    node.unschedulable = true;
    let scene = Scene::with(UNHURRIED, node).await;
    let cluster = &scene.cluster;
    let other = NodeSpec::gpu("gke-train-a3-0002");
    cluster.add_node(&other).await.unwrap();
    let foreign = json!([{"op": "add", "path": "/spec/taints",
        "value": [{"key": "example.com/burn-in", "effect": "PreferNoSchedule"}]}]);
    let foreign: Patch<()> = Patch::Json(serde_json::from_value(foreign).unwrap());
    let params = PatchParams::default();
    cluster
        .nodes()
        .patch(&scene.node.name, &params, &foreign)
        .await
        .unwrap();

    let on = |name: &str| {
        PodSpec::new(name)
            .node(&scene.node.name)
            .shutdown_ms(SLOW_STOP_MS)
    };
    let train = cluster.add_pod(&on("train-0")).await.unwrap();
    let web = cluster
        .add_pod(&on("web").tolerates_termination())
        .await
        .unwrap();
    let system = cluster
        .add_pod(&on("dns").namespace("kube-system"))
        .await
        .unwrap();
    let mirror = on("proxy").namespace("kube-system").mirror();
    let mirror = cluster.add_pod(&mirror).await.unwrap();
    let done = cluster.add_pod(&on("done")).await.unwrap();
    let done = cluster.kubelet.finish(&done, true).await.unwrap();
    let elsewhere = PodSpec::new("train-1").node(&other.name);
    let elsewhere = cluster.add_pod(&elsewhere).await.unwrap();
    let logs = PodSpec::new("logs").shutdown_ms(SLOW_STOP_MS);
    cluster.create(&daemon_set(&logs)).await.unwrap();
    let driver = PodSpec::new("driver").tolerates_everything();
    cluster.create(&daemon_set(&driver)).await.unwrap();
    let here = |pods: Vec<Pod>| {
        let name = Some(scene.node.name.as_str());
        let mut pods = pods.into_iter();
        pods.find(|p| p.spec.as_ref().unwrap().node_name.as_deref() == name)
            .unwrap()
    };
    let logs = here(cluster.ready_pods("default", "logs", 2).await);
    let driver = here(cluster.ready_pods("default", "driver", 2).await);
    let leave = [vec![train, web], vec![logs], vec![system]];
    Full {
        scene,
        leave,
        stay: vec![mirror, done, elsewhere, driver],
    }
}

#[tokio::test]
async fn tiers_leave_in_order_and_everything_else_stays() {
    let Full {
        scene,
        leave: [first, second, third],
        stay,
    } = full().await;
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    scene.is_gone(&third[0], 30).await;
    let journal = &scene.cluster.journal;
    journal.catch_up().await;
    let uids = |pods: &[Pod]| uids(&pods.iter().collect::<Vec<_>>());
    journal.ensure_order(&uids(&first), &uids(&second)).unwrap();
    journal.ensure_order(&uids(&second), &uids(&third)).unwrap();
    for uid in uids(&stay) {
        assert!(
            journal.asked_to_leave(&uid).is_none(),
            "{uid} was told to stop"
        );
    }
    eventually(
        secs(10),
        "the drain is recorded and told as complete",
        async || {
            ensure!(scene.intent().await["drained_at"].is_string());
            ensure!(scene.service.log_of("drain_completed").len() == 1);
            Ok(())
        },
    )
    .await;
    assert!(
        marked(&scene.node().await),
        "marks stay while the maintenance is on"
    );
    assert_eq!(scene.service.log_of("tier_started").len(), 3);
    let other = scene
        .cluster
        .nodes()
        .get("gke-train-a3-0002")
        .await
        .unwrap();
    assert!(unmarked(&other));
}

#[tokio::test]
async fn what_others_put_on_the_node_is_there_before_during_and_after() {
    let Full { scene, leave, .. } = full().await;
    let theirs = |node: &Node| {
        let taint = taints(node)
            .iter()
            .any(|(key, _)| key == "example.com/burn-in");
        taint && node.spec.as_ref().unwrap().unschedulable == Some(true)
    };
    assert!(theirs(&scene.node().await));
    scene.begin().await;
    scene.is_gone(&leave[2][0], 30).await;
    let during = scene.node().await;
    assert!(theirs(&during) && marked(&during));
    scene
        .cluster
        .compute
        .set_maintenance(&scene.node.name, Maintenance::None);
    scene
        .cluster
        .kubelet
        .set_boot_id(&scene.node.name, "boot-after")
        .await
        .unwrap();
    scene.is_unmarked(70).await;
    let after = scene.node().await;
    assert!(theirs(&after));
    assert!(taints(&after).iter().all(|(key, _)| key != TAINT));
}

#[tokio::test]
async fn an_eviction_is_one_call_a_pod_and_pods_are_never_listed_cluster_wide() {
    let scene = Scene::new(UNHURRIED).await;
    let mut pods = Vec::new();
    for n in 0..12 {
        let spec = PodSpec::new(&format!("train-{n}")).node(&scene.node.name);
        pods.push(scene.cluster.add_pod(&spec).await.unwrap());
    }
    scene.begin().await;
    for pod in &pods {
        scene.is_gone(pod, 30).await;
    }
    let calls = scene.cluster.audit.calls();
    assert_eq!(
        scene.cluster.audit.count("create pods/eviction"),
        12,
        "{calls:?}"
    );
    assert_eq!(scene.cluster.audit.count("delete pods"), 0);
    assert_eq!(scene.cluster.audit.count("get pods"), 0);
    for call in calls
        .iter()
        .filter(|c| c.resource == "pods" && c.verb == "list")
    {
        assert!(
            call.uri.contains("fieldSelector=spec.nodeName"),
            "{}",
            call.uri
        );
        assert!(!call.uri.contains("resourceVersion=0"), "{}", call.uri);
    }
}

#[tokio::test]
async fn pods_get_the_grace_they_ask_for_and_no_more_than_what_remains() {
    let scene = Scene::new("windows: { gpu: 60s }").await;
    let on = |name: &str| PodSpec::new(name).node(&scene.node.name);
    let short = scene
        .cluster
        .add_pod(&on("short").grace_s(7))
        .await
        .unwrap();
    let long = scene
        .cluster
        .add_pod(&on("long").grace_s(3600))
        .await
        .unwrap();
    scene.begin().await;
    for pod in [&short, &long] {
        scene.is_gone(pod, 30).await;
    }
    let grace = |pod: &Pod| {
        scene
            .cluster
            .kubelet
            .departure(&pod.uid().unwrap())
            .unwrap()
            .grace_s
    };
    assert_eq!(grace(&short), 7);
    assert!((30..60).contains(&grace(&long)), "{} s", grace(&long));
    let told = scene.service.log_of("grace_shortened");
    assert_eq!(told.len(), 1, "{told:?}");
    let message = told[0]["message"].as_str().unwrap();
    assert!(
        message.contains("default/long") && message.contains("3600"),
        "{message}"
    );
}

#[tokio::test]
async fn a_successor_of_the_same_name_is_not_touched() {
    // The service's lists come late: it believes in a pod that has been replaced.
    let scene = Scene::new(UNHURRIED).await;
    let spec = PodSpec::new("train-0").node(&scene.node.name);
    let old = scene.cluster.add_pod(&spec).await.unwrap();
    let evictions = drainwell_tests::proxy::On::new(axum::http::Method::POST, "/eviction");
    let delay = drainwell_tests::proxy::Fault::Delay(millis(8000));
    scene.cluster.proxy.fail_times(1, evictions.clone(), delay);
    scene.begin().await;
    eventually(secs(10), "the eviction is under way", async || {
        ensure!(scene.cluster.proxy.count(&evictions) > 0);
        Ok(())
    })
    .await;
    let now = kube::api::DeleteParams {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    scene
        .cluster
        .pods("default")
        .delete("train-0", &now)
        .await
        .unwrap();
    scene.is_gone(&old, 10).await;
    // On another node, so that it is none of the drain's business.
    let other = NodeSpec::gpu("gke-train-a3-0002");
    scene.cluster.add_node(&other).await.unwrap();
    let new = scene
        .cluster
        .add_pod(&PodSpec::new("train-0").node(&other.name))
        .await
        .unwrap();
    let pods = scene.cluster.pods("default");
    always(secs(10), "the successor stays", async || {
        let there = pods.get("train-0").await?;
        ensure!(there.uid() == new.uid() && there.metadata.deletion_timestamp.is_none());
        Ok(())
    })
    .await;
    let calls = scene.cluster.audit.calls();
    let conflicts = calls
        .iter()
        .filter(|c| c.subresource == "eviction" && c.code == 409)
        .count();
    assert_eq!(
        conflicts, 1,
        "the UID precondition was not needed: {calls:?}"
    );
}

#[tokio::test]
async fn a_pod_bound_after_the_marks_is_evicted_too() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    let late = PodSpec::new("late").node(&scene.node.name).shutdown_ms(300);
    let late = scene.cluster.create(&late.pod()).await.unwrap();
    scene.is_gone(&late, 30).await;
}

#[tokio::test]
async fn a_skip_set_in_mid_drain_stops_evictions_and_takes_the_marks_off() {
    let scene = Scene::new(UNHURRIED).await;
    let on = |name: &str| PodSpec::new(name).node(&scene.node.name);
    let slow = scene
        .cluster
        .add_pod(&on("slow").grace_s(60).shutdown_ms(8000))
        .await
        .unwrap();
    let system = scene
        .cluster
        .add_pod(&on("dns").namespace("kube-system"))
        .await
        .unwrap();
    scene.begin().await;
    let skip = json!({"metadata": {"annotations": {"drainwell.dev/skip": "true"}}});
    let params = PatchParams::default();
    scene
        .cluster
        .nodes()
        .patch(&scene.node.name, &params, &Patch::Merge(skip))
        .await
        .unwrap();
    scene.is_gone(&slow, 30).await;
    scene.is_unmarked(30).await;
    scene.cluster.journal.catch_up().await;
    assert!(
        scene
            .cluster
            .journal
            .asked_to_leave(&system.uid().unwrap())
            .is_none()
    );
}

#[tokio::test]
async fn the_api_shows_the_drain() {
    let scene = Scene::new(UNHURRIED).await;
    let slow = PodSpec::new("slow")
        .node(&scene.node.name)
        .grace_s(60)
        .shutdown_ms(8000);
    let slow = scene.cluster.add_pod(&slow).await.unwrap();
    scene.begin().await;
    let shown = eventually(secs(10), "the pod is shown as evicted", async || {
        let answer = scene.service.get("/api/v1/maintenances").await?;
        let maintenance = answer.body["maintenances"][0].clone();
        ensure!(
            maintenance["tiers"][0]["pods"][0]["state"] == "evicted",
            "{maintenance}"
        );
        Ok(maintenance)
    })
    .await;
    assert_eq!(shown["node"], json!(scene.node.name));
    assert_eq!(
        shown["instance_id"],
        json!(scene.node.instance_id.to_string())
    );
    assert_eq!(shown["key"], intent(&scene.node().await)["key"]);
    assert_eq!(shown["tiers"][0]["state"], "draining");
    assert_eq!(shown["tiers"][0]["pods"][0]["grace_s"], 60);
    scene.is_gone(&slow, 30).await;
}
