//! Pub/Sub refuses.

use anyhow::ensure;
use drainwell_tests::pubsub::PubSub;
use drainwell_tests::wait::eventually;
use serde_json::Value;

use super::{BOUND, SUBSCRIPTION, Scene};

// gRPC's status codes.
const NOT_FOUND: u32 = 5;
const PERMISSION_DENIED: u32 = 7;
const FAILED_PRECONDITION: u32 = 9;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

impl Scene {
    async fn is_ready(&self) {
        eventually(BOUND, "the service is ready", async || {
            let (status, body) = self.service.ready().await?;
            ensure!(status == 200, "{status}: {body}");
            Ok(())
        })
        .await;
    }

    /// Waits until it isn't, and says these words.
    async fn is_not_ready(&self, words: &[&str]) {
        eventually(BOUND, "the service is not ready", async || {
            let (status, body) = self.service.ready().await?;
            ensure!(status == 503, "{status}: {body}");
            let problem: Value = serde_json::from_str(&body)?;
            let detail = problem["detail"].as_str().unwrap_or_default();
            ensure!(words.iter().all(|word| detail.contains(word)), "{body}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_missing_permission_is_said_and_tried_again_until_it_is_granted() {
    let scene = Scene::new(2).await;
    let first = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.are_acknowledged(&first).await;
    scene.is_ready().await;
    let permission = "pubsub.subscriptions.consume";
    for code in [PERMISSION_DENIED, UNAUTHENTICATED, NOT_FOUND] {
        scene.pubsub.fail(code, "the test asked").await.unwrap();
        let words = [permission, SUBSCRIPTION, "the test asked"];
        scene.is_not_ready(&words).await;
        let before = scene.pubsub.streams().await.unwrap();
        eventually(BOUND, "it is tried again", async || {
            let streams = scene.pubsub.streams().await?;
            ensure!(streams >= before + 2, "{streams}");
            Ok(())
        })
        .await;
        scene.is_not_ready(&words).await;
        scene.pubsub.heal().await.unwrap();
        // Also when no message comes.
        scene.is_ready().await;
    }
    let ids = scene.pubsub.publish(&[scene.entry(1)]).await.unwrap();
    scene.pubsub.advance(60).await.unwrap();
    scene.are_acknowledged(&ids).await;
    assert_eq!(scene.marked(1), 1);
}

#[tokio::test]
async fn a_subscription_that_is_made_later_is_found() {
    let pubsub = PubSub::start().await.unwrap();
    let scene = Scene::on(pubsub, 1, &[SUBSCRIPTION]).await;
    scene.is_not_ready(&["There is no", SUBSCRIPTION]).await;
    scene.pubsub.subscribe(SUBSCRIPTION).await.unwrap();
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.are_acknowledged(&ids).await;
    scene.is_ready().await;
    assert_eq!(scene.marked(0), 1);
}

#[tokio::test]
async fn one_subscription_in_trouble_holds_up_no_other() {
    let pubsub = PubSub::start().await.unwrap();
    pubsub.subscribe(SUBSCRIPTION).await.unwrap();
    let missing = "projects/p/subscriptions/missing";
    let scene = Scene::on(pubsub, 1, &[missing, SUBSCRIPTION]).await;
    scene.is_not_ready(&[missing]).await;
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.are_acknowledged(&ids).await;
    scene.is_not_ready(&[missing]).await;
}

#[tokio::test]
async fn other_errors_end_with_their_cause() {
    let scene = Scene::new(3).await;
    for (node, code) in [FAILED_PRECONDITION, UNAVAILABLE].into_iter().enumerate() {
        let before = scene.pubsub.streams().await.unwrap();
        scene.pubsub.fail(code, "the test asked").await.unwrap();
        eventually(BOUND, "it is tried again", async || {
            let streams = scene.pubsub.streams().await?;
            ensure!(streams > before, "{streams}");
            Ok(())
        })
        .await;
        scene.pubsub.heal().await.unwrap();
        let ids = scene.pubsub.publish(&[scene.entry(node)]).await.unwrap();
        scene.are_acknowledged(&ids).await;
        scene.is_ready().await;
        assert_eq!(scene.marked(node), 1);
    }
}

#[tokio::test]
async fn a_pubsub_that_cannot_be_reached_is_said_until_it_can_be() {
    let scene = Scene::new(1).await;
    scene.is_ready().await;
    scene.pubsub.go_down().await.unwrap();
    scene
        .is_not_ready(&[SUBSCRIPTION, "no connection, or no answer"])
        .await;
    scene.pubsub.come_up().await.unwrap();
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.are_acknowledged(&ids).await;
    scene.is_ready().await;
}
