//! The service stops, or Pub/Sub does, in the middle of the work.

use anyhow::ensure;
use drainwell_app::pull::Pace;
use drainwell_tests::wait::{eventually, secs};
use tokio::time::Instant;

use super::{BOUND, SUBSCRIPTION, Scene, Service};

impl Scene {
    async fn writes_wait(&self, count: usize) {
        eventually(BOUND, "writes wait at the gate", async || {
            let writes = self.gate.writes();
            ensure!(writes >= count, "{writes} writes");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn asked_to_stop_it_finishes_what_it_works_on_and_takes_no_more() {
    let mut scene = Scene::new(2).await;
    scene.gate.close();
    let first = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.writes_wait(1).await;
    scene.service.ask_to_stop();
    eventually(BOUND, "it reads no more", async || {
        let open = scene.pubsub.open_streams().await?;
        ensure!(open == 0, "{open} streams are open");
        Ok(())
    })
    .await;
    // This one is for another instance.
    scene.pubsub.publish(&[scene.entry(1)]).await.unwrap();
    scene.gate.open();
    scene.service.ended().await;
    scene.pubsub.all_acknowledged(&first).await.unwrap();
    assert_eq!((scene.marked(0), scene.marked(1)), (1, 0));
    let all = scene.pubsub.messages().await.unwrap();
    assert_eq!(all[1].acks, 0, "{all:?}");
}

#[tokio::test]
async fn what_is_not_finished_in_time_is_given_back_and_done_by_another_instance() {
    let mut scene = Scene::new(1).await;
    scene.gate.close();
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.writes_wait(1).await;
    let asked = Instant::now();
    scene.service.ask_to_stop();
    scene.service.ended().await;
    let took = asked.elapsed();
    assert!(took < secs(9), "it took {took:?}");
    let message = scene.pubsub.message(&ids[0]).await.unwrap();
    assert!(message.acks == 0 && message.nacks == 1, "{message:?}");
    assert_eq!(scene.marked(0), 0);

    scene.gate.open();
    scene.service = Service::start(&scene.pubsub, &scene.gate, &[SUBSCRIPTION]).await;
    scene.are_acknowledged(&ids).await;
    assert_eq!(scene.marked(0), 1);
}

#[tokio::test]
async fn what_is_held_goes_back_at_once_when_it_stops() {
    let mut scene = Scene::new(1).await;
    scene.service.ask_to_stop();
    scene.service.ended().await;
    // As by default, and longer than stopping may take.
    let pace = Pace::default();
    scene.service = Service::at(pace, &scene.pubsub, &scene.gate, &[SUBSCRIPTION]).await;
    scene.gate.compute_is_down(true);
    let ids = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    eventually(BOUND, "it is delivered", async || {
        let message = scene.pubsub.message(&ids[0]).await?;
        ensure!(message.deliveries >= 1, "{message:?}");
        Ok(())
    })
    .await;
    let asked = Instant::now();
    scene.service.ask_to_stop();
    scene.service.ended().await;
    assert!(asked.elapsed() < secs(4), "it took {:?}", asked.elapsed());
    let message = scene.pubsub.message(&ids[0]).await.unwrap();
    assert_eq!(message.nacks, message.deliveries, "{message:?}");
}

#[tokio::test]
async fn pubsub_goes_down_in_the_middle_of_the_work_and_comes_up_again() {
    let scene = Scene::new(2).await;
    scene.gate.close();
    let during = scene.pubsub.publish(&[scene.entry(0)]).await.unwrap();
    scene.writes_wait(1).await;
    scene.pubsub.go_down().await.unwrap();
    scene.gate.open();
    // Done while nobody could be told.
    scene.is_marked(0).await;
    let after = scene.pubsub.publish(&[scene.entry(1)]).await.unwrap();
    scene.pubsub.come_up().await.unwrap();
    scene.is_marked(1).await;
    scene.are_acknowledged(&after).await;
    // Where the acknowledgement was lost, the message comes again.
    scene.pubsub.advance(60).await.unwrap();
    scene.are_acknowledged(&during).await;
    assert_eq!((scene.marked(0), scene.marked(1)), (1, 1));
}
