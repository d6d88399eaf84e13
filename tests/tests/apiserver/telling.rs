//! What users can see of a drain besides its log: Events and metrics.

use std::collections::BTreeMap;

use anyhow::ensure;
use axum::http::Method;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{Amount, BudgetSpec, PodSpec, completed};
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::wait::{eventually, secs};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::{Scene, UNHURRIED, outcome};

/// A budget is waited for so short a time that the test needn't wait long.
const IMPATIENT: &str = "windows: { gpu: 10m }\npatience: { gpu: 4s }";

impl Scene {
    /// Our Events: on whom, why, of which type.
    async fn events(&self) -> BTreeMap<(String, String), String> {
        let mut found = BTreeMap::new();
        for namespace in ["default", "kube-system"] {
            let events = self.cluster.api::<Event>(namespace);
            for event in events.list(&ListParams::default()).await.unwrap() {
                if event.reporting_controller.as_deref() != Some("drainwell.dev/service") {
                    continue;
                }
                let about = event.regarding.unwrap_or_default().name.unwrap_or_default();
                let reason = event.reason.unwrap_or_default();
                let before = found.insert((about, reason), event.type_.unwrap_or_default());
                assert_eq!(before, None, "told twice: {:?}", event.metadata.name);
            }
        }
        found
    }

    /// Waits until the Events on `about` are these, by their first letter of type.
    async fn has_events(&self, about: &str, reasons: &[&str]) {
        let what = format!("{about} has the events {reasons:?}");
        eventually(secs(20), &what, async || {
            let all = self.events().await;
            let mine = all.iter().filter(|((name, _), _)| name == about);
            let mine: Vec<_> = mine
                .map(|((_, reason), kind)| format!("{reason} {kind}"))
                .collect();
            ensure!(mine == reasons, "{mine:?}");
            Ok(())
        })
        .await;
    }

    async fn pod(&self, spec: PodSpec) -> Pod {
        self.cluster
            .add_pod(&spec.node(&self.node.name))
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn a_drain_is_told_on_its_node_and_its_pods_as_events_and_only_once() {
    let mut scene = Scene::new(IMPATIENT).await;
    let train = scene.pod(PodSpec::new("train")).await;
    let long = scene.pod(PodSpec::new("long").grace_s(3600)).await;
    let web = scene.pod(PodSpec::new("web")).await;
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    scene.cluster.add_budget(&budget, 1).await.unwrap();

    assert_eq!(outcome(&scene.begin().await).0, "marked");
    for pod in [&train, &long, &web] {
        scene.is_gone(pod, 30).await;
    }
    scene.has_events("train", &["Evicted Normal"]).await;
    scene
        .has_events("long", &["Evicted Normal", "GraceShortened Warning"])
        .await;
    scene
        .has_events("web", &["EvictionBlocked Warning", "Forced Warning"])
        .await;
    let node = scene.node.name.clone();
    let during = [
        "DrainCompleted Normal",
        "MaintenanceStarted Normal",
        "TierStarted Normal",
    ];
    scene.has_events(&node, &during).await;

    // Another process tells the beginning again, under the same name.
    scene.service.kill9().await.unwrap();
    scene.service.restart().await.unwrap();
    eventually(secs(20), "an Event is there already", async || {
        let calls = scene.cluster.audit.calls();
        let again = |call: &&drainwell_tests::audit::Call| {
            call.what() == "create events" && call.code == 409
        };
        ensure!(calls.iter().find(again).is_some());
        Ok(())
    })
    .await;

    scene
        .cluster
        .compute
        .set_maintenance(&scene.node.name, Maintenance::None);
    let over = completed(&scene.node.vm(), Timestamp::now());
    assert_eq!(outcome(&scene.push(&over).await).0, "completed");
    let after = [
        "DrainCompleted Normal",
        "MaintenanceEnded Normal",
        "MaintenanceStarted Normal",
        "TierStarted Normal",
    ];
    scene.has_events(&node, &after).await;
}

#[tokio::test]
async fn kubectl_describe_shows_the_events() {
    let scene = Scene::new(UNHURRIED).await;
    let stays = PodSpec::new("train").shutdown_ms(60_000);
    let train = scene.pod(stays).await;
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    scene.has_events("train", &["Evicted Normal"]).await;
    let plane = &scene.cluster.plane;
    let pod = plane
        .kubectl(&["describe", "pod", &train.name_any()])
        .await
        .unwrap();
    assert!(
        pod.contains("Pod default/train of tier workload is evicted, with 30 s"),
        "{pod}"
    );
    let node = plane
        .kubectl(&["describe", "node", &scene.node.name])
        .await
        .unwrap();
    assert!(node.contains("the node is drained"), "{node}");
}

#[tokio::test]
async fn events_that_cannot_be_written_cost_no_pod_its_turn() {
    let scene = Scene::new(UNHURRIED).await;
    let pods = [
        scene.pod(PodSpec::new("train")).await,
        scene
            .pod(PodSpec::new("dns").namespace("kube-system"))
            .await,
    ];
    scene
        .cluster
        .proxy
        .fail(On::new(Method::POST, "/events"), Fault::Hang);
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    for pod in &pods {
        scene.is_gone(pod, 10).await;
    }
    assert_eq!(scene.events().await, BTreeMap::new());
}

#[tokio::test]
async fn what_happens_is_counted() {
    let scene = Scene::new(IMPATIENT).await;
    let long = scene.pod(PodSpec::new("long").grace_s(3600)).await;
    let web = scene.pod(PodSpec::new("web")).await;
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    scene.cluster.add_budget(&budget, 1).await.unwrap();
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    for pod in [&long, &web] {
        scene.is_gone(pod, 30).await;
    }
    let expected = [
        "drainwell_notices_total{source=\"pubsub\",phase=\"ongoing\",outcome=\"marked\"} 1",
        "drainwell_time_to_mark_seconds_count 1",
        "drainwell_maintenances{phase=\"ongoing\"} 1",
        "drainwell_pods_total{tier=\"workload\",result=\"evicted\"} 1",
        "drainwell_pods_total{tier=\"workload\",result=\"blocked\"} 1",
        "drainwell_pods_total{tier=\"workload\",result=\"forced\"} 1",
        "drainwell_pods_total{tier=\"workload\",result=\"gone\"} 2",
        "drainwell_drain_seconds_count{result=\"completed\"} 1",
        "drainwell_deadline_margin_seconds_count 1",
        "drainwell_grace_shortened_total 1",
        "drainwell_api_requests_total{api=\"kubernetes\",verb=\"evict\",code=\"429\"}",
        "drainwell_api_requests_total{api=\"compute\",verb=\"get\",code=\"200\"}",
        "drainwell_pass_seconds_count",
        "drainwell_queue_depth 0",
        "drainwell_build_info{version=",
    ];
    eventually(secs(10), "all of it is counted", async || {
        let text = scene.service.get("/metrics").await?.body;
        let text = text.as_str().unwrap_or_default().to_owned();
        for line in expected {
            ensure!(text.contains(line), "no {line} in:\n{text}");
        }
        ensure!(text.ends_with("# EOF\n"));
        Ok(())
    })
    .await;
}
