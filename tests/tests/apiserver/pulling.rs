//! The same notices, pulled from Pub/Sub instead of pushed.

use axum::http::Method;
use drainwell_tests::fixture::ongoing;
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::pubsub::PubSub;
use drainwell_tests::wait::always;

use super::{
    Lease, Maintenance, NodeSpec, Service, Timestamp, UNHURRIED, Value, eventually, intent, lease,
    marked, secs,
};
use anyhow::ensure;

/// In the test cluster's project, which the metadata server tells.
const SUBSCRIPTION: &str = "projects/fleet-lab-7/subscriptions/drainwell";

/// A cluster with one GPU node under maintenance, and Pub/Sub.
async fn stage() -> (Lease, PubSub, NodeSpec, Timestamp) {
    let cluster = lease().await;
    let pubsub = PubSub::start().await.unwrap();
    pubsub.subscribe(SUBSCRIPTION).await.unwrap();
    let (node, since) = (NodeSpec::gpu("gke-train-a3-0001"), Timestamp::now());
    cluster.add_node(&node).await.unwrap();
    cluster
        .compute
        .set_maintenance(&node.name, Maintenance::ongoing(since));
    (cluster, pubsub, node, since)
}

async fn pulling(cluster: &Lease, pubsub: &PubSub) -> Service {
    let setup = cluster
        .service()
        .policy(UNHURRIED)
        .arguments(&["--pull", "drainwell"])
        .environment("PUBSUB_EMULATOR_HOST", &pubsub.address);
    setup.start().await.unwrap()
}

#[tokio::test]
async fn a_pulled_notice_marks_its_node_and_is_acknowledged_after_that() {
    let (cluster, pubsub, node, since) = stage().await;
    let mut service = pulling(&cluster, &pubsub).await;
    let patch = On::new(Method::PATCH, "/api/v1/nodes/");
    let lost = Fault::status(503);
    cluster.proxy.fail(patch.clone(), lost);
    let entry = ongoing(&node.vm(), since);
    let ids = pubsub.publish(&[entry.clone(), entry]).await.unwrap();
    eventually(secs(60), "the node can't be written", async || {
        ensure!(cluster.proxy.count(&patch) >= 1, "no PATCH");
        Ok(())
    })
    .await;
    always(secs(1), "nothing is acknowledged", async || {
        let messages = pubsub.messages().await?;
        ensure!(messages.iter().all(|m| m.acks == 0), "{messages:?}");
        Ok(())
    })
    .await;
    cluster.proxy.heal();
    eventually(secs(60), "both are acknowledged", async || {
        pubsub.all_acknowledged(&ids).await
    })
    .await;
    let read = cluster.nodes().get(&node.name).await.unwrap();
    assert!(marked(&read), "{:?}", read.metadata);
    let written = intent(&read);
    assert_eq!(written["source"], "pull", "{written}");
    assert_eq!(written["deadline_known"], true, "{written}");
    assert_eq!(service.log_of("node_marked").len(), 1);
    assert_eq!(service.terminate().await.unwrap(), 0);
}

#[tokio::test]
async fn a_process_that_dies_before_it_acknowledges_loses_nothing() {
    let (cluster, pubsub, node, since) = stage().await;
    let mut service = pulling(&cluster, &pubsub).await;
    let patch = On::new(Method::PATCH, "/api/v1/nodes/");
    // The node is marked, and the answer never comes.
    cluster.proxy.fail_times(1, patch, Fault::AnswerLost);
    let ids = pubsub.publish(&[ongoing(&node.vm(), since)]).await.unwrap();
    eventually(secs(60), "the node is marked", async || {
        let read = cluster.nodes().get(&node.name).await?;
        ensure!(marked(&read), "{:?}", read.metadata);
        Ok(())
    })
    .await;
    service.kill9().await.unwrap();
    let before = intent(&cluster.nodes().get(&node.name).await.unwrap());
    assert_eq!(pubsub.message(&ids[0]).await.unwrap().acks, 0);

    let service = pulling(&cluster, &pubsub).await;
    pubsub.advance(60).await.unwrap();
    eventually(secs(60), "it is acknowledged", async || {
        pubsub.all_acknowledged(&ids).await
    })
    .await;
    let after = intent(&cluster.nodes().get(&node.name).await.unwrap());
    assert_eq!(before["key"], after["key"]);
    assert_eq!(before["deadline"], after["deadline"]);
    assert_eq!(service.log_of("node_marked").len(), 0, "once is enough");
}

#[tokio::test]
async fn a_permission_that_is_missing_is_in_the_log() {
    let (cluster, pubsub, _, _) = stage().await;
    pubsub.fail(7, "not allowed").await.unwrap();
    let service = pulling(&cluster, &pubsub).await;
    let told = |line: &Value| line["event"] == "permission_missing";
    let line = service.wait_for_log(secs(60), "it is told", told).await;
    let message = line["message"].as_str().unwrap();
    for word in ["pubsub.subscriptions.consume", SUBSCRIPTION, "not allowed"] {
        assert!(message.contains(word), "{line}");
    }
    assert_eq!(line["severity"], "ERROR", "{line}");
    let answer = service.get("/health/ready").await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.body);
    let alive = service.get("/health/live").await.unwrap();
    assert_eq!(alive.status, 200);
}
