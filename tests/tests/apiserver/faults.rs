//! What goes wrong around the service: nothing is lost, nothing done twice.

use anyhow::ensure;
use axum::http::Method;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{Amount, BudgetSpec, NodeSpec, PodSpec, completed, ongoing, wrap};
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::wait::{always, eventually, secs};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::task::JoinSet;

use super::{Scene, UNHURRIED, marked, outcome, uids, unmarked};

/// Two workload pods, one of which takes its time, and a system pod.
async fn pods(scene: &Scene) -> [Pod; 3] {
    let on = |name: &str| PodSpec::new(name).node(&scene.node.name).grace_s(60);
    let cluster = &scene.cluster;
    let quick = cluster.add_pod(&on("quick")).await.unwrap();
    let slow = cluster
        .add_pod(&on("slow").shutdown_ms(3000))
        .await
        .unwrap();
    let system = cluster
        .add_pod(&on("dns").namespace("kube-system"))
        .await
        .unwrap();
    [quick, slow, system]
}

/// All went, in order, each told once, and the rest of the story is right.
async fn went_right(scene: &Scene, [quick, slow, system]: &[Pod; 3]) {
    for pod in [quick, slow, system] {
        scene.is_gone(pod, 60).await;
        let departure = scene
            .cluster
            .kubelet
            .departure(&pod.uid().unwrap())
            .unwrap();
        assert_eq!(departure.grace_s, 60);
    }
    let journal = &scene.cluster.journal;
    journal.catch_up().await;
    journal
        .ensure_order(&uids(&[quick, slow]), &uids(&[system]))
        .unwrap();
    let done = scene.cluster.audit.calls().into_iter();
    let done = done
        .filter(|c| c.subresource == "eviction" && c.code == 201)
        .count();
    assert_eq!(done, 3, "each pod is evicted once");
    eventually(secs(30), "the drain is recorded as complete", async || {
        ensure!(scene.intent().await["drained_at"].is_string());
        Ok(())
    })
    .await;
    assert!(marked(&scene.node().await));
}

#[tokio::test]
async fn killed_in_mid_drain_it_goes_on_from_the_node_alone() {
    let mut scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    scene.begin().await;
    scene.is_gone(&pods[0], 20).await;
    scene.service.kill9().await.unwrap();
    assert!(marked(&scene.node().await));
    scene.service.restart().await.unwrap();
    went_right(&scene, &pods).await;
    scene
        .cluster
        .compute
        .set_maintenance(&scene.node.name, Maintenance::None);
    scene.service.kill9().await.unwrap();
    scene.service.restart().await.unwrap();
    scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    scene.is_unmarked(20).await;
}

#[tokio::test]
async fn asked_to_stop_it_ends_cleanly_and_soon() {
    let mut scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    scene.begin().await;
    assert_eq!(scene.service.terminate().await.unwrap(), 0);
    scene.service.restart().await.unwrap();
    went_right(&scene, &pods).await;
}

#[tokio::test]
async fn evictions_answered_with_errors_are_tried_again() {
    let scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    let evictions = On::new(Method::POST, "/eviction");
    scene
        .cluster
        .proxy
        .fail_times(3, evictions.clone(), Fault::status(500));
    scene
        .cluster
        .proxy
        .fail_times(2, evictions, Fault::throttled(Some(1)));
    scene.begin().await;
    went_right(&scene, &pods).await;
    assert!(
        scene.service.log_of("eviction_blocked").is_empty(),
        "no budget was in the way"
    );
}

#[tokio::test]
async fn an_eviction_whose_answer_is_lost_is_not_repeated_blindly() {
    let scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    let evictions = On::new(Method::POST, "/eviction");
    scene
        .cluster
        .proxy
        .fail_times(1, evictions, Fault::AnswerLost);
    scene.begin().await;
    went_right(&scene, &pods).await;
}

