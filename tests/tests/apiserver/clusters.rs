//! Several clusters, and ways to tell them apart.

use anyhow::ensure;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{NodeSpec, PodSpec, ongoing};
use drainwell_tests::proxy::{Fault, On, Proxy};
use drainwell_tests::service::Service;
use drainwell_tests::wait::{eventually, secs};
use drainwell_tests::{Lease, context, lease};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::{UNHURRIED, ignored, marked, outcome, unmarked};

/// The cluster as one of two contexts, of which the other never answers.
struct Two {
    service: Service,
    node: NodeSpec,
    since: Timestamp,
    dead: Proxy,
    cluster: Lease,
}

async fn two(good: &str, dead_context: &str) -> Two {
    let cluster = lease().await;
    let dead = Proxy::start(cluster.plane.server(), cluster.plane.ca());
    let dead = dead.await.unwrap();
    dead.fail(On::all(), Fault::Hang);
    let entry = |context: &str, through: &Proxy| {
        let entry = cluster.plane.service_entry(context);
        entry.through(&through.url())
    };
    // The dead one is asked first, if one at a time.
    let entries = vec![entry(dead_context, &dead), entry(good, &cluster.proxy)];
    let service = cluster.service().policy(UNHURRIED).contexts(entries);
    let both = ["--context", dead_context, "--context", good];
    let service = service.arguments(&both).arguments(super::SHORT_TICKS);
    let service = service.start().await.unwrap();
    let (node, since) = (NodeSpec::gpu("gke-train-a3-0001"), Timestamp::now());
    cluster.add_node(&node).await.unwrap();
    let shown = Maintenance::ongoing(since);
    cluster.compute.set_maintenance(&node.name, shown);
    Two {
        service,
        node,
        since,
        dead,
        cluster,
    }
}

impl Two {
    async fn pod(&self, name: &str, namespace: &str) -> Pod {
        let spec = PodSpec::new(name).node(&self.node.name);
        let spec = spec.namespace(namespace).shutdown_ms(300);
        self.cluster.add_pod(&spec).await.unwrap()
    }

    /// Marks and drains in far less time than one call to the dead one takes.
    async fn drains_in_time(&self) {
        let pods = [
            self.pod("train", "default").await,
            self.pod("dns", "kube-system").await,
        ];
        let asked = Instant::now();
        let entry = ongoing(&self.node.vm(), self.since);
        let answer = self.service.push_wrapped(&entry).await.unwrap();
        assert_eq!(outcome(&answer).0, "marked");
        let took = asked.elapsed();
        assert!(took < secs(4), "the answer took {took:?}");
        let name = &self.node.name;
        let node = self.cluster.nodes().get(name).await.unwrap();
        assert!(marked(&node));
        for pod in &pods {
            let uid = pod.uid().unwrap();
            eventually(secs(20), "the pod has left", async || {
                ensure!(self.cluster.kubelet.departure(&uid).is_some());
                Ok(())
            })
            .await;
        }
        let moments = pods.iter().map(|pod| {
            let told = self.cluster.journal.asked_to_leave(&pod.uid().unwrap());
            told.unwrap().at
        });
        let moments: Vec<_> = moments.collect();
        let between = moments[1].duration_since(moments[0]).as_millis();
        assert!(between < 4000, "{between} ms between the tiers");
        assert!(self.dead.count(&On::all()) > 0, "nobody asked the dead one");
    }
}

fn path(context: &str) -> String {
    let path = context.strip_prefix("gke_").unwrap_or(context);
    path.replacen('_', "/", 2)
}

#[tokio::test]
async fn a_cluster_that_hangs_takes_nothing_from_the_others() {
    let dead_context = "gke_acme-ml_europe-west4_train-dead";
    let two = two(&context(), dead_context).await;
    two.drains_in_time().await;
    let asked = Instant::now();
    let summary = two.service.tick().await.unwrap();
    // Its lists are given up after five seconds.
    assert!(asked.elapsed() < secs(12), "{:?}", asked.elapsed());
    let clusters = &summary["clusters"];
    assert_eq!(clusters[path(&context())], "ok", "{summary}");
    let dead = clusters[path(dead_context)].as_str().unwrap_or_default();
    assert!(dead.starts_with("unreachable"), "{summary}");
    // What only the dead one can know comes again.
    let lost = NodeSpec::gpu("gke-train-a3-0002");
    let mut vm = lost.vm();
    let name = json!("train-dead");
    vm.labels.insert("goog-k8s-cluster-name".to_owned(), name);
    let location = json!("europe-west4");
    vm.labels
        .insert("goog-k8s-cluster-location".to_owned(), location);
    vm.maintenance = Maintenance::ongoing(two.since);
    two.cluster.compute.put(vm.clone());
    let entry = ongoing(&vm, two.since);
    let answer = two.service.push_wrapped(&entry).await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.body);
}

