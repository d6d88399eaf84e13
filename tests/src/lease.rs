//! The cluster for one test: the service looks at every node, so that two tests
//! in one cluster would disturb each other.

use std::fmt::Debug;

use anyhow::{Context as _, ensure};
use drainwell_app::clock::Clock;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, OwnerReference, Preconditions,
};
use kube::api::{ListParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

use crate::audit::Audit;
use crate::compute::Compute;
use crate::control_plane::{self, CLUSTER, ControlPlane, LOCATION, PROJECT};
use crate::fixture::{BudgetSpec, NodeSpec, PodSpec};
use crate::journal::Journal;
use crate::kubelet::{Kubelet, START};
use crate::proxy::Proxy;
use crate::service::Setup;
use crate::sweep::sweep;
use crate::wait::{eventually, secs};

/// The test cluster, empty at first, and all that surrounds it. The control
/// plane is shared, the rest is this test's own. Drop it last.
pub struct Lease {
    /// The control plane.
    pub plane: &'static ControlPlane,
    /// A client that may do everything.
    pub admin: Client,
    /// What the API server was asked for since the lease began.
    pub audit: Audit,
    /// Every version of every node and pod since then.
    pub journal: Journal,
    /// The kubelets of all nodes.
    pub kubelet: Kubelet,
    /// Compute Engine and the metadata server.
    pub compute: Compute,
    /// What the service's kubeconfig leads through.
    pub proxy: Proxy,
    _exclusive: MutexGuard<'static, ()>,
}

/// Waits for the cluster, takes away what earlier tests left in it, and starts
/// what surrounds it.
pub async fn lease() -> Lease {
    lease_by(Clock::system()).await
}

/// The same, with kubelets and a journal that go by this clock.
pub(crate) async fn lease_by(clock: Clock) -> Lease {
    static EXCLUSIVE: Mutex<()> = Mutex::const_new(());
    let exclusive = EXCLUSIVE.lock().await;
    let plane = control_plane::shared().await;
    match take(plane, exclusive, clock).await {
        Ok(lease) => lease,
        Err(error) => panic!("no lease: {error:#}{}", plane.log_tails()),
    }
}

async fn take(
    plane: &'static ControlPlane,
    exclusive: MutexGuard<'static, ()>,
    clock: Clock,
) -> anyhow::Result<Lease> {
    let admin = plane.admin().await?;
    sweep(&admin).await?;
    let lease = Lease {
        plane,
        audit: Audit::from_now(plane.audit_log()),
        journal: Journal::start(admin.clone(), clock).await?,
        kubelet: Kubelet::start(admin.clone(), clock).await?,
        compute: Compute::start().await?,
        proxy: Proxy::start(plane.server(), plane.ca()).await?,
        admin,
        _exclusive: exclusive,
    };
    lease.namespace("default").await?;
    Ok(lease)
}

/// The name that the cluster's context has in the service's kubeconfig.
pub fn context() -> String {
    format!("gke_{PROJECT}_{LOCATION}_{CLUSTER}")
}

impl Lease {
    /// The service, still to be configured and started.
    pub fn service(&self) -> Setup {
        let entry = self
            .plane
            .service_entry(&context())
            .through(&self.proxy.url());
        Setup::new(self.plane.folder(), vec![entry], &self.compute)
    }

    /// The nodes.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    /// The pods of a namespace.
    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        self.api(namespace)
    }

    /// The objects of any kind in a namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// Creates an object of any kind in its own namespace.
    pub async fn create<K>(&self, object: &K) -> anyhow::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let namespace = object.namespace().unwrap_or_else(|| "default".into());
        let kind = K::kind(&());
        let created = self
            .api(&namespace)
            .create(&PostParams::default(), object)
            .await;
        created.with_context(|| format!("create {kind} {namespace}/{}", object.name_any()))
    }

    /// Makes sure that there is this namespace, and that pods can be made in it.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces = Api::<Namespace>::all(self.admin.clone());
        if namespaces.get_opt(name).await?.is_none() {
            let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
            namespaces
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        let accounts = self.api::<ServiceAccount>(name);
        eventually(
            secs(30),
            "the namespace has its service account",
            async || {
                accounts.get("default").await?;
                Ok(())
            },
        )
        .await;
        Ok(())
    }

    /// Creates the node, and its VM at Compute.
    pub async fn add_node(&self, spec: &NodeSpec) -> anyhow::Result<Node> {
        self.compute.put(spec.vm());
        let created = self
            .nodes()
            .create(&PostParams::default(), &spec.node())
            .await;
        created.with_context(|| format!("create node {}", spec.name))
    }

    /// Creates the pod and waits until it is Running and Ready, unless its spec
    /// says that it will not be.
    pub async fn add_pod(&self, spec: &PodSpec) -> anyhow::Result<Pod> {
        let created = self.create(&spec.pod()).await?;
        if spec.annotations.contains_key(START) {
            return Ok(created);
        }
        let pods = self.pods(&spec.namespace);
        let pod = eventually(secs(30), "the pod is Running and Ready", async || {
            let pod = pods.get(&spec.name).await?;
            ensure!(is_ready(&pod), "{:?}", pod.status);
            Ok(pod)
        });
        Ok(pod.await)
    }

    /// Waits until there are exactly so many pods with `app=NAME`, all of them
    /// Running and Ready, and gives them in the order of their names.
    pub async fn ready_pods(&self, namespace: &str, app: &str, count: usize) -> Vec<Pod> {
        let pods = self.pods(namespace);
        let selector = ListParams::default().labels(&format!("app={app}"));
        eventually(
            secs(60),
            "the workload's pods are Running and Ready",
            async || {
                let mut pods = pods.list(&selector).await?.items;
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                ensure!(
                    ready == count && pods.len() == count,
                    "{ready} of {} ready",
                    pods.len()
                );
                pods.sort_by_key(ResourceExt::name_any);
                Ok(pods)
            },
        )
        .await
    }

    /// Creates the budget and waits until the disruption controller has counted
    /// its pods, of which `healthy` are Ready.
    pub async fn add_budget(
        &self,
        spec: &BudgetSpec,
        healthy: i32,
    ) -> anyhow::Result<PodDisruptionBudget> {
        self.create(&spec.budget()).await?;
        let budgets = self.api::<PodDisruptionBudget>(&spec.namespace);
        let budget = eventually(secs(30), "the budget's status is computed", async || {
            let budget = budgets.get(&spec.name).await?;
            let status = budget.status.clone().context("no status")?;
            ensure!(
                status.observed_generation == budget.metadata.generation,
                "{status:?}"
            );
            ensure!(status.current_healthy == healthy, "{status:?}");
            Ok(budget)
        });
        Ok(budget.await)
    }

    /// Evicts a pod as admin, with this grace (its own, if none).
    pub async fn evict(&self, pod: &Pod, grace_s: Option<i64>) -> kube::Result<Status> {
        let preconditions = Preconditions {
            uid: pod.uid(),
            resource_version: None,
        };
        let eviction = Eviction {
            metadata: kube::core::ObjectMeta {
                name: Some(pod.name_any()),
                ..kube::core::ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: grace_s,
                preconditions: Some(preconditions),
                ..DeleteOptions::default()
            }),
        };
        // Not `Api::evict`, which sends its options under a name that the API
        // server does not know.
        let pods = self.pods(&pod.namespace().unwrap_or_default());
        pods.create_subresource(
            "eviction",
            &pod.name_any(),
            &PostParams::default(),
            &eviction,
        )
        .await
    }
}

/// A reference to an object as the owner and controller of another. (A real
/// controller lets go of a pod that its selector does not match, and deletes one
/// too many: let it make its pods itself.)
pub fn owner<K: Resource<DynamicType = ()>>(object: &K) -> Option<OwnerReference> {
    object.controller_owner_ref(&())
}

/// Whether a pod is Running and Ready.
pub fn is_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let mut conditions = status.conditions.as_deref().unwrap_or_default().iter();
    let ready = conditions.any(|c| c.type_ == "Ready" && c.status == "True");
    ready && status.phase.as_deref() == Some("Running")
}
