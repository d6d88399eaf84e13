//! Node objects: patches are applied as an API server applies them.

use drainwell_app::driver::ports::{CallError, Cluster as _};
use drainwell_core::edit::{self, NodeEdit};
use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::observed::Node;
use drainwell_sim::World;
use drainwell_sim::journal::NodeChange;
use drainwell_sim::spec::NodeSpec;
use serde_json::{Value, json};

use super::{NODE, node_course, world};

const DEADLINE: &str = "2027-01-15T09:00:00Z";

fn intent() -> Intent {
    serde_json::from_value(json!({
        "v": 1, "key": "11/2027-01-15T08:00:00Z", "phase": "ongoing", "kind": "gpu",
        "source": "pubsub", "noticed": "2027-01-15T08:00:02Z", "since": "2027-01-15T08:00:00Z",
        "deadline": DEADLINE, "window_s": 3600, "deadline_known": true,
    }))
    .expect("a valid intent")
}

async fn patch(world: &World, ops: Value) -> Result<Node, CallError> {
    world
        .edit_node(&NodeEdit {
            node: NODE.to_owned(),
            patch: ops,
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn marks_go_on_and_come_off_and_the_taints_of_others_stay() {
    let world = world();
    let own = NodeSpec::new("other", "us-central1-a", 13)
        .taint("a.example.com/first", "", "NoSchedule")
        .taint("z.example.com/last", "", "NoExecute");
    world.add_node(own);
    for name in [NODE, "other"] {
        let before = world.node(name).await.unwrap().unwrap();
        let (edit, written) = edit::write(&before, &intent(), "true");
        let marked = world.edit_node(&edit).await.unwrap();
        assert!(marked.termination_taint().is_some());
        assert_eq!(marked.labels[keys::MAINTENANCE_LABEL], "true");
        assert_ne!(marked.resource_version, before.resource_version);
        let managed = world
            .nodes(drainwell_core::keys::MANAGED_LABEL, "true")
            .await
            .unwrap();
        assert_eq!(managed, std::slice::from_ref(&marked));
        let (edit, stays) = edit::unmark(&marked, &written);
        assert_eq!(stays, None);
        let after = world.edit_node(&edit).await.unwrap();
        let resource_version = after.resource_version.clone();
        assert_eq!(
            after,
            Node {
                resource_version,
                ..before
            }
        );
        let marked = NodeChange::Marked {
            deadline: Some(DEADLINE.parse().unwrap()),
        };
        assert_eq!(
            node_course(&world, name),
            [(0, marked), (0, NodeChange::Unmarked)]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_is_stale_and_changes_nothing() {
    let world = world();
    let before = world.find_node(NODE).unwrap();
    let (edit, _) = edit::write(&before, &intent(), "true");
    let label = json!([{"op": "add", "path": "/metadata/labels/team", "value": "x"}]);
    let labelled = patch(&world, label).await.unwrap();
    assert_eq!(world.edit_node(&edit).await, Err(CallError::Stale));
    assert_eq!(world.find_node(NODE).unwrap(), labelled);
    // Another node of the same name.
    let (edit, _) = edit::write(
        &Node {
            uid: "another".to_owned(),
            ..labelled.clone()
        },
        &intent(),
        "true",
    );
    assert_eq!(world.edit_node(&edit).await, Err(CallError::Stale));
    assert_eq!(world.find_node(NODE).unwrap(), labelled);
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_makes_no_new_version() {
    let world = world();
    let before = world.find_node(NODE).unwrap();
    let same = json!([{"op": "test", "path": "/metadata/uid", "value": before.uid}]);
    assert_eq!(patch(&world, same).await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_makes_no_sense_is_refused() {
    let world = world();
    for ops in [
        json!([{"op": "remove", "path": "/spec/taints/0"}]),
        json!([{"op": "add", "path": "/spec/taints", "value": [{"key": "x"}]}]),
        json!([{"op": "replace", "path": "/metadata/uid", "value": "x"}]),
        json!([{"op": "add", "path": "/metadata/labels/x", "value": 1}]),
        json!("no patch"),
    ] {
        let result = patch(&world, ops.clone()).await;
        assert!(
            matches!(result, Err(CallError::Refused { .. })),
            "{ops}: {result:?}"
        );
    }
    let nobody = NodeEdit {
        node: "nobody".to_owned(),
        patch: json!([]),
    };
    assert!(world.edit_node(&nobody).await.is_err());
}
