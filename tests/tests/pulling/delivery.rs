//! What becomes of messages.

use anyhow::ensure;
use drainwell_tests::pubsub::PubSub;
use drainwell_tests::wait::{always, eventually, millis};
use serde_json::json;

use super::{BOUND, SUBSCRIPTION, Scene};

#[tokio::test]
async fn a_message_is_acknowledged_only_when_its_effect_is_there() {
    let scene = Scene::new(1).await;
    scene.gate.close();
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    eventually(BOUND, "the node is about to be written", async || {
        ensure!(scene.gate.writes() > 0, "no write");
        Ok(())
    })
    .await;
    // Acknowledgements go out ten times a second.
    always(millis(600), "nothing is acknowledged yet", async || {
        let message = scene.pubsub.message(&ids[0]).await?;
        ensure!(message.acks == 0 && message.nacks == 0, "{message:?}");
        Ok(())
    })
    .await;
    assert_eq!(scene.marked(0), 0);
    scene.gate.open();
    scene.are_acknowledged(&ids).await;
    assert_eq!(scene.marked(0), 1);
}

#[tokio::test]
async fn duplicates_and_redeliveries_change_nothing() {
    let scene = Scene::new(1).await;
    scene.gate.close();
    let entry = scene.entry(0);
    let entries = [entry.clone(), entry.clone(), entry];
    let ids = scene.pubsub.publish(&entries).await.unwrap();
    eventually(BOUND, "all of them are worked on", async || {
        ensure!(scene.gate.writes() == 3, "{} writes", scene.gate.writes());
        Ok(())
    })
    .await;
    // Their leases run out, so that each comes again while it is worked on.
    scene.pubsub.advance(60).await.unwrap();
    eventually(BOUND, "each is delivered a second time", async || {
        let messages = scene.pubsub.messages().await?;
        ensure!(messages.iter().all(|m| m.deliveries >= 2), "{messages:?}");
        Ok(())
    })
    .await;
    scene.gate.open();
    scene.are_acknowledged(&ids).await;
    assert_eq!(scene.marked(0), 1);
}

#[tokio::test]
async fn a_thousand_messages_have_each_their_effect_once() {
    let nodes = 200;
    let scene = Scene::new(nodes).await;
    let entries: Vec<_> = (0..1000).map(|i| scene.entry(i % nodes)).collect();
    let ids = scene.pubsub.publish(&entries).await.unwrap();
    scene.are_acknowledged(&ids).await;
    for node in 0..nodes {
        assert_eq!(scene.marked(node), 1, "node {node}");
    }
}

#[tokio::test]
async fn what_cannot_be_decided_comes_again_until_it_can() {
    let scene = Scene::new(1).await;
    scene.gate.compute_is_down(true);
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    eventually(BOUND, "it is given back and comes again", async || {
        let message = scene.pubsub.message(&ids[0]).await?;
        ensure!(message.nacks >= 2 && message.deliveries >= 3, "{message:?}");
        Ok(())
    })
    .await;
    assert_eq!(scene.pubsub.message(&ids[0]).await.unwrap().acks, 0);
    assert_eq!(scene.marked(0), 0);
    scene.gate.compute_is_down(false);
    scene.are_acknowledged(&ids).await;
    assert_eq!(scene.marked(0), 1);
}

#[tokio::test]
async fn what_cannot_be_read_is_given_back_and_the_rest_is_served() {
    let scene = Scene::new(1).await;
    let unreadable = [
        b"no JSON".to_vec(),
        b"[1]".to_vec(),
        b"{}".to_vec(),
        vec![],
        vec![b' '; 2 << 20],
        // What a push subscription would make of it.
        json!({"message": {"data": "e30="}})
            .to_string()
            .into_bytes(),
    ];
    let bad = scene.pubsub.publish_raw(&unreadable).await.unwrap();
    let mut other = scene.entry(0);
    other["protoPayload"]["methodName"] = json!("v1.compute.instances.insert");
    let good = [other, scene.entry(0)];
    let good = scene.pubsub.publish(&good).await.unwrap();
    scene.are_acknowledged(&good).await;
    assert_eq!(scene.marked(0), 1);
    eventually(BOUND, "each is given back", async || {
        for id in &bad {
            let message = scene.pubsub.message(id).await?;
            ensure!(message.nacks >= 1 && message.deliveries >= 2, "{message:?}");
            ensure!(message.acks == 0, "{message:?}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn two_subscriptions_are_pulled_from_and_one_of_them_exactly_once() {
    let pubsub = PubSub::start().await.unwrap();
    let other = "projects/p/subscriptions/exactly-once";
    pubsub.subscribe_exactly_once(other).await.unwrap();
    pubsub.subscribe(SUBSCRIPTION).await.unwrap();
    let scene = Scene::on(pubsub, 1, &[SUBSCRIPTION, other]).await;
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    eventually(BOUND, "it is acknowledged on both", async || {
        let message = scene.pubsub.message(&ids[0]).await?;
        ensure!(message.acks == 2, "{message:?}");
        Ok(())
    })
    .await;
    assert_eq!(scene.marked(0), 1);
}
