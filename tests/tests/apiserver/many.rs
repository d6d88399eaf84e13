//! Many nodes at once.

use anyhow::ensure;
use axum::http::Method;
use drainwell_tests::Lease;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{NodeSpec, PodSpec, ongoing};
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::wait::{eventually, secs};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use tokio::time::Instant;

use super::{Scene, UNHURRIED, outcome};

/// More than are watched one by one.
const NODES: usize = 25;

impl Scene {
    /// Nodes besides the scene's own, which get the same notice.
    async fn more_nodes(&self, count: usize) -> Vec<NodeSpec> {
        let spec = |n| NodeSpec::gpu(&format!("gke-train-a3-1{n:03}"));
        let nodes: Vec<_> = (0..count).map(spec).collect();
        for node in &nodes {
            self.cluster.add_node(node).await.unwrap();
            let shown = Maintenance::ongoing(self.since);
            self.cluster.compute.set_maintenance(&node.name, shown);
        }
        nodes
    }

    /// Pushes notices for all of them at once.
    async fn begin_on(&self, nodes: &[NodeSpec]) {
        let push = async |node: &NodeSpec| {
            let answer = self.push(&ongoing(&node.vm(), self.since)).await;
            assert_eq!(outcome(&answer).0, "marked");
        };
        join_all(nodes.iter().map(push)).await;
    }
}

async fn add_pods(cluster: &Lease, specs: Vec<PodSpec>) -> Vec<Pod> {
    let pods = join_all(specs.iter().map(|spec| cluster.add_pod(spec))).await;
    pods.into_iter().map(Result::unwrap).collect()
}

fn is_of_one_node(uri: &str) -> bool {
    uri.contains("spec.nodeName")
}

/// Each node has a workload pod and a system pod, and each fifth workload pod
/// is kept by a finalizer after its containers have ended.
async fn two_pods_each(scene: &Scene, nodes: &[NodeSpec]) -> [Vec<Pod>; 2] {
    let names = nodes.iter().map(|node| node.name.as_str());
    let train = |(n, node): (usize, &str)| {
        let spec = PodSpec::new(&format!("train-{n}")).node(node);
        if n % 5 == 0 {
            spec.finalizer("example.com/collect-results")
        } else {
            spec
        }
    };
    let workload: Vec<_> = names.clone().enumerate().map(train).collect();
    let dns = |(n, node): (usize, &str)| PodSpec::new(&format!("dns-{n}")).node(node);
    let system = names.enumerate().map(dns);
    let system: Vec<_> = system.map(|spec| spec.namespace("kube-system")).collect();
    let workload = add_pods(&scene.cluster, workload).await;
    [workload, add_pods(&scene.cluster, system).await]
}

/// Waits until each node's pod is told and the whole cluster is watched.
async fn all_are_told(cluster: &Lease) -> Timestamp {
    eventually(secs(60), "all are told, and watched for", async || {
        let calls = cluster.audit.calls();
        let told = calls
            .iter()
            .filter(|c| c.subresource == "eviction" && c.code == 201);
        let told: Vec<_> = told.map(|c| c.at).collect();
        ensure!(told.len() == NODES, "{} told", told.len());
        let last = told.iter().max().copied().unwrap_or_default();
        let watches = calls
            .iter()
            .filter(|c| c.what() == "watch pods" && c.at > last);
        ensure!(watches.filter(|c| !is_of_one_node(&c.uri)).count() >= 3);
        Ok(Timestamp::now())
    })
    .await
}

fn few_calls_since(cluster: &Lease, all_told: Timestamp) {
    let calls = cluster.audit.calls();
    let since = calls.iter().filter(|c| c.at > all_told);
    let count = |what: &str| since.clone().filter(|c| c.what() == what).count();
    for call in since.clone().filter(|c| c.what() == "list pods") {
        assert!(
            is_of_one_node(&call.uri),
            "all pods are listed: {}",
            call.uri
        );
    }
    for call in since.clone().filter(|c| c.what() == "watch pods") {
        assert!(!is_of_one_node(&call.uri), "a watch a node: {}", call.uri);
    }
    // A node is looked at when its pod is gone, when the next one is, and when
    // its end is written: with some slack for pods whose end is told twice.
    assert!(
        count("list pods") <= 8 * NODES,
        "{} lists",
        count("list pods")
    );
    let (passes, watches) = (count("list nodes"), count("watch pods"));
    assert!(
        watches <= 3 * (passes + 1),
        "{watches} watches, {passes} passes"
    );
    assert!(passes <= 6 * NODES, "{passes} passes");
}

