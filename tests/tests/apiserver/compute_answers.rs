//! What Compute Engine answers in fields that aren't needed must stop nobody.

use drainwell_tests::compute::Maintenance;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Scene, UNHURRIED, intent, marked, outcome};

/// Answers that are odd in one field each, as a new release of the API or a
/// broken one may give them.
fn odd() -> Vec<(&'static str, Value)> {
    let wrong = || [json!(null), json!(7), json!("text"), json!([1]), json!({})];
    let not_needed = [
        "creationTimestamp",
        "lastStartTimestamp",
        "scheduling",
        "labels",
        "status",
        "kind",
        "zone",
    ];
    let mut all = Vec::new();
    for field in not_needed {
        all.extend(wrong().map(|value| (field, value)));
    }
    let labels = json!({ "goog-k8s-cluster-name": 5, "goog-gke-node": null });
    all.push(("labels", labels));
    for host_policy in [json!(null), json!(7), json!("NEW_KIND")] {
        all.push(("scheduling", json!({ "onHostMaintenance": host_policy })));
    }
    all
}

#[tokio::test]
async fn a_field_that_is_not_needed_may_be_null_or_of_a_new_type() {
    let scene = Scene::new(UNHURRIED).await;
    let compute = &scene.cluster.compute;
    let name = &scene.node.name;
    let mut expected = "marked";
    for (field, value) in odd() {
        let odd = value.clone();
        compute.change(name, |vm| {
            vm.extra.clear();
            vm.extra.insert(field.to_owned(), odd);
        });
        let told = outcome(&scene.begin().await).0;
        assert_eq!(told, expected, "{field}: {value}");
        expected = "unchanged";
    }
    assert!(marked(&scene.node().await));
}

#[tokio::test]
async fn a_maintenance_counts_by_its_status_alone() {
    let scene = Scene::new(UNHURRIED).await;
    let compute = &scene.cluster.compute;
    let name = &scene.node.name;
    let mut expected = "marked";
    for field in [
        "windowStartTime",
        "windowEndTime",
        "latestWindowStartTime",
        "maintenanceReasons",
        "type",
        "canReschedule",
    ] {
        for value in [json!(null), json!(7), json!("text"), json!([1]), json!({})] {
            let mut shown = json!({ "maintenanceStatus": "ONGOING" });
            shown[field] = value.clone();
            compute.set_maintenance(name, Maintenance::Raw(shown));
            let told = outcome(&scene.begin().await).0;
            assert_eq!(told, expected, "{field}: {value}");
            expected = "unchanged";
        }
    }
    let since: Timestamp = intent(&scene.node().await)["since"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(since, scene.since, "the entry's own time counts");
}
