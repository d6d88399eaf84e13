//! Disruption budgets: respected for as long as they may be, then not.

use anyhow::ensure;
use axum::http::Method;
use drainwell_tests::fixture::{Amount, BudgetSpec, PodSpec, job};
use drainwell_tests::proxy::On;
use drainwell_tests::wait::{eventually, secs};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{Scene, UNHURRIED, outcome};

async fn held_back(scene: &Scene, grace_s: i64) -> Pod {
    let spec = PodSpec::new("web").node(&scene.node.name).grace_s(grace_s);
    let pod = scene.cluster.add_pod(&spec).await.unwrap();
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    scene.cluster.add_budget(&budget, 1).await.unwrap();
    pod
}

async fn departure(scene: &Scene, pod: &Pod) -> drainwell_tests::kubelet::Departure {
    let uid = pod.uid().unwrap();
    eventually(secs(60), "the pod has left", async || {
        scene
            .cluster
            .kubelet
            .departure(&uid)
            .ok_or_else(|| anyhow::anyhow!("it is there"))
    })
    .await
}

/// Seconds from the scene's beginning to the pod's departure.
fn after_s(scene: &Scene, departure: &drainwell_tests::kubelet::Departure) -> i64 {
    departure.at.duration_since(scene.since).as_secs()
}

#[tokio::test]
async fn a_budget_holds_a_pod_until_patience_ends_and_then_it_is_forced() {
    let policy = "windows: { gpu: 10m }\npatience: { gpu: 12s }";
    let scene = Scene::new(policy).await;
    let pod = held_back(&scene, 33).await;
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    let left = departure(&scene, &pod).await;
    assert!(
        (12..30).contains(&after_s(&scene, &left)),
        "{} s",
        after_s(&scene, &left)
    );
    assert_eq!(left.grace_s, 33);
    let condition = left.disruption_target.expect("it has the condition");
    assert_eq!(condition.status, "True");
    assert_eq!(
        condition.reason.as_deref(),
        Some("TerminationByHostMaintenance")
    );
    assert!(condition.last_transition_time.is_some());
    let blocked = scene.service.log_of("eviction_blocked");
    assert!(!blocked.is_empty());
    let message = blocked[0]["message"].as_str().unwrap();
    assert!(
        message.contains("web needs 1"),
        "names the budget and its need: {message}"
    );
    eventually(secs(5), "it is told", async || {
        ensure!(scene.service.log_of("pod_forced").len() == 1);
        Ok(())
    })
    .await;
    let calls = scene.cluster.audit.calls();
    let order: Vec<String> = calls
        .iter()
        .filter(|c| c.resource == "pods" && matches!(c.verb.as_str(), "patch" | "delete"))
        .map(drainwell_tests::audit::Call::what)
        .collect();
    assert_eq!(order, ["patch pods/status", "delete pods"]);
}

#[tokio::test]
async fn a_budget_holds_a_pod_until_its_latest_start() {
    // 60 s window - 40 s grace: the 20th second; patience would be far longer.
    let scene = Scene::new("windows: { gpu: 60s }\npatience: { gpu: 10m }").await;
    let pod = held_back(&scene, 40).await;
    scene.begin().await;
    let left = departure(&scene, &pod).await;
    assert!(
        (20..32).contains(&after_s(&scene, &left)),
        "{} s",
        after_s(&scene, &left)
    );
    assert!((28..=40).contains(&left.grace_s), "{} s", left.grace_s);
    assert!(left.disruption_target.is_some());
}

#[tokio::test]
async fn with_room_in_the_budget_a_pod_goes_at_once() {
    let scene = Scene::new(UNHURRIED).await;
    let on = |name: &str| {
        PodSpec::new(name)
            .node(&scene.node.name)
            .label("app", "web")
    };
    let first = scene.cluster.add_pod(&on("web-0")).await.unwrap();
    let second = scene.cluster.add_pod(&on("web-1")).await.unwrap();
    let roomy = BudgetSpec::new("roomy", Amount::MinAvailable(0)).app("web");
    scene.cluster.add_budget(&roomy, 2).await.unwrap();
    scene.begin().await;
    for pod in [first, second] {
        scene.is_gone(&pod, 20).await;
    }
    assert_eq!(scene.cluster.audit.count("delete pods"), 0);
}

