//! Takes away what earlier tests left in the cluster.

use std::fmt::Debug;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::wait::{eventually, secs};

/// Admission policies go first, because they may forbid the rest; then what
/// makes pods, so that none comes back; then pods and nodes.
pub(crate) async fn sweep(admin: &Client) -> anyhow::Result<()> {
    clear_all::<ValidatingAdmissionPolicyBinding>(admin).await?;
    clear_all::<ValidatingAdmissionPolicy>(admin).await?;
    let namespaces = Api::<Namespace>::all(admin.clone())
        .list(&ListParams::default())
        .await?;
    let names: Vec<String> = namespaces.iter().map(ResourceExt::name_any).collect();
    for name in &names {
        clear::<Deployment>(admin, name).await?;
        clear::<ReplicaSet>(admin, name).await?;
        clear::<DaemonSet>(admin, name).await?;
        clear::<Job>(admin, name).await?;
        clear::<PodDisruptionBudget>(admin, name).await?;
    }
    clear_all::<Node>(admin).await?;
    eventually(secs(60), "the cluster is empty", async || {
        let pods = Api::<Pod>::all(admin.clone())
            .list(&ListParams::default())
            .await?;
        for pod in &pods.items {
            force_away(admin, pod).await;
        }
        ensure!(pods.items.is_empty(), "{} pods are left", pods.items.len());
        none_left::<ReplicaSet>(admin).await?;
        none_left::<DaemonSet>(admin).await?;
        none_left::<Job>(admin).await?;
        none_left::<PodDisruptionBudget>(admin).await?;
        none_left::<Node>(admin).await
    })
    .await;
    for name in &names {
        clear::<Event>(admin, name).await?;
    }
    Ok(())
}

async fn clear<K>(admin: &Client, namespace: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    clear_in(Api::<K>::namespaced(admin.clone(), namespace)).await
}

async fn clear_all<K>(admin: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    clear_in(Api::<K>::all(admin.clone())).await
}

async fn clear_in<K>(api: Api<K>) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let deleted = api
        .delete_collection(&DeleteParams::background(), &ListParams::default())
        .await;
    deleted.with_context(|| format!("delete all of kind {kind}"))?;
    Ok(())
}

async fn none_left<K>(admin: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let left = Api::<K>::all(admin.clone())
        .list(&ListParams::default().limit(1))
        .await?
        .items;
    ensure!(
        left.is_empty(),
        "{} is left: {}",
        K::kind(&()),
        left[0].name_any()
    );
    Ok(())
}

/// Deletes a pod at once, whatever finalizers it has. Errors are pods that went
/// in the meantime; any other shows when the pods are listed again.
async fn force_away(admin: &Client, pod: &Pod) {
    let pods = Api::<Pod>::namespaced(admin.clone(), &pod.namespace().unwrap_or_default());
    if !pod.finalizers().is_empty() {
        let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        drop(
            pods.patch(&pod.name_any(), &PatchParams::default(), &none)
                .await,
        );
    }
    drop(
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
            .await,
    );
}
