//! Where a drain by hand is refused, and what undo takes off.

use drainwell_tests::fixture::NodeSpec;
use kube::ResourceExt as _;

use super::{
    INTENT, LABEL, MANAGED, NODE, annotate, cluster, intent, json, marked, merge, node, run,
    unmarked,
};

#[tokio::test]
async fn undo_all_cleans_every_node_with_marks_of_ours() {
    let cluster = cluster().await;
    let second = NodeSpec::gpu("gke-train-a3-0002");
    cluster.add_node(&second).await.unwrap();
    // GKE's own handler has this one.
    let third = NodeSpec::gpu("gke-train-a3-0003").label(LABEL, "true");
    cluster.add_node(&third).await.unwrap();
    for name in [NODE, &second.name] {
        let finished = run(&cluster, &["drain", name]).await;
        assert_eq!(finished.code, 0, "{finished:?}");
    }
    let undone = run(&cluster, &["drain", "--undo", "--all"]).await;
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(undone.stdout.lines().count(), 2, "{undone:?}");
    for name in [NODE, &second.name] {
        assert!(unmarked(&cluster.nodes().get(name).await.unwrap()));
    }
    let theirs = cluster.nodes().get(&third.name).await.unwrap();
    assert_eq!(theirs.labels()[LABEL], "true");
    let none = run(&cluster, &["drain", "--undo", "--all"]).await;
    assert_eq!(none.code, 0, "{none:?}");
}

#[tokio::test]
async fn an_annotation_that_cannot_be_read_is_cleaned_by_force_alone() {
    let cluster = cluster().await;
    assert_eq!(run(&cluster, &["drain", NODE]).await.code, 0);
    annotate(&cluster, INTENT, "{\"v\":").await;
    let before = node(&cluster).await;
    for arguments in [
        &["drain", NODE][..],
        &["drain", "--undo", NODE],
        &["drain", "--undo", "--all"],
    ] {
        let refused = run(&cluster, arguments).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("can't be read"), "{refused:?}");
    }
    let version = |node: &k8s_openapi::api::core::v1::Node| node.resource_version();
    assert_eq!(version(&node(&cluster).await), version(&before));
    let forced = run(&cluster, &["drain", "--undo", NODE, "--force"]).await;
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(unmarked(&node(&cluster).await));
}

#[tokio::test]
async fn a_node_that_is_not_to_be_drained_is_refused_in_one_sentence() {
    let cluster = cluster().await;
    let refused = async |name: &str, why: &str| {
        let refused = run(&cluster, &["drain", name]).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert_eq!(refused.stdout, "");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    };
    refused("gke-train-a3-0009", "there is no node gke-train-a3-0009").await;
    annotate(&cluster, "drainwell.dev/skip", "true").await;
    refused(NODE, "drainwell.dev/skip=true").await;
    assert!(unmarked(&node(&cluster).await));
    merge(
        &cluster,
        json!({"metadata": {"annotations": {"drainwell.dev/skip": null}}}),
    )
    .await;
    assert_eq!(run(&cluster, &["drain", NODE]).await.code, 0);
    let mut theirs = intent(&node(&cluster).await);
    theirs["source"] = json!("pubsub");
    annotate(&cluster, INTENT, &theirs.to_string()).await;
    refused(NODE, "under a maintenance already").await;
    let after = node(&cluster).await;
    assert!(marked(&after) && after.labels().contains_key(MANAGED));
    assert_eq!(intent(&after), theirs);
}

#[tokio::test]
async fn wrong_usage_is_told_from_failure() {
    let cluster = cluster().await;
    for arguments in [
        &["drain"][..],
        &["drain", NODE, "--all"],
        &["drain", "--all"],
        &["drain", NODE, "--force"],
        &["drain", NODE, "--window", "soon"],
        &["drain", NODE, "--window", "0s"],
        &["drain", NODE, "--context", "nowhere"],
        &["drain", NODE, "--policy-file", "/nowhere.yaml"],
    ] {
        let wrong = run(&cluster, arguments).await;
        assert_eq!(wrong.code, 2, "{arguments:?}: {wrong:?}");
        assert!(!wrong.stderr.is_empty() && wrong.stdout.is_empty());
    }
    assert_eq!(cluster.audit.writes().len(), 0);
    assert!(unmarked(&node(&cluster).await));
}
