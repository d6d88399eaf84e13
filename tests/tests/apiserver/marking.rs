//! Which notices mark a node, and how.

use anyhow::ensure;
use axum::http::Method;
use drainwell_tests::compute::{Fault as ComputeFault, Maintenance, Target};
use drainwell_tests::fixture::{
    NodeSpec, PodSpec, automatic_restart, completed, host_error, migrate, ongoing, pending,
    terminate,
};
use drainwell_tests::lease;
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::wait::{eventually, millis, secs};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    INTENT, LABEL, MANAGED, Scene, UNHURRIED, ignored, intent, marked, outcome, tainted, unmarked,
};

#[tokio::test]
async fn label_taint_and_intent_are_one_write_and_come_before_the_answer() {
    let scene = Scene::new(UNHURRIED).await;
    // An answer that did not wait for the write would come a second too early.
    scene.cluster.proxy.fail_times(
        1,
        On::new(Method::PATCH, "/api/v1/nodes/"),
        Fault::Delay(millis(1000)),
    );
    let answer = scene.begin().await;
    let node = scene.node().await;
    assert!(marked(&node), "answered before the marks were there");
    assert_eq!(outcome(&answer).0, "marked");
    assert_eq!(answer.body["node"], json!(scene.node.name));
    let deadline = scene.since + SignedDuration::from_mins(10);
    assert_eq!(answer.body["deadline"], json!(deadline.to_string()));

    scene.cluster.journal.catch_up().await;
    let first = |holds: fn(&k8s_openapi::api::core::v1::Node) -> bool| {
        scene
            .cluster
            .journal
            .first_node(&scene.node.name, holds)
            .unwrap()
            .version
    };
    let label = first(|n| n.labels().contains_key(LABEL));
    assert_eq!(label, first(tainted));
    assert_eq!(label, first(|n| n.annotations().contains_key(INTENT)));
    assert_eq!(label, first(|n| n.labels().contains_key(MANAGED)));
    assert_eq!(node.labels()[LABEL], "true");

    let intent = intent(&node);
    assert_eq!(intent["phase"], "ongoing");
    assert_eq!(intent["deadline"], json!(deadline.to_string()));
    assert_eq!(intent["deadline_known"], true);
    assert_eq!(
        (&intent["kind"], &intent["source"]),
        (&json!("gpu"), &json!("pubsub"))
    );
    assert_eq!(intent["ours"], json!(["label", "taint"]));
    assert_eq!(intent["boot_id"], json!(scene.node.boot_id));
    assert!(
        intent["key"]
            .as_str()
            .unwrap()
            .starts_with(&scene.node.instance_id.to_string())
    );
}

/// A pod that outlasts the test, so that the end of its drain isn't recorded.
async fn busy(scene: &Scene) {
    let pod = PodSpec::new("slow")
        .node(&scene.node.name)
        .grace_s(60)
        .shutdown_ms(60_000);
    scene.cluster.add_pod(&pod).await.unwrap();
}

#[tokio::test]
async fn marking_costs_one_read_and_one_write() {
    let scene = Scene::new(UNHURRIED).await;
    busy(&scene).await;
    scene.begin().await;
    let audit = &scene.cluster.audit;
    assert_eq!(audit.count("patch nodes"), 1, "{:?}", audit.calls());
    assert_eq!(audit.count("get nodes"), 1);
    // One to confirm, one in the first step for the node.
    let asked = scene.cluster.compute.count(&Target::vm(&scene.node.name));
    assert!((1..=2).contains(&asked), "{asked}");
}

#[tokio::test]
async fn the_same_notice_again_and_older_ones_change_nothing() {
    let scene = Scene::new(UNHURRIED).await;
    busy(&scene).await;
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    let before = scene.node().await;
    let vm = scene.node.vm();
    for _ in 0..4 {
        assert_eq!(outcome(&scene.begin().await).0, "unchanged");
    }
    let week_ago = scene.since - SignedDuration::from_hours(24 * 7);
    let late = pending(&vm, week_ago, scene.since);
    assert_eq!(outcome(&scene.push(&late).await).0, "unchanged");
    // Compute still shows it ongoing, so a completion is not believed.
    let wrong = completed(&vm, Timestamp::now());
    assert_eq!(ignored(&scene.push(&wrong).await), "not_confirmed");
    let after = scene.node().await;
    assert_eq!(after.annotations()[INTENT], before.annotations()[INTENT]);
    assert!(marked(&after));
    assert_eq!(scene.cluster.audit.count("patch nodes"), 1);
}