#[tokio::test]
async fn many_nodes_are_drained_by_a_few_watches_and_no_storm_of_lists() {
    let scene = Scene::new(UNHURRIED).await;
    let cluster = &scene.cluster;
    let mut nodes = scene.more_nodes(NODES - 1).await;
    nodes.push(scene.node.clone());
    let [workload, system] = two_pods_each(&scene, &nodes).await;
    // Nobody stops until all are told to, so that all are waited for at once.
    nodes
        .iter()
        .for_each(|node| cluster.kubelet.halt(&node.name));
    let began = Instant::now();
    scene.begin_on(&nodes).await;
    let all_told = all_are_told(cluster).await;
    let telling = began.elapsed();
    nodes
        .iter()
        .for_each(|node| cluster.kubelet.resume(&node.name));
    for pod in &system {
        scene.is_gone(pod, 40).await;
    }
    cluster.journal.catch_up().await;
    let mut slowest = 0;
    for (first, second) in workload.iter().zip(&system) {
        let gone = cluster.journal.gone(&first.uid().unwrap()).unwrap();
        let told = cluster.journal.asked_to_leave(&second.uid().unwrap());
        let told = told.unwrap();
        assert!(
            told.version > gone.version,
            "{} left early",
            second.name_any()
        );
        slowest = slowest.max(told.at.duration_since(gone.at).as_millis());
    }
    // Without a watch, a node is looked at every 15 seconds. A machine that is
    // busy with other things needs longer for this half as it did for the first.
    let most = telling.as_millis().max(3500) * 2;
    assert!(
        slowest < i128::try_from(most).unwrap(),
        "{slowest} of {most} ms"
    );
    few_calls_since(cluster, all_told);
    assert_eq!(cluster.audit.count("create pods/eviction"), 2 * NODES);
}

#[tokio::test]
async fn each_notice_is_answered_for_itself() {
    let scene = Scene::new(UNHURRIED).await;
    let others = scene.more_nodes(2).await;
    let patches = On::new(Method::PATCH, &format!("/nodes/{}", others[0].name));
    scene.cluster.proxy.fail(patches, Fault::status(500));
    let push = async |node: &NodeSpec| scene.push(&ongoing(&node.vm(), scene.since)).await;
    let all = tokio::join!(push(&scene.node), push(&others[0]), push(&others[1]));
    assert_eq!(outcome(&all.0).0, "marked");
    assert_eq!(all.1.status, 503, "{}", all.1.body);
    assert_eq!(outcome(&all.2).0, "marked");
    scene.cluster.proxy.heal();
    assert_eq!(outcome(&push(&others[0]).await).0, "marked");
}

#[tokio::test]
async fn a_node_with_five_minutes_never_waits_behind_those_with_an_hour() {
    const EACH: usize = 5;
    let scene = Scene::with("", NodeSpec::tpu("gke-serve-v6e-0001", "1x1", 1)).await;
    let cluster = &scene.cluster;
    let hour = scene.more_nodes(21).await;
    cluster.namespace("train").await.unwrap();
    let names = hour
        .iter()
        .flat_map(|node| (0..EACH).map(|n| (node.name.clone(), n)));
    let train = names.map(|(node, n)| {
        let spec = PodSpec::new(&format!("{node}-{n}")).node(&node);
        spec.namespace("train").never_started()
    });
    add_pods(cluster, train.collect()).await;
    let serve = (0..EACH).map(|n| PodSpec::new(&format!("serve-{n}")).node(&scene.node.name));
    let serve = add_pods(cluster, serve.collect()).await;
    // Slow enough for a queue of them.
    let of_train = On::new(Method::POST, "/namespaces/train/pods/").and("/eviction");
    let of_serve = On::new(Method::POST, "/namespaces/default/pods/").and("/eviction");
    cluster.proxy.fail(of_train.clone(), Fault::Delay(secs(3)));
    scene.begin_on(&hour).await;
    let begun = cluster.proxy.count(&of_train);
    assert!(
        begun < hour.len() * EACH / 2,
        "{begun} of them are evicted already"
    );
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    let marked = Instant::now();
    eventually(secs(30), "the pods of five minutes are told", async || {
        let told = cluster.proxy.count(&of_serve);
        ensure!(told == EACH, "{told} told");
        Ok(())
    })
    .await;
    let seen = cluster.proxy.requests();
    let last = seen.iter().rfind(|seen| of_serve.matches(seen)).unwrap();
    let overtook = seen
        .iter()
        .filter(|seen| of_train.matches(seen) && seen.at < last.at);
    let overtook = overtook.filter(|seen| seen.at > marked).count();
    assert!(overtook <= 5, "{overtook} of the others went before");
    for pod in &serve {
        scene.is_gone(pod, 20).await;
    }
    let left = cluster
        .pods("train")
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(left.items.len() > EACH, "the others were through already");
}