#[tokio::test]
async fn refusals_that_name_a_budget_are_blocks_whatever_their_code() {
    for code in [429, 403] {
        let scene = Scene::new(UNHURRIED).await;
        let pods = pods(&scene).await;
        let evictions = On::new(Method::POST, "/eviction");
        scene
            .cluster
            .proxy
            .fail_times(2, evictions, Fault::budget(code));
        scene.begin().await;
        went_right(&scene, &pods).await;
        assert!(!scene.service.log_of("eviction_blocked").is_empty());
        assert!(scene.service.log_of("permission_missing").is_empty());
    }
}

#[tokio::test]
async fn a_node_written_by_others_in_between_is_read_again_and_merged() {
    let scene = Scene::new(UNHURRIED).await;
    let patches = On::new(Method::PATCH, "/api/v1/nodes/");
    for code in [409, 422] {
        scene
            .cluster
            .proxy
            .fail_times(1, patches.clone(), Fault::status(code));
    }
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    assert!(marked(&scene.node().await));
}

#[tokio::test]
async fn a_node_that_cannot_be_written_is_asked_for_again() {
    let scene = Scene::new(UNHURRIED).await;
    let patches = On::new(Method::PATCH, "/api/v1/nodes/");
    for fault in [
        Fault::status(409),
        Fault::status(500),
        Fault::Drop,
        Fault::Hang,
    ] {
        scene.cluster.proxy.fail(patches.clone(), fault);
        assert_eq!(scene.begin().await.status, 503);
        scene.cluster.proxy.heal();
    }
    assert!(unmarked(&scene.node().await));
    assert_eq!(outcome(&scene.begin().await).0, "marked");
}

#[tokio::test]
async fn a_mark_whose_answer_is_lost_is_found_when_the_notice_comes_again() {
    let scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    let patches = On::new(Method::PATCH, "/api/v1/nodes/");
    scene
        .cluster
        .proxy
        .fail_times(1, patches, Fault::AnswerLost);
    assert_eq!(scene.begin().await.status, 503);
    assert_eq!(outcome(&scene.begin().await).0, "unchanged");
    assert!(marked(&scene.node().await));
    // Nobody has to wait for the next idle look: the drain begins at once.
    scene.is_gone(&pods[0], 10).await;
    went_right(&scene, &pods).await;
}

#[tokio::test]
async fn killed_between_mark_and_answer_the_notice_that_comes_again_changes_nothing() {
    let mut scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    // The answer waits for the node's first step, and that for this list.
    let lists = On::new(Method::GET, "/api/v1/pods");
    scene.cluster.proxy.fail(lists, Fault::Hang);
    let entry = ongoing(&scene.node.vm(), scene.since);
    let push = reqwest::Client::new().post(scene.service.url());
    let mut pushed = JoinSet::new();
    pushed.spawn(push.body(wrap(&entry).to_string()).send());
    eventually(secs(20), "the node is marked", async || {
        ensure!(marked(&scene.node().await));
        Ok(())
    })
    .await;
    scene.service.kill9().await.unwrap();
    let answer = pushed.join_next().await.unwrap().unwrap();
    assert!(answer.is_err(), "it was answered before: {answer:?}");
    let before = scene.node().await;
    scene.service.restart().await.unwrap();
    assert_eq!(outcome(&scene.push(&entry).await).0, "unchanged");
    let after = scene.node().await;
    assert_eq!(before.annotations(), after.annotations());
    assert_eq!(before.labels(), after.labels());
    assert_eq!(before.spec, after.spec);
    scene.cluster.proxy.heal();
    went_right(&scene, &pods).await;
}