#[tokio::test]
async fn a_completion_that_overtakes_its_beginning_leaves_no_marks() {
    let scene = Scene::new(UNHURRIED).await;
    scene
        .cluster
        .compute
        .set_maintenance(&scene.node.name, Maintenance::Empty);
    let vm = scene.node.vm();
    let ago = |s| Timestamp::now() - SignedDuration::from_secs(s);
    let answer = scene.push(&completed(&vm, ago(1))).await;
    assert_eq!(outcome(&answer).0, "unchanged");
    assert_eq!(
        ignored(&scene.push(&ongoing(&vm, ago(130))).await),
        "not_confirmed"
    );
    assert!(unmarked(&scene.node().await));
}

#[tokio::test]
async fn a_scheduled_window_is_recorded_and_becomes_ongoing() {
    let scene = Scene::new(UNHURRIED).await;
    let (vm, name) = (scene.node.vm(), scene.node.name.as_str());
    let start = Timestamp::now() + SignedDuration::from_hours(24);
    scene
        .cluster
        .compute
        .set_maintenance(name, Maintenance::pending(start));
    let answer = scene.push(&pending(&vm, Timestamp::now(), start)).await;
    assert_eq!(outcome(&answer).0, "scheduled");
    let node = scene.node().await;
    assert!(!node.labels().contains_key(LABEL) && !tainted(&node));
    assert_eq!(node.labels()[MANAGED], "true");
    let recorded = intent(&node);
    assert_eq!(
        (&recorded["phase"], &recorded["since"]),
        (&json!("scheduled"), &json!(start.to_string()))
    );

    let now = Timestamp::now();
    scene
        .cluster
        .compute
        .set_maintenance(name, Maintenance::ongoing(now));
    assert_eq!(outcome(&scene.push(&ongoing(&vm, now)).await).0, "marked");
    let node = scene.node().await;
    assert!(marked(&node));
    assert_eq!(intent(&node)["key"], recorded["key"], "a key never changes");
}

#[tokio::test]
async fn a_recorded_window_that_begins_without_a_notice_is_seen() {
    let scene = Scene::new(UNHURRIED).await;
    let (vm, name) = (scene.node.vm(), scene.node.name.as_str());
    let start = Timestamp::now() + SignedDuration::from_hours(24);
    scene
        .cluster
        .compute
        .set_maintenance(name, Maintenance::pending(start));
    scene.push(&pending(&vm, Timestamp::now(), start)).await;
    scene
        .cluster
        .compute
        .set_maintenance(name, Maintenance::ongoing(Timestamp::now()));
    // A restart of another VM, or of this: a reason to look now.
    let answer = scene.push(&automatic_restart(&vm, Timestamp::now())).await;
    assert_eq!(ignored(&answer), "not_maintenance");
    eventually(secs(20), "the node is marked", async || {
        ensure!(marked(&scene.node().await));
        Ok(())
    })
    .await;
    let intent = scene.intent().await;
    assert_eq!(
        (&intent["source"], &intent["deadline_known"]),
        (&json!("sweep"), &json!(false))
    );
}

#[tokio::test]
async fn entries_that_are_none_of_ours_are_ignored_with_their_reason() {
    let scene = Scene::new(UNHURRIED).await;
    let (vm, now) = (scene.node.vm(), Timestamp::now());
    assert_eq!(
        ignored(&scene.push(&migrate(&vm, now)).await),
        "live_migration"
    );
    assert_eq!(
        ignored(&scene.push(&host_error(&vm, now)).await),
        "not_maintenance"
    );
    assert_eq!(
        ignored(&scene.push(&automatic_restart(&vm, now)).await),
        "not_maintenance"
    );
    let text = json!({"logName": "projects/p/logs/x", "textPayload": "hello"});
    assert_eq!(ignored(&scene.push(&text).await), "not_maintenance");

    let begun = ongoing(&vm, now);
    let change = |change: &dyn Fn(&mut drainwell_tests::compute::Vm)| {
        scene.cluster.compute.put(vm.clone());
        scene
            .cluster
            .compute
            .set_maintenance(&vm.name, Maintenance::ongoing(now));
        scene.cluster.compute.change(&vm.name, |vm| change(vm));
    };
    change(&|vm| vm.on_host_maintenance = "MIGRATE".to_owned());
    assert_eq!(ignored(&scene.push(&begun).await), "live_migration");
    change(&|vm| {
        vm.labels
            .insert("goog-k8s-cluster-name".to_owned(), json!("another"));
        vm.name = "gke-train-a3-0001".to_owned();
    });
    // Its Node is here, so the context is asked by providerID: it is ours.
    assert_eq!(outcome(&scene.push(&begun).await).0, "marked");
}

