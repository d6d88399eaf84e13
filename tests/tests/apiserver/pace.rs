//! How fast the service asks: not faster than makes sense, and not slower than
//! the API server lets it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::http::Method;
use drainwell_tests::audit::Call;
use drainwell_tests::fixture::{Amount, BudgetSpec, NodeSpec, PodSpec};
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::wait::{eventually, millis, secs};
use futures::future::join_all;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::{Scene, UNHURRIED, outcome};

/// How long a budget flaps.
const FLAPPING: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_budget_that_changes_all_the_time_is_no_reason_to_ask_all_the_time() {
    let scene = Scene::new(UNHURRIED).await;
    let cluster = &scene.cluster;
    let web = PodSpec::new("web").node(&scene.node.name);
    cluster.add_pod(&web).await.unwrap();
    let budget = BudgetSpec::new("web", Amount::MinAvailable(1));
    cluster.add_budget(&budget, 1).await.unwrap();
    // One with room, of other pods in the same namespace, is what changes.
    let other = NodeSpec::gpu("gke-train-a3-0002");
    cluster.add_node(&other).await.unwrap();
    let busy = PodSpec::new("busy").node(&other.name);
    cluster.add_pod(&busy).await.unwrap();
    let budget = BudgetSpec::new("busy", Amount::MinAvailable(0));
    cluster.add_budget(&budget, 1).await.unwrap();
    scene.begin().await;
    eventually(secs(10), "the pod is held back", async || {
        ensure!(!scene.service.log_of("eviction_blocked").is_empty());
        Ok(())
    })
    .await;
    let budgets = cluster.api::<PodDisruptionBudget>("default");
    let before = cluster.audit.calls().len();
    let (began, mut changes) = (Instant::now(), 0);
    while began.elapsed() < FLAPPING {
        let change = json!({ "metadata": { "annotations": { "change": changes.to_string() } } });
        let (params, change) = (PatchParams::default(), Patch::Merge(change));
        budgets.patch("busy", &params, &change).await.unwrap();
        changes += 1;
    }
    assert!(changes > 50, "it changed {changes} times only");
    let calls = cluster.audit.calls().split_off(before);
    let tries = calls.iter().filter(|c| c.subresource == "eviction").count();
    // At the most every two seconds, and it is not forgotten either.
    assert!((2..=5).contains(&tries), "{tries} evictions");
    let all: Vec<String> = calls.iter().map(Call::what).collect();
    assert!(all.len() < 60, "{} calls: {all:?}", all.len());
}

#[tokio::test]
async fn fewer_evictions_at_once_go_to_a_server_that_throttles_and_then_more_again() {
    const PODS: usize = 72;
    let scene = Scene::new(UNHURRIED).await;
    let cluster = &scene.cluster;
    let specs: Vec<_> = (0..PODS)
        .map(|n| PodSpec::new(&format!("train-{n}")).node(&scene.node.name))
        .map(PodSpec::never_started)
        .collect();
    let pods = join_all(specs.iter().map(|spec| cluster.add_pod(spec))).await;
    let pods: Vec<_> = pods.into_iter().map(Result::unwrap).collect();
    let evictions = On::new(Method::POST, "/eviction");
    // Each takes long enough for those at once to be counted.
    let slow = millis(300);
    let throttled = Fault::throttled(Some(1)).late(slow);
    cluster.proxy.fail(evictions.clone(), throttled);
    let start = Instant::now();
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    let first = cluster.proxy.most_at_once(&evictions, start);
    assert!(first > 8, "{first} at once to begin with");
    let low = eventually(secs(30), "few are sent at once", async || {
        let recent = Instant::now()
            .checked_sub(millis(1200))
            .context("just booted")?;
        let low = cluster.proxy.most_at_once(&evictions, recent);
        ensure!((1..=3).contains(&low), "{low} at once");
        Ok(low)
    })
    .await;
    cluster.proxy.heal();
    cluster.proxy.fail(evictions.clone(), Fault::Delay(slow));
    let healed = Instant::now();
    for pod in &pods {
        scene.is_gone(pod, 60).await;
    }
    let grown = cluster.proxy.most_at_once(&evictions, healed);
    assert!(grown >= low + 4, "from {low} at once to {grown}");
    let done = cluster.audit.calls();
    let done = done
        .iter()
        .filter(|c| c.subresource == "eviction" && c.code == 201);
    assert_eq!(done.count(), PODS, "each is evicted once");
    assert!(scene.service.log_of("eviction_blocked").is_empty());
}
