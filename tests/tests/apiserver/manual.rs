//! `drainwell drain`: by hand what the service does, and how it is undone.

mod marks;

use anyhow::{Context as _, ensure};
use drainwell_tests::command::{Finished, Running};
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{Amount, BudgetSpec, NodeSpec, PodSpec, ongoing};
use drainwell_tests::wait::{always, eventually, secs};
use drainwell_tests::{Lease, lease};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{INTENT, LABEL, MANAGED, SHORT_TICKS, intent, marked, outcome, taints, uids, unmarked};

const NODE: &str = "gke-train-a3-0001";
/// Budgets always count.
const PATIENT: &str = "windows: { gpu: 10m }\nforce: never";

async fn cluster() -> Lease {
    with(NodeSpec::gpu(NODE)).await
}

async fn with(node: NodeSpec) -> Lease {
    let cluster = lease().await;
    cluster.add_node(&node).await.unwrap();
    cluster
}

async fn node(cluster: &Lease) -> Node {
    cluster.nodes().get(NODE).await.unwrap()
}

async fn merge(cluster: &Lease, patch: Value) {
    let (nodes, params) = (cluster.nodes(), PatchParams::default());
    nodes
        .patch(NODE, &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn annotate(cluster: &Lease, key: &str, value: &str) {
    merge(
        cluster,
        json!({"metadata": {"annotations": { (key): value }}}),
    )
    .await;
}

async fn run(cluster: &Lease, arguments: &[&str]) -> Finished {
    cluster.run(arguments).await.unwrap()
}

/// A pod that its budget holds back, and a drain that tries it.
async fn held_back(cluster: &Lease, arguments: &[&str]) -> (Pod, Running) {
    let pod = PodSpec::new("web").node(NODE);
    let pod = cluster.add_pod(&pod).await.unwrap();
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    cluster.add_budget(&budget, 1).await.unwrap();
    let drain = cluster.start_with(arguments, Some(PATIENT)).await.unwrap();
    drain.tells("Pod default/web is held back").await;
    (pod, drain)
}

async fn free(cluster: &Lease) {
    let budgets = cluster.api::<PodDisruptionBudget>("default");
    budgets
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
}

async fn is_there(cluster: &Lease, pod: &Pod) -> anyhow::Result<()> {
    let pods = cluster.pods(&pod.namespace().unwrap());
    let there = pods.get(&pod.name_any()).await?;
    ensure!(there.uid() == pod.uid() && there.metadata.deletion_timestamp.is_none());
    Ok(())
}

#[tokio::test]
async fn a_drain_by_hand_goes_in_order_and_leaves_the_marks() {
    let cluster = cluster().await;
    let on = |name: &str| PodSpec::new(name).node(NODE).shutdown_ms(700);
    let train = cluster.add_pod(&on("train").grace_s(33)).await.unwrap();
    let system = on("dns").namespace("kube-system");
    let system = cluster.add_pod(&system).await.unwrap();
    let mirror = on("proxy").namespace("kube-system").mirror();
    let mirror = cluster.add_pod(&mirror).await.unwrap();
    let finished = run(&cluster, &["drain", NODE, "--window", "5m"]).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    assert_eq!(
        finished.stdout,
        format!("Node {NODE} is drained: 2 gone, 1 left alone.\n")
    );
    for told in [
        "Tier workload starts",
        "Pod default/train of tier workload is evicted, with 33 s to stop.",
        "s after it was told to stop.",
        "Tier system starts",
        "Pod kube-system/proxy is left alone",
        "drainwell drain --undo gke-train-a3-0001",
    ] {
        assert!(
            finished.stderr.contains(told),
            "{told}: {}",
            finished.stderr
        );
    }
    cluster.journal.catch_up().await;
    let (first, second) = (uids(&[&train]), uids(&[&system]));
    cluster.journal.ensure_order(&first, &second).unwrap();
    let stays = uids(&[&mirror]).remove(0);
    assert!(cluster.journal.asked_to_leave(&stays).is_none());
    let node = node(&cluster).await;
    assert!(marked(&node) && node.labels()[MANAGED] == "true");
    let intent = intent(&node);
    assert_eq!(intent["source"], "manual");
    assert_eq!(intent["window_s"], 300);
    assert_eq!(intent["deadline_known"], true);
    assert_eq!(intent["ours"], json!(["label", "taint"]));
    assert!(intent["drained_at"].is_string());
    let id = &node.annotations()["container.googleapis.com/instance_id"];
    let since = intent["since"].as_str().unwrap();
    assert_eq!(intent["key"], format!("{id}/{since}"));
}

#[tokio::test]
async fn when_the_window_is_over_first_it_fails_and_names_the_pods() {
    let cluster = cluster().await;
    let began = Timestamp::now();
    let (pod, drain) = held_back(&cluster, &["drain", NODE, "--window", "8s"]).await;
    let finished = drain.finish().await.unwrap();
    let took = Timestamp::now().duration_since(began).as_secs();
    assert_eq!(finished.code, 1, "{finished:?}");
    let stdout = &finished.stdout;
    assert!(stdout.contains("the window is over"), "{stdout}");
    assert!(
        stdout.contains("default/web: ") && stdout.contains("budget web needs 1"),
        "{stdout}"
    );
    assert!((8..40).contains(&took), "{took} s");
    is_there(&cluster, &pod).await.unwrap();
    assert!(marked(&node(&cluster).await));
    assert_eq!(cluster.audit.count("delete pods"), 0);
}

#[tokio::test]
async fn a_budget_is_waited_for_as_long_as_the_policy_says() {
    let cluster = cluster().await;
    let pod = PodSpec::new("web").node(NODE).grace_s(20);
    let pod = cluster.add_pod(&pod).await.unwrap();
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    cluster.add_budget(&budget, 1).await.unwrap();
    let drain = cluster
        .start_with(&["drain", NODE], Some("patience: { gpu: 4s }"))
        .await
        .unwrap();
    let finished = drain.finish().await.unwrap();
    assert_eq!(finished.code, 0, "{finished:?}");
    let told = "Pod default/web of tier workload is deleted with 20 s to stop";
    assert!(finished.stderr.contains(told), "{}", finished.stderr);
    let uid = pod.uid().unwrap();
    let departure = eventually(secs(10), "the pod has left", async || {
        let departure = cluster.kubelet.departure(&uid);
        departure.context("it is there")
    })
    .await;
    assert_eq!(departure.grace_s, 20);
    assert!(departure.disruption_target.is_some());
}

#[tokio::test]
async fn ctrl_c_stops_the_evictions_and_undo_takes_off_only_what_is_ours() {
    let mut spec = NodeSpec::gpu(NODE);
    spec.unschedulable = true;
    let cluster = with(spec).await;
    let taint = json!({"key": "example.com/burn-in", "effect": "PreferNoSchedule"});
    merge(&cluster, json!({"spec": {"taints": [taint]}})).await;
    let on = |name: &str| PodSpec::new(name).node(NODE);
    let slow = on("slow").grace_s(60).shutdown_ms(3000);
    cluster.add_pod(&slow).await.unwrap();
    let system = on("dns").namespace("kube-system");
    let system = cluster.add_pod(&system).await.unwrap();
    let mut drain = cluster.start(&["drain", NODE]).await.unwrap();
    drain
        .tells("Pod default/slow of tier workload is evicted")
        .await;
    drain.interrupt().await.unwrap();
    let finished = drain.finish().await.unwrap();
    assert_eq!(finished.code, 130, "{finished:?}");
    let undo = format!("to take them off: drainwell drain --undo {NODE}");
    assert!(finished.stderr.contains(&undo), "{}", finished.stderr);
    always(secs(6), "nothing more is evicted", async || {
        is_there(&cluster, &system).await
    })
    .await;
    assert!(marked(&node(&cluster).await));
    let undone = run(&cluster, &["drain", "--undo", NODE]).await;
    assert_eq!(undone.code, 0, "{undone:?}");
    let after = node(&cluster).await;
    assert!(unmarked(&after));
    assert_eq!(after.spec.as_ref().unwrap().unschedulable, Some(true));
    let theirs = |(key, _): &(String, String)| key == "example.com/burn-in";
    assert!(taints(&after).iter().any(theirs));
    let again = run(&cluster, &["drain", "--undo", NODE]).await;
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stdout.contains("nothing on it is ours"), "{again:?}");
}

#[tokio::test]
async fn the_service_shows_a_drain_by_hand_evicts_nothing_and_unmarks_after_a_boot() {
    let cluster = cluster().await;
    let (pod, mut drain) = held_back(&cluster, &["drain", NODE]).await;
    drain.interrupt().await.unwrap();
    assert_eq!(drain.finish().await.unwrap().code, 130);
    free(&cluster).await;
    let tried = cluster.audit.count("create pods/eviction");
    let service = cluster.service().arguments(SHORT_TICKS);
    let service = service.start().await.unwrap();
    let shown = eventually(secs(20), "the drain is shown", async || {
        let all = service.get("/api/v1/maintenances").await?.body;
        let shown = all["maintenances"][0].clone();
        ensure!(shown["tiers"][0]["pods"][0]["name"] == "web", "{all}");
        Ok(shown)
    })
    .await;
    assert_eq!(shown["source"], "manual");
    assert_eq!(shown["node"], NODE);
    always(secs(8), "the service evicts nothing", async || {
        service.tick().await?;
        is_there(&cluster, &pod).await
    })
    .await;
    assert_eq!(cluster.audit.count("create pods/eviction"), tried);
    assert!(marked(&node(&cluster).await));
    cluster.kubelet.set_boot_id(NODE, "boot-2").await.unwrap();
    eventually(secs(60), "the node is unmarked", async || {
        service.tick().await?;
        ensure!(unmarked(&node(&cluster).await));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_notice_takes_the_drain_over_and_the_service_goes_on_with_it() {
    let spec = NodeSpec::gpu(NODE);
    let cluster = with(spec.clone()).await;
    let (_, drain) = held_back(&cluster, &["drain", NODE]).await;
    let service = cluster.service().policy(PATIENT).start().await.unwrap();
    let since = Timestamp::now();
    let shown = Maintenance::ongoing(since);
    cluster.compute.set_maintenance(NODE, shown);
    let notice = ongoing(&spec.vm(), since);
    let answer = service.push_wrapped(&notice).await.unwrap();
    assert_eq!(outcome(&answer).0, "marked");
    drain.tells("the service goes on with the drain").await;
    free(&cluster).await;
    let finished = drain.finish().await.unwrap();
    assert_eq!(finished.code, 0, "{finished:?}");
    assert_eq!(service.log_of("pod_evicted").len(), 1);
    assert!(!finished.stderr.contains("is evicted"), "{finished:?}");
    assert_eq!(intent(&node(&cluster).await)["source"], "pubsub");
}
