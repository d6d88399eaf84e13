//! `POST /tick`: holds its request while work is left.

use axum::http::Method;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{NodeSpec, PodSpec, ongoing};
use drainwell_tests::lease;
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::service::Service;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use drainwell_tests::Lease;

struct Held {
    service: Service,
    system: Pod,
    cluster: Lease,
}

/// A drain that has just begun and takes some four seconds.
async fn held() -> Held {
    let cluster = lease().await;
    let node = NodeSpec::gpu("gke-train-a3-0001");
    cluster.add_node(&node).await.unwrap();
    let on = |name: &str| PodSpec::new(name).node(&node.name).grace_s(60);
    cluster
        .add_pod(&on("train").shutdown_ms(3000))
        .await
        .unwrap();
    let system = on("dns").namespace("kube-system").shutdown_ms(500);
    let system = cluster.add_pod(&system).await.unwrap();
    let now = Timestamp::now();
    cluster
        .compute
        .set_maintenance(&node.name, Maintenance::ongoing(now));
    let setup = cluster.service().policy("windows: { gpu: 20m }");
    let service = setup
        .arguments(&["--tick-hold", "20"])
        .start()
        .await
        .unwrap();
    service
        .push_wrapped(&ongoing(&node.vm(), now))
        .await
        .unwrap();
    Held {
        service,
        system,
        cluster,
    }
}

impl Held {
    /// All is gone by the time the tick answers, though nothing else asked.
    async fn is_done(&self, summary: &Value) {
        let system = self
            .cluster
            .pods("kube-system")
            .get_opt("dns")
            .await
            .unwrap();
        assert!(system.is_none(), "the tick ended with work left: {summary}");
        let uid = self.system.metadata.uid.as_deref().unwrap();
        assert!(self.cluster.kubelet.departure(uid).is_some());
        assert_eq!(
            (&summary["waiting"], &summary["maintenances"]),
            (&0.into(), &1.into())
        );
        assert!(summary["actions"].as_u64().unwrap() >= 1, "{summary}");
    }
}

#[tokio::test]
async fn a_tick_holds_its_request_while_work_is_left() {
    let held = held().await;
    let summary = held.service.tick().await.unwrap();
    held.is_done(&summary).await;
    let context = drainwell_tests::context()
        .replacen("gke_", "", 1)
        .replace('_', "/");
    assert_eq!(summary["clusters"][&context], "ok", "{summary}");
}

#[tokio::test]
async fn a_tick_goes_on_over_a_cluster_that_does_not_answer_for_a_moment() {
    let held = held().await;
    let lists = On::new(Method::GET, "/api/v1/nodes");
    held.cluster.proxy.fail_times(1, lists, Fault::status(500));
    let summary = held.service.tick().await.unwrap();
    held.is_done(&summary).await;
}

#[tokio::test]
async fn with_nothing_to_do_a_tick_answers_at_once() {
    let cluster = lease().await;
    let service = cluster.service().start().await.unwrap();
    let summary = service.tick().await.unwrap();
    assert_eq!(
        (&summary["next"], &summary["actions"]),
        (&Value::Null, &0.into())
    );
    assert_eq!(
        cluster.audit.count("list nodes"),
        2,
        "one at the start, one for the tick"
    );
}