#[tokio::test]
async fn a_vm_without_a_node_is_foreign_gone_or_not_there_yet() {
    let scene = Scene::new(UNHURRIED).await;
    let now = Timestamp::now();
    let absent = NodeSpec::gpu("gke-train-a3-0099").vm();
    scene.cluster.compute.put(absent.clone());
    scene
        .cluster
        .compute
        .set_maintenance(&absent.name, Maintenance::ongoing(now));
    let begun = ongoing(&absent, now);
    assert_eq!(ignored(&scene.push(&begun).await), "node_gone");
    scene.cluster.compute.change(&absent.name, |vm| {
        vm.labels
            .insert("goog-k8s-cluster-name".to_owned(), json!("another"));
    });
    assert_eq!(ignored(&scene.push(&begun).await), "foreign_cluster");
    scene
        .cluster
        .compute
        .change(&absent.name, |vm| vm.last_start = Timestamp::now());
    let answer = scene.push(&begun).await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.headers.contains_key("retry-after"));
    scene
        .cluster
        .compute
        .change(&absent.name, |vm| vm.labels.clear());
    assert_eq!(ignored(&scene.push(&begun).await), "not_a_gke_node");
    scene.cluster.compute.remove(&absent.name);
    assert_eq!(ignored(&scene.push(&begun).await), "instance_gone");
}

#[tokio::test]
async fn a_vm_rebuilt_under_the_same_name_is_another_vm() {
    let scene = Scene::new(UNHURRIED).await;
    let old = scene.node.vm();
    scene.cluster.compute.change(&old.name, |vm| vm.id += 1);
    assert_eq!(ignored(&scene.begin().await), "instance_replaced");
    // The VM is the one, but its Node still bears the id of an earlier one.
    scene.cluster.compute.put(old.clone());
    scene
        .cluster
        .compute
        .set_maintenance(&old.name, Maintenance::ongoing(scene.since));
    let stale = json!([{
        "op": "add", "path": "/metadata/annotations/container.googleapis.com~1instance_id",
        "value": "42",
    }]);
    patch(&scene, stale).await;
    assert_eq!(
        scene.begin().await.status,
        503,
        "its Node has yet to follow"
    );
    assert!(unmarked(&scene.node().await));
}