#[tokio::test]
async fn a_cluster_that_hangs_is_not_waited_for_when_another_knows_the_node() {
    // Names that tell nothing: each is asked for the node.
    let two = two("west", "dead").await;
    two.drains_in_time().await;
}

#[tokio::test]
async fn a_context_given_twice_is_one_cluster() {
    let cluster = lease().await;
    let name = context();
    let twice = ["--context", &name, "--context", &name];
    let service = cluster.service().policy(UNHURRIED).arguments(&twice);
    let service = service.arguments(super::SHORT_TICKS).start().await.unwrap();
    let node = NodeSpec::gpu("gke-train-a3-0001");
    cluster.add_node(&node).await.unwrap();
    let since = Timestamp::now();
    let shown = Maintenance::ongoing(since);
    cluster.compute.set_maintenance(&node.name, shown);
    let pod = PodSpec::new("train").node(&node.name).shutdown_ms(500);
    let pod = cluster.add_pod(&pod).await.unwrap();
    let entry = ongoing(&node.vm(), since);
    let answer = service.push_wrapped(&entry).await.unwrap();
    assert_eq!(outcome(&answer).0, "marked");
    let uid = pod.uid().unwrap();
    eventually(secs(20), "the pod has left", async || {
        ensure!(cluster.kubelet.departure(&uid).is_some());
        Ok(())
    })
    .await;
    let summary = service.tick().await.unwrap();
    let clusters = summary["clusters"].as_object().map(serde_json::Map::len);
    assert_eq!(clusters, Some(1), "{summary}");
    assert_eq!(summary["maintenances"], 1, "{summary}");
    let shown = service.get("/api/v1/maintenances").await.unwrap().body;
    assert_eq!(shown["maintenances"].as_array().map(Vec::len), Some(1));
    let evictions = cluster.audit.count("create pods/eviction");
    assert_eq!(evictions, 1, "two loops each evict");
}

#[tokio::test]
async fn a_node_without_provider_id_is_known_by_its_instance_id_or_not_at_all() {
    let cluster = lease().await;
    let service = cluster.service().policy(UNHURRIED).start().await.unwrap();
    let since = Timestamp::now();
    let add = async |name: &str, instance_id: Option<&str>| {
        let mut node = NodeSpec::gpu(name);
        node.provider_id = None;
        if let Some(id) = instance_id {
            node = node.annotation("container.googleapis.com/instance_id", id);
        }
        cluster.add_node(&node).await.unwrap();
        let shown = Maintenance::ongoing(since);
        cluster.compute.set_maintenance(&node.name, shown);
        let entry = ongoing(&node.vm(), since);
        (node, service.push_wrapped(&entry).await.unwrap())
    };
    let (known, answer) = add("gke-train-a3-0001", None).await;
    assert_eq!(outcome(&answer).0, "marked");
    let (unknown, answer) = add("gke-train-a3-0002", Some("")).await;
    assert_eq!(ignored(&answer), "node_gone");
    let (other, answer) = add("gke-train-a3-0003", Some("17")).await;
    assert_eq!(ignored(&answer), "node_gone");
    let nodes = cluster.nodes();
    assert!(marked(&nodes.get(&known.name).await.unwrap()));
    for node in [unknown, other] {
        assert!(unmarked(&nodes.get(&node.name).await.unwrap()));
    }
    // And it is drained like any other.
    let pod = PodSpec::new("train").node(&known.name);
    let pod = cluster.add_pod(&pod).await.unwrap();
    let uid = pod.uid().unwrap();
    eventually(secs(20), "the pod has left", async || {
        ensure!(cluster.kubelet.departure(&uid).is_some());
        Ok(())
    })
    .await;
}