#[tokio::test]
async fn a_pod_goes_as_soon_as_its_budget_is_freed() {
    let scene = Scene::new(UNHURRIED).await;
    let pod = held_back(&scene, 30).await;
    let free = PodSpec::new("free").node(&scene.node.name);
    let free = scene.cluster.add_pod(&free).await.unwrap();
    scene.begin().await;
    scene.is_gone(&free, 20).await;
    // After the third refusal, it is tried again of itself ten seconds later;
    // the watch that begins then has to tell before.
    let watches = On::new(Method::GET, "poddisruptionbudgets").and("watch=true");
    eventually(
        secs(40),
        "the budget is watched for the third time",
        async || {
            let count = scene.cluster.proxy.count(&watches);
            ensure!(count >= 3, "{count} times");
            Ok(())
        },
    )
    .await;
    let budgets: kube::Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        scene.cluster.api("default");
    let deleted = Timestamp::now();
    budgets
        .delete("web", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    scene.is_gone(&pod, 20).await;
    assert_eq!(
        scene.cluster.audit.count("delete pods"),
        0,
        "evicted, not forced"
    );
    // Ten seconds is how often a budget is tried that nobody told of.
    let left = departure(&scene, &pod).await;
    assert!(
        left.at.duration_since(deleted).as_secs() < 8,
        "the watch told nothing"
    );
}

/// A Job whose policy ignores `DisruptionTarget`, with a failure limit of none.
async fn job_survives(held_back: bool) {
    let scene = Scene::new("windows: { gpu: 10m }\npatience: { gpu: 2s }").await;
    let cluster = &scene.cluster;
    let spec = PodSpec::new("tune").pool(&scene.node.pool).grace_s(20);
    cluster.create(&job(&spec, 1)).await.unwrap();
    let pods = cluster.ready_pods("default", "tune", 1).await;
    if held_back {
        let budget = BudgetSpec::new("tune", Amount::MinAvailable(1));
        cluster.add_budget(&budget, 1).await.unwrap();
    }
    scene.begin().await;
    let left = departure(&scene, &pods[0]).await;
    assert!(left.disruption_target.is_some());
    let deletes = usize::from(held_back);
    assert_eq!(
        cluster.audit.count("delete pods"),
        deletes,
        "forced only when held back"
    );
    let jobs: kube::Api<Job> = cluster.api("default");
    eventually(secs(60), "the Job has made another pod", async || {
        let job = jobs.get("tune").await?;
        let status = job.status.unwrap_or_default();
        ensure!(
            status
                .conditions
                .unwrap_or_default()
                .iter()
                .all(|c| c.type_ != "Failed")
        );
        ensure!(
            status.failed.unwrap_or(0) == 0,
            "the pod was counted as failed"
        );
        let all = cluster
            .pods("default")
            .list(&kube::api::ListParams::default())
            .await?;
        ensure!(
            all.iter().any(|p| p.uid() != pods[0].uid()),
            "no successor yet"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_job_spends_none_of_its_failures_on_an_eviction() {
    job_survives(false).await;
}

#[tokio::test]
async fn a_job_spends_none_of_its_failures_on_a_force() {
    job_survives(true).await;
}

#[tokio::test]
async fn a_stopping_host_waits_for_no_budget() {
    let scene = Scene::new(UNHURRIED).await;
    let pod = held_back(&scene, 30).await;
    let stopped = drainwell_tests::fixture::terminate(&scene.node.vm(), scene.since);
    assert_eq!(outcome(&scene.push(&stopped).await).0, "marked");
    let left = departure(&scene, &pod).await;
    assert_eq!(left.grace_s, 30, "an assumed deadline shortens no grace");
    assert!(left.disruption_target.is_some());
}