async fn patch(scene: &Scene, ops: Value) {
    let patch = serde_json::from_value(ops).unwrap();
    let patch = kube::api::Patch::Json::<()>(patch);
    let params = kube::api::PatchParams::default();
    scene
        .cluster
        .nodes()
        .patch(&scene.node.name, &params, &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_unconfirmed_maintenance_is_asked_for_again_and_then_ignored() {
    let scene = Scene::new(UNHURRIED).await;
    scene
        .cluster
        .compute
        .set_maintenance(&scene.node.name, Maintenance::None);
    assert_eq!(scene.begin().await.status, 503);
    let old = Timestamp::now() - SignedDuration::from_secs(125);
    let answer = scene.push(&ongoing(&scene.node.vm(), old)).await;
    assert_eq!(ignored(&answer), "not_confirmed");
    assert!(unmarked(&scene.node().await));
}

#[tokio::test]
async fn without_an_answer_of_compute_nothing_is_decided() {
    let scene = Scene::new(UNHURRIED).await;
    let compute = &scene.cluster.compute;
    for fault in [
        ComputeFault::Status(500),
        ComputeFault::Status(429),
        ComputeFault::Status(403),
        ComputeFault::Garbage,
        ComputeFault::Hang,
    ] {
        compute.fail(Target::All, fault.clone());
        assert_eq!(scene.begin().await.status, 503, "{fault:?}");
    }
    assert!(unmarked(&scene.node().await));
    assert!(!scene.service.log_of("permission_missing").is_empty());
    compute.heal();
    compute.fail(Target::All, ComputeFault::Slow(millis(1500)));
    assert_eq!(outcome(&scene.begin().await).0, "marked");
}

#[tokio::test]
async fn a_stop_without_a_shown_maintenance_marks_unless_it_is_stale() {
    let scene = Scene::new(UNHURRIED).await;
    let (vm, name) = (scene.node.vm(), scene.node.name.as_str());
    scene
        .cluster
        .compute
        .set_maintenance(name, Maintenance::None);
    let stopped = terminate(&vm, Timestamp::now());
    scene.cluster.compute.change(name, |vm| {
        vm.last_start = Timestamp::now() + SignedDuration::from_secs(1);
    });
    assert_eq!(ignored(&scene.push(&stopped).await), "stale");
    scene
        .cluster
        .compute
        .change(name, |vm| vm.last_start = vm.created);
    assert_eq!(outcome(&scene.push(&stopped).await).0, "marked");
    let intent = scene.intent().await;
    assert_eq!(
        (&intent["stopping"], &intent["deadline_known"]),
        (&json!(true), &json!(false))
    );
}

#[tokio::test]
async fn a_sample_with_its_envelope_nested_in_the_payload_marks_its_node() {
    let scene = Scene::new(UNHURRIED).await;
    let mut entry = ongoing(&scene.node.vm(), scene.since);
    let mut payload = entry["protoPayload"].take();
    for key in ["logName", "operation", "receiveTimestamp"] {
        payload[key] = entry[key].take();
    }
    let answer = scene.push(&json!({ "protoPayload": payload })).await;
    assert_eq!(outcome(&answer).0, "marked");
    let intent = scene.intent().await;
    assert_eq!(intent["deadline_known"], false);
    assert!(
        intent["key"]
            .as_str()
            .unwrap()
            .starts_with(&scene.node.instance_id.to_string())
    );
}

#[tokio::test]
async fn an_unwrapped_push_marks_too() {
    let scene = Scene::new(UNHURRIED).await;
    let entry = ongoing(&scene.node.vm(), scene.since);
    let answer = scene.service.push_unwrapped(&entry).await.unwrap();
    assert_eq!(outcome(&answer).0, "marked");
    assert!(marked(&scene.node().await));
}

#[tokio::test]
async fn a_skipped_node_is_left_alone() {
    let node = NodeSpec::gpu("gke-train-a3-0001").annotation("drainwell.dev/skip", "true");
    let scene = Scene::with(UNHURRIED, node).await;
    assert_eq!(ignored(&scene.begin().await), "skipped");
    assert!(unmarked(&scene.node().await));
}

#[tokio::test]
async fn an_annotation_that_cannot_be_read_is_not_overwritten() {
    let node = NodeSpec::gpu("gke-train-a3-0001")
        .annotation(INTENT, "not ours")
        .label(MANAGED, "true");
    let scene = Scene::with(UNHURRIED, node).await;
    assert_eq!(scene.begin().await.status, 503);
    assert_eq!(scene.node().await.annotations()[INTENT], "not ours");
    let summary = scene.service.tick().await.unwrap();
    assert!(
        summary["clusters"].to_string().contains("unreadable"),
        "{summary}"
    );
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let cluster = lease().await;
    let node = NodeSpec::gpu("gke-train-a3-0001");
    cluster.add_node(&node).await.unwrap();
    let now = Timestamp::now();
    cluster
        .compute
        .set_maintenance(&node.name, Maintenance::ongoing(now));
    let service = cluster
        .service()
        .arguments(&["--dry-run"])
        .start()
        .await
        .unwrap();
    let answer = service
        .push_wrapped(&ongoing(&node.vm(), now))
        .await
        .unwrap();
    assert_eq!(ignored(&answer), "dry_run");
    assert!(unmarked(&cluster.nodes().get(&node.name).await.unwrap()));
    assert_eq!(cluster.audit.writes().len(), 0);
}
