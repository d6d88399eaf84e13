//! Compute Engine, the metadata server, and the proxy.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use axum::http::Method;
use drainwell_tests::compute::{Fault as ComputeFault, Maintenance, TOKEN, Target};
use drainwell_tests::control_plane::PROJECT;
use drainwell_tests::fixture::{NodeSpec, PodSpec};
use drainwell_tests::proxy::{Fault, On};
use drainwell_tests::wait::{eventually, millis, secs};
use drainwell_tests::{Lease, lease};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::code;

/// Gets a path from the stand-in for Compute.
async fn get(cluster: &Lease, path: &str, token: &str) -> Result<(u16, Value)> {
    let url = format!(
        "{}/compute/v1/projects/{PROJECT}/{path}",
        cluster.compute.url()
    );
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(secs(10))
        .build()?;
    let answer = http.get(url).bearer_auth(token).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

#[tokio::test]
async fn compute_shows_an_instance_by_name_and_by_id() -> Result<()> {
    let cluster = lease().await;
    let vm = NodeSpec::gpu("gke-train-h100-0a1b").vm();
    cluster.compute.put(vm.clone());
    let instances = format!("zones/{}/instances", vm.zone);

    let (status, instance) = get(&cluster, &format!("{instances}/{}", vm.name), TOKEN).await?;
    assert_eq!((status, &instance["id"]), (200, &json!(vm.id.to_string())));
    assert_eq!(instance["scheduling"]["onHostMaintenance"], "TERMINATE");
    assert_eq!(instance["labels"]["goog-gke-node"], "");
    assert_eq!(instance["resourceStatus"].get("upcomingMaintenance"), None);

    cluster
        .compute
        .set_maintenance(&vm.name, Maintenance::ongoing(Timestamp::now()));
    let (_, instance) = get(&cluster, &format!("{instances}/{}", vm.id), TOKEN).await?;
    let upcoming = &instance["resourceStatus"]["upcomingMaintenance"];
    assert_eq!(upcoming["maintenanceStatus"], "ONGOING");

    let (status, missing) = get(&cluster, &format!("{instances}/absent"), TOKEN).await?;
    assert_eq!(
        (status, &missing["error"]["errors"][0]["reason"]),
        (404, &json!("notFound"))
    );
    assert_eq!(
        get(&cluster, &format!("{instances}/{}", vm.name), "forged")
            .await?
            .0,
        401
    );
    assert_eq!(cluster.compute.count(&Target::vm(&vm.name)), 2);
    assert_eq!(cluster.compute.requests().len(), 4);
    Ok(())
}

#[tokio::test]
async fn compute_goes_wrong_on_demand() -> Result<()> {
    let cluster = lease().await;
    let (vm, other) = (NodeSpec::gpu("n1").vm(), NodeSpec::gpu("n2").vm());
    let path = format!("zones/{}/instances/n1", vm.zone);
    cluster.compute.put(vm);
    cluster.compute.put(other);
    let target = Target::vm("n1");
    for status in [403, 429, 500] {
        cluster
            .compute
            .fail(target.clone(), ComputeFault::Status(status));
        let (seen, body) = get(&cluster, &path, TOKEN).await?;
        assert_eq!((seen, &body["error"]["code"]), (status, &json!(status)));
    }
    assert_eq!(
        get(&cluster, &path.replace("n1", "n2"), TOKEN).await?.0,
        200
    );
    cluster.compute.fail(target.clone(), ComputeFault::Garbage);
    assert!(get(&cluster, &path, TOKEN).await.is_err());
    cluster.compute.fail(target.clone(), ComputeFault::Hang);
    assert!(
        tokio::time::timeout(millis(300), get(&cluster, &path, TOKEN))
            .await
            .is_err()
    );
    cluster
        .compute
        .fail(target, ComputeFault::Slow(millis(150)));
    let started = Instant::now();
    assert_eq!(get(&cluster, &path, TOKEN).await?.0, 200);
    ensure!(started.elapsed() >= millis(150), "{:?}", started.elapsed());
    cluster.compute.heal();
    cluster.compute.fail(Target::All, ComputeFault::Status(500));
    assert_eq!(
        get(&cluster, &path.replace("n1", "n2"), TOKEN).await?.0,
        500
    );
    Ok(())
}

#[tokio::test]
async fn compute_lists_the_instances_of_a_project_page_by_page() -> Result<()> {
    let cluster = lease().await;
    let (first, second) = (NodeSpec::gpu("n1").vm(), NodeSpec::gpu("n2").vm());
    let scope = format!("zones/{}", first.zone);
    cluster.compute.put(first);
    cluster.compute.put(second);
    cluster.compute.set_page_size(1);
    let (_, page) = get(&cluster, "aggregated/instances", TOKEN).await?;
    assert_eq!(page["items"][&scope]["instances"][0]["name"], "n1");
    let next = page["nextPageToken"].as_str().context("no second page")?;
    let (_, page) = get(
        &cluster,
        &format!("aggregated/instances?pageToken={next}"),
        TOKEN,
    )
    .await?;
    assert_eq!(page["items"][&scope]["instances"][0]["name"], "n2");
    assert_eq!(page.get("nextPageToken"), None);
    let (_, page) = get(&cluster, &format!("{scope}/instances?maxResults=2"), TOKEN).await?;
    assert_eq!(page["items"][0]["name"], "n1");
    assert_eq!(cluster.compute.count(&Target::List), 3);
    Ok(())
}

#[tokio::test]
async fn the_metadata_server_gives_tokens_to_those_who_mean_it() -> Result<()> {
    let cluster = lease().await;
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(secs(10))
        .build()?;
    let metadata = format!("http://{}/computeMetadata/v1", cluster.compute.host());
    let token = format!("{metadata}/instance/service-accounts/default/token?scopes=x");
    assert_eq!(http.get(&token).send().await?.status(), 403);
    let answer = http
        .get(&token)
        .header("metadata-flavor", "Google")
        .send()
        .await?;
    assert_eq!(answer.json::<Value>().await?["access_token"], TOKEN);
    let project = http.get(format!("{metadata}/project/project-id"));
    let answer = project.header("metadata-flavor", "Google").send().await?;
    assert_eq!(answer.text().await?, PROJECT);
    assert_eq!(cluster.compute.count(&Target::Token), 1);
    Ok(())
}

#[tokio::test]
async fn the_proxy_passes_watches_on_and_goes_wrong_on_demand() -> Result<()> {
    let cluster = lease().await;
    cluster.add_node(&NodeSpec::gpu("n1")).await?;
    let entry = cluster
        .plane
        .service_entry("here")
        .through(&cluster.proxy.url());
    let through = Api::<Node>::all(entry.client().await?);
    let version = through
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version;
    let relabel = |value: &str| Patch::Merge(json!({ "metadata": { "labels": { "x": value } } }));
    let patch = async |value: &str| {
        through
            .patch("n1", &PatchParams::default(), &relabel(value))
            .await
    };

    // The service may not watch nodes, but pods.
    let pods = Api::<Pod>::all(through.clone().into_client());
    let events = pods
        .watch(&WatchParams::default(), &version.context("no version")?)
        .await?;
    let mut events = std::pin::pin!(events);
    cluster.add_pod(&PodSpec::new("watched").node("n1")).await?;
    let event = tokio::time::timeout(secs(5), events.try_next()).await??;
    ensure!(matches!(event, Some(WatchEvent::Added(_))), "{event:?}");

    let patches = On::new(Method::PATCH, "/nodes/n1");
    cluster
        .proxy
        .fail_times(1, patches.clone(), Fault::status(409));
    assert_eq!(code(patch("a").await), 409);
    cluster
        .proxy
        .fail_times(1, patches.clone(), Fault::throttled(Some(7)));
    let Err(kube::Error::Api(status)) = patch("a").await else {
        anyhow::bail!("no refusal")
    };
    let wait = status.details.context("no details")?.retry_after_seconds;
    assert_eq!((status.code, wait), (429, 7));
    cluster.proxy.fail_times(1, patches.clone(), Fault::Drop);
    assert_eq!(code(patch("a").await), 0);
    let label = async || anyhow::Ok(cluster.nodes().get("n1").await?.labels().get("x").cloned());
    assert_eq!(label().await?, None);
    cluster
        .proxy
        .fail_times(1, patches.clone(), Fault::AnswerLost);
    assert_eq!(code(patch("b").await), 0);
    assert_eq!(label().await?.as_deref(), Some("b"));
    cluster.proxy.fail(patches.clone(), Fault::Hang);
    assert!(tokio::time::timeout(millis(300), patch("c")).await.is_err());
    cluster.proxy.heal();
    cluster
        .proxy
        .fail(patches.clone(), Fault::Delay(millis(200)));
    let started = Instant::now();
    assert_eq!(code(patch("d").await), 200);
    ensure!(started.elapsed() >= millis(200), "{:?}", started.elapsed());
    assert_eq!(cluster.proxy.count(&patches), 6);

    cluster.proxy.go_away();
    assert_eq!(code(patch("e").await), 0);
    eventually(secs(5), "the watch is cut", async || {
        let ended = !matches!(events.try_next().await, Ok(Some(_)));
        ensure!(ended, "it goes on");
        Ok(())
    })
    .await;
    cluster.proxy.heal();
    assert_eq!(code(patch("f").await), 200);
    Ok(())
}
