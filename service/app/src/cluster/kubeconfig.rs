//! Clusters from a kubeconfig: every context asked for, by default the current one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::Value;

use super::KubeCluster;
use crate::driver::ports::{Cluster, ClusterId};
use crate::telemetry::metrics::Metrics;

/// To an endpoint that is down, a connection attempt ends after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where a user's token is written down, if it is.
const TOKENS: [&str; 3] = [
    "/token",
    "/auth-provider/config/id-token",
    "/auth-provider/config/access-token",
];

/// Makes a client for each of `contexts`, or for the current context.
///
/// # Errors
/// When there is no kubeconfig, or one of the contexts isn't in it.
pub async fn clusters(
    contexts: &[String],
    metrics: &Metrics,
) -> anyhow::Result<Vec<Arc<dyn Cluster>>> {
    let kubeconfig = read()?;
    let mut names = contexts.to_vec();
    if names.is_empty() {
        names.push(current(&kubeconfig)?);
    }
    // Twice the same would be two loops on one cluster.
    names.sort();
    names.dedup();
    let mut clusters: Vec<Arc<dyn Cluster>> = Vec::new();
    for name in names {
        let client = client(&kubeconfig, &name).await?;
        let cluster = KubeCluster::new(id_of(&name), client);
        clusters.push(Arc::new(cluster.counting(metrics.clone())));
    }
    Ok(clusters)
}

/// Makes a client for one context, or for the current one.
///
/// # Errors
/// When there is no kubeconfig, or the context isn't in it.
pub async fn cluster(context: Option<&str>) -> anyhow::Result<KubeCluster> {
    let kubeconfig = read()?;
    let name = match context {
        Some(name) => name.to_owned(),
        None => current(&kubeconfig)?,
    };
    let client = client(&kubeconfig, &name).await?;
    Ok(KubeCluster::new(id_of(&name), client))
}

fn read() -> anyhow::Result<Kubeconfig> {
    let read = Kubeconfig::read().map_err(|error| {
        // Its own words show the lines around the fault, and tokens in them.
        if let KubeconfigError::Parse(error) = error {
            let line = error.location().map(|at| format!(" in line {}", at.line()));
            anyhow!("not a kubeconfig{}", line.unwrap_or_default())
        } else {
            anyhow::Error::new(error)
        }
    });
    read.context("no usable kubeconfig (KUBECONFIG)")
}

fn current(kubeconfig: &Kubeconfig) -> anyhow::Result<String> {
    let current = kubeconfig.current_context.clone();
    current
        .filter(|name| !name.is_empty())
        .context("the kubeconfig has no current context: give --context")
}

async fn client(kubeconfig: &Kubeconfig, name: &str) -> anyhow::Result<kube::Client> {
    let options = KubeConfigOptions {
        context: Some(name.to_owned()),
        ..Default::default()
    };
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
        .await
        .with_context(|| format!("--context {name}: not usable in this kubeconfig"))?;
    check_token(&config.auth_info)
        .with_context(|| format!("--context {name}: not usable in this kubeconfig"))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A 429 is an answer that the plan has to see, not one to retry below it.
    config.default_retry = false;
    // kube panics on a token that no header can carry, wherever it comes from.
    let made = catch_unwind(AssertUnwindSafe(|| kube::Client::try_from(config)));
    made.map_err(|_| anyhow!("its credentials are none that a request can carry"))
        .and_then(|made| made.map_err(anyhow::Error::new))
        .with_context(|| format!("--context {name}: no client can be made of it"))
}

/// Refuses a token that no header can carry (RFC 9110, field values), without
/// showing it.
fn check_token(auth: &AuthInfo) -> anyhow::Result<()> {
    let fits = |token: &str| token.chars().all(|c| c == '\t' || !c.is_ascii_control());
    let auth = serde_json::to_value(auth)?;
    for place in TOKENS {
        let token = auth.pointer(place).and_then(Value::as_str);
        if token.is_some_and(|token| !fits(token)) {
            bail!("the user's token has a line break or another control character in it");
        }
    }
    Ok(())
}

/// `gke_PROJECT_LOCATION_CLUSTER`, as gcloud names its contexts; any other
/// context is its own cluster's name.
fn id_of(context: &str) -> ClusterId {
    let parts = context
        .strip_prefix("gke_")
        .map(|rest| rest.splitn(3, '_').collect::<Vec<_>>());
    match parts.as_deref() {
        Some([project, location, name]) => ClusterId {
            path: format!("{project}/{location}/{name}"),
            name: (*name).to_owned(),
            location: (*location).to_owned(),
        },
        Some(_) | None => ClusterId {
            path: context.to_owned(),
            name: context.to_owned(),
            location: String::new(),
        },
    }
}