#[tokio::test]
async fn an_api_server_that_goes_away_in_mid_drain_is_waited_for() {
    let scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    scene.begin().await;
    scene.is_gone(&pods[0], 20).await;
    scene.cluster.proxy.go_away();
    eventually(secs(60), "the service has noticed", async || {
        ensure!(!scene.service.log_of("cluster_unreachable").is_empty());
        Ok(())
    })
    .await;
    let summary = scene.service.tick().await.unwrap();
    assert!(
        summary["clusters"].to_string().contains("unreachable"),
        "{summary}"
    );
    assert_eq!(scene.begin().await.status, 503);
    scene.cluster.proxy.heal();
    went_right(&scene, &pods).await;
}

#[tokio::test]
async fn an_api_server_that_hangs_holds_up_no_answer_for_long() {
    let scene = Scene::new(UNHURRIED).await;
    let pods = pods(&scene).await;
    scene
        .cluster
        .proxy
        .fail(On::new(Method::GET, "/api/v1/pods"), Fault::Hang);
    // The list is given up after five seconds, and that is told.
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    let waited = !scene.service.log_of("cluster_unreachable").is_empty();
    assert!(!waited, "the answer waited for the drain");
    scene.cluster.proxy.heal();
    went_right(&scene, &pods).await;
}

#[tokio::test]
async fn one_blocked_or_failing_pod_delays_no_other_pod_and_no_other_node() {
    let scene = Scene::new(UNHURRIED).await;
    let cluster = &scene.cluster;
    let other = NodeSpec::gpu("gke-train-a3-0002");
    cluster.add_node(&other).await.unwrap();
    cluster
        .compute
        .set_maintenance(&other.name, Maintenance::ongoing(scene.since));
    let on = |name: &str, node: &NodeSpec| PodSpec::new(name).node(&node.name);
    let web = cluster.add_pod(&on("web", &scene.node)).await.unwrap();
    let failing = cluster.add_pod(&on("failing", &scene.node)).await.unwrap();
    let free = cluster.add_pod(&on("free", &scene.node)).await.unwrap();
    let elsewhere = cluster.add_pod(&on("elsewhere", &other)).await.unwrap();
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    cluster.add_budget(&budget, 1).await.unwrap();
    let of_failing = On::new(Method::POST, "/pods/failing/eviction");
    cluster.proxy.fail(of_failing.clone(), Fault::Hang);
    scene.begin().await;
    scene.is_gone(&free, 14).await;
    scene.push(&ongoing(&other.vm(), scene.since)).await;
    scene.is_gone(&elsewhere, 14).await;
    // All of that while the first call for this one was still unanswered.
    assert_eq!(cluster.proxy.count(&of_failing), 1);
    let left = [&web, &failing].map(|pod| cluster.kubelet.departure(&pod.uid().unwrap()));
    assert!(left.iter().all(Option::is_none));
}

#[tokio::test]
async fn an_api_server_that_fails_is_not_asked_in_a_hot_loop() {
    let scene = Scene::new(UNHURRIED).await;
    let cluster = &scene.cluster;
    let web = PodSpec::new("web").node(&scene.node.name);
    cluster.add_pod(&web).await.unwrap();
    let failing = PodSpec::new("failing").node(&scene.node.name);
    cluster.add_pod(&failing).await.unwrap();
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    cluster.add_budget(&budget, 1).await.unwrap();
    let of_failing = On::new(Method::POST, "/pods/failing/eviction");
    cluster.proxy.fail(of_failing, Fault::status(500));
    scene.begin().await;
    let lists = On::new(Method::GET, "/api/v1/nodes?");
    cluster.proxy.fail(lists.clone(), Fault::status(500));
    let (all, listed) = (cluster.proxy.count(&On::all()), cluster.proxy.count(&lists));
    // Every three seconds, and nothing else meanwhile but watches.
    always(secs(7), "the server is asked at a calm pace", async || {
        let lists = cluster.proxy.count(&lists) - listed;
        ensure!(lists <= 4, "{lists} lists");
        let calls = cluster.proxy.count(&On::all()) - all;
        ensure!(calls <= 30, "{calls} calls");
        Ok(())
    })
    .await;
}
