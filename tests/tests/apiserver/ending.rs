//! The end of a maintenance: when marks come off, and when not yet.

use anyhow::ensure;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{NodeSpec, PodSpec, completed, pending, terminate};
use drainwell_tests::wait::{always, eventually, secs};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{LABEL, MANAGED, Scene, UNHURRIED, ignored, marked, outcome, tainted, unmarked};

impl Scene {
    fn show(&self, maintenance: Maintenance) {
        self.cluster
            .compute
            .set_maintenance(&self.node.name, maintenance);
    }

    async fn stays_marked(&self, why: &str) {
        always(secs(3), why, async || {
            self.service.tick().await?;
            ensure!(marked(&self.node().await));
            Ok(())
        })
        .await;
    }

    async fn merge(&self, patch: Value) {
        let (nodes, params) = (self.cluster.nodes(), PatchParams::default());
        nodes
            .patch(&self.node.name, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_completed_notice_ends_it() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    scene.show(Maintenance::None);
    let answer = scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    assert_eq!(outcome(&answer).0, "completed");
    scene.is_unmarked(10).await;
    assert_eq!(scene.service.log_of("node_unmarked").len(), 1);
    let again = scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    assert_eq!(outcome(&again).0, "unchanged");
}

#[tokio::test]
async fn a_completion_of_an_earlier_maintenance_ends_nothing() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    scene.show(Maintenance::None);
    let earlier = scene.since - SignedDuration::from_hours(1);
    assert_eq!(
        ignored(&scene.push(&completed(&scene.node.vm(), earlier)).await),
        "stale"
    );
    scene
        .stays_marked("the maintenance that is on isn't ended by an older one")
        .await;
}

#[tokio::test]
async fn marks_stay_until_the_node_is_ready() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    scene.show(Maintenance::None);
    scene
        .cluster
        .kubelet
        .set_node_ready(&scene.node.name, false)
        .await
        .unwrap();
    scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    assert_eq!(scene.intent().await["phase"], "completed");
    scene.stays_marked("the node is not Ready").await;
    scene
        .cluster
        .kubelet
        .set_node_ready(&scene.node.name, true)
        .await
        .unwrap();
    scene.service.tick().await.unwrap();
    scene.is_unmarked(30).await;
}

#[tokio::test]
async fn a_boot_ends_it_but_never_while_compute_shows_it_ongoing() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    scene
        .cluster
        .kubelet
        .set_boot_id(&scene.node.name, "another-boot")
        .await
        .unwrap();
    scene
        .stays_marked("Compute shows the maintenance as ongoing")
        .await;
    scene.show(Maintenance::Empty);
    scene.is_unmarked(40).await;
}

#[tokio::test]
async fn another_vm_behind_the_node_ends_it() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    scene.show(Maintenance::None);
    scene
        .cluster
        .compute
        .change(&scene.node.name, |vm| vm.id += 1);
    let id = (scene.node.instance_id + 1).to_string();
    scene
        .merge(json!({"metadata": {"annotations": {
            "container.googleapis.com/instance_id": id,
        }}}))
        .await;
    let restart = drainwell_tests::fixture::automatic_restart(&scene.node.vm(), Timestamp::now());
    scene.push(&restart).await;
    scene.is_unmarked(20).await;
}

#[tokio::test]
async fn a_stop_that_compute_never_showed_is_not_unmarked_at_once() {
    let scene = Scene::new(UNHURRIED).await;
    scene.show(Maintenance::None);
    let stopped = terminate(&scene.node.vm(), scene.since);
    assert_eq!(outcome(&scene.push(&stopped).await).0, "marked");
    scene
        .stays_marked("that Compute shows nothing proves nothing here")
        .await;
    scene
        .cluster
        .kubelet
        .set_boot_id(&scene.node.name, "another-boot")
        .await
        .unwrap();
    let restart = drainwell_tests::fixture::automatic_restart(&scene.node.vm(), Timestamp::now());
    scene.push(&restart).await;
    scene.is_unmarked(20).await;
}

#[tokio::test]
async fn marks_that_others_took_over_stay() {
    let scene = Scene::new(UNHURRIED).await;
    scene.begin().await;
    scene
        .merge(json!({"metadata": {"labels": {LABEL: "terminating"}}}))
        .await;
    scene.show(Maintenance::None);
    scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    eventually(secs(20), "the intent is gone", async || {
        ensure!(!scene.node().await.labels().contains_key(MANAGED));
        Ok(())
    })
    .await;
    let node = scene.node().await;
    assert_eq!(node.labels()[LABEL], "terminating");
    assert!(tainted(&node));
    let told = scene.service.log_of("node_unmarked");
    assert!(
        told[0]["message"].as_str().unwrap().contains("terminating"),
        "{told:?}"
    );
}

#[tokio::test]
async fn marks_that_were_there_before_stay() {
    let node = NodeSpec::gpu("gke-train-a3-0001").label(LABEL, "ONGOING");
    let scene = Scene::with(UNHURRIED, node).await;
    scene.begin().await;
    assert_eq!(scene.intent().await["ours"], json!(["taint"]));
    scene.show(Maintenance::None);
    scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    eventually(secs(20), "our taint is gone", async || {
        ensure!(!tainted(&scene.node().await));
        Ok(())
    })
    .await;
    assert_eq!(scene.node().await.labels()[LABEL], "ONGOING");
}

#[tokio::test]
async fn a_record_goes_when_its_window_is_completed_unseen() {
    let scene = Scene::new(UNHURRIED).await;
    let start = Timestamp::now() + SignedDuration::from_hours(24);
    scene.show(Maintenance::pending(start));
    scene
        .push(&pending(&scene.node.vm(), Timestamp::now(), start))
        .await;
    assert!(!unmarked(&scene.node().await));
    scene.show(Maintenance::None);
    let answer = scene
        .push(&completed(&scene.node.vm(), Timestamp::now()))
        .await;
    assert_eq!(outcome(&answer).0, "completed");
    assert!(unmarked(&scene.node().await));
}

#[tokio::test]
async fn a_node_deleted_in_mid_drain_ends_quietly() {
    let scene = Scene::new(UNHURRIED).await;
    let slow = PodSpec::new("slow")
        .node(&scene.node.name)
        .grace_s(60)
        .shutdown_ms(3000);
    scene.cluster.add_pod(&slow).await.unwrap();
    scene.begin().await;
    scene
        .cluster
        .nodes()
        .delete(&scene.node.name, &DeleteParams::default())
        .await
        .unwrap();
    let summary = eventually(secs(10), "nothing is left to do", async || {
        let summary = scene.service.tick().await?;
        ensure!(summary["maintenances"] == 0, "{summary}");
        Ok(summary)
    })
    .await;
    assert_eq!(summary["next"], Value::Null);
    let errors = scene
        .service
        .log()
        .into_iter()
        .filter(|line| line["severity"] == "ERROR");
    assert_eq!(errors.collect::<Vec<_>>(), Vec::<Value>::new());
}
