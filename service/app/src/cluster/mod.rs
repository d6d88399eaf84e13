//! Kubernetes adapter: the port [`Cluster`] on a real API server.
//!
//! Must not decide anything, and must not retry. Reads are consistent (no
//! resourceVersion is given), so "gone" is never concluded from a stale cache.

mod convert;
mod date;
mod errors;
mod events;
pub mod kubeconfig;
mod watch;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use drainwell_core::action::Outcome;
use drainwell_core::edit::NodeEdit;
use drainwell_core::keys;
use drainwell_core::observed::{Node, PodRef};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams,
    Preconditions as KubePreconditions,
};
use serde_json::json;

use self::errors::Failure;
use crate::driver::events::KubeEvent;
use crate::driver::ports::{CallError, Changed, Cluster, ClusterId, PodList, Watching};
use crate::telemetry::metrics::Metrics;

/// Reads and node patches: an idle tick may spend five seconds a cluster.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The server itself may try for ten seconds to write a contended budget, and
/// a client that gives up earlier burns a disruption for nothing.
const EVICT_TIMEOUT: Duration = Duration::from_secs(15);
/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Pages of one list: 50,000 nodes or pods, three times GKE's largest cluster.
const PAGES_MAX: usize = 100;

/// A cluster behind a `kube` client.
pub struct KubeCluster {
    id: ClusterId,
    client: kube::Client,
    metrics: Metrics,
    freed: watch::Freed,
}

impl KubeCluster {
    /// Wraps a client; see [`kubeconfig`] for how it has to be configured.
    #[must_use]
    pub fn new(id: ClusterId, client: kube::Client) -> Self {
        Self {
            id,
            client,
            metrics: Metrics::default(),
            freed: watch::Freed::default(),
        }
    }

    /// The same, counting its calls in `metrics`.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    fn node_api(&self) -> Api<api::Node> {
        Api::all(self.client.clone())
    }

    fn pods_in(&self, namespace: &str) -> Api<api::Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a call, with a bound, and counts it.
    async fn timed<T>(
        &self,
        verb: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let result = match tokio::time::timeout(limit, call).await {
            Ok(result) => result.map_err(Failure::from),
            Err(_) => Err(Failure::NoAnswer(format!(
                "no answer within {} s",
                limit.as_secs()
            ))),
        };
        let code = result.as_ref().map_or_else(Failure::code, |_| Some(200));
        self.metrics.call("kubernetes", verb, code);
        result
    }

    async fn fail(&self, failure: Failure, asked: &Asked<'_>) -> CallError {
        let allowed = failure.is_forbidden() && self.allows(asked).await;
        failure.into_call_error(&asked.to_string(), allowed)
    }

    async fn outcome(&self, result: Result<(), Failure>, asked: &Asked<'_>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done,
            Err(failure) => {
                let allowed = failure.is_forbidden() && self.allows(asked).await;
                failure.into_outcome(&asked.to_string(), allowed)
            }
        }
    }

    /// Whether roles allow a call: tells a missing permission from admission.
    async fn allows(&self, asked: &Asked<'_>) -> bool {
        let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: text(asked.verb),
                    resource: text(asked.resource),
                    subresource: text(asked.subresource),
                    namespace: text(asked.namespace),
                    name: text(asked.name),
                    ..Default::default()
                }),
                ..Default::default()
            },
            ..Default::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let call = reviews.create(&params, &review);
        let answer = self.timed("review_access", CALL_TIMEOUT, call).await;
        answer.is_ok_and(|r| r.status.is_some_and(|s| s.allowed))
    }

    async fn list<K>(&self, api: &Api<K>, params: ListParams) -> Result<(Vec<K>, String), Failure>
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let mut items = Vec::new();
        let mut params = params.limit(PAGE);
        for _ in 0..PAGES_MAX {
            let page = self.timed("list", CALL_TIMEOUT, api.list(&params)).await?;
            items.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok((items, page.metadata.resource_version.unwrap_or_default())),
            }
        }
        Err(Failure::NoAnswer(format!(
            "a list of over {PAGES_MAX} pages"
        )))
    }

    async fn delete(&self, pod: &PodRef, grace_s: Option<u32>) -> Result<(), Failure> {
        let params = DeleteParams {
            grace_period_seconds: grace_s,
            preconditions: Some(KubePreconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let api = self.pods_in(&pod.namespace);
        self.timed("delete", CALL_TIMEOUT, api.delete(&pod.name, &params))
            .await
            .map(|_| ())
    }
}

/// A call, as roles and people name it.
struct Asked<'a> {
    verb: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Asked<'a> {
    fn of(verb: &'a str, resource: &'a str) -> Self {
        Self {
            verb,
            resource,
            subresource: "",
            namespace: "",
            name: "",
        }
    }

    fn on_pod(verb: &'a str, subresource: &'a str, pod: &'a PodRef) -> Self {
        let PodRef {
            namespace, name, ..
        } = pod;
        Self {
            verb,
            resource: "pods",
            subresource,
            namespace,
            name,
        }
    }
}

impl std::fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        Ok(())
    }
}

#[async_trait]
impl Cluster for KubeCluster {
    fn id(&self) -> &ClusterId {
        &self.id
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, CallError> {
        match self
            .timed("get", CALL_TIMEOUT, self.node_api().get_opt(name))
            .await
        {
            Ok(node) => Ok(node.map(convert::node)),
            Err(failure) => Err(self.fail(failure, &Asked::of("get", "nodes")).await),
        }
    }

    async fn nodes(&self, label: &str, value: &str) -> Result<Vec<Node>, CallError> {
        let labelled = ListParams::default().labels(&format!("{label}={value}"));
        match self.list(&self.node_api(), labelled).await {
            Ok((nodes, _)) => Ok(nodes.into_iter().map(convert::node).collect()),
            Err(failure) => Err(self.fail(failure, &Asked::of("list", "nodes")).await),
        }
    }

    async fn pods(&self, node: &str) -> Result<PodList, CallError> {
        let all: Api<api::Pod> = Api::all(self.client.clone());
        let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
        match self.list(&all, bound).await {
            Ok((pods, version)) => Ok(PodList {
                pods: pods.into_iter().map(convert::pod).collect(),
                version,
            }),
            Err(failure) => Err(self.fail(failure, &Asked::of("list", "pods")).await),
        }
    }

    async fn edit_node(&self, edit: &NodeEdit) -> Result<Node, CallError> {
        let patch: json_patch::Patch =
            serde_json::from_value(edit.patch.clone()).map_err(|e| CallError::Refused {
                why: format!("not a JSON patch: {e}"),
            })?;
        let api = self.node_api();
        let patch: Patch<()> = Patch::Json(patch);
        let params = PatchParams::default();
        let call = api.patch(&edit.node, &params, &patch);
        match self.timed("patch", CALL_TIMEOUT, call).await {
            Ok(node) => Ok(convert::node(node)),
            Err(failure) => {
                let asked = Asked {
                    name: &edit.node,
                    ..Asked::of("patch", "nodes")
                };
                Err(self.fail(failure, &asked).await)
            }
        }
    }

    async fn evict(&self, pod: &PodRef, grace_s: Option<u32>) -> Outcome {
        // Typed, because kube's own `evict` drops the delete options.
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: grace_s.map(i64::from),
                preconditions: Some(Preconditions {
                    uid: Some(pod.uid.clone()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            }),
        };
        let api = self.pods_in(&pod.namespace);
        let params = PostParams::default();
        let call = api
            .create_subresource::<_, serde_json::Value>("eviction", &pod.name, &params, &eviction);
        let result = self.timed("evict", EVICT_TIMEOUT, call).await.map(|_| ());
        self.outcome(result, &Asked::on_pod("create", "eviction", pod))
            .await
    }

    async fn force(&self, pod: &PodRef, grace_s: Option<u32>, now: Timestamp) -> Outcome {
        // The UID in the body is a precondition: 409 for a successor. Without
        // lastTransitionTime the disruption controller would reset it at once.
        let condition = json!({
            "metadata": {"uid": pod.uid},
            "status": {"conditions": [{
                "type": keys::DISRUPTION_TARGET,
                "status": "True",
                "reason": keys::DISRUPTION_REASON,
                "message": "Drainwell: the host goes down for maintenance",
                "lastTransitionTime": whole_second(now),
            }]},
        });
        let api = self.pods_in(&pod.namespace);
        let params = PatchParams::default();
        let patch = Patch::Strategic(&condition);
        let call = api.patch_status(&pod.name, &params, &patch);
        let marked = self.timed("patch_status", CALL_TIMEOUT, call).await;
        if let Err(failure) = marked {
            let asked = Asked::on_pod("patch", "status", pod);
            match failure.code() {
                // Gone, or another pod by now; or the server has too much to do.
                Some(404 | 409 | 429) => return self.outcome(Err(failure), &asked).await,
                // Forbidden, or a webhook that fails or hangs, perhaps for good.
                // The pod gets its SIGTERM all the same: the host stops anyway.
                _ => tracing::error!(
                    "{pod} is deleted without DisruptionTarget: can't {asked}: {}",
                    failure.text()
                ),
            }
        }
        let deleted = self.delete(pod, grace_s).await;
        self.outcome(deleted, &Asked::on_pod("delete", "", pod))
            .await
    }

    async fn shorten(&self, pod: &PodRef, grace_s: u32) -> Outcome {
        let deleted = self.delete(pod, Some(grace_s)).await;
        self.outcome(deleted, &Asked::on_pod("delete", "", pod))
            .await
    }

    async fn post_event(&self, event: &KubeEvent) -> Result<(), CallError> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), events::namespace(event));
        let (params, object) = (PostParams::default(), events::object(event));
        match self
            .timed("create_event", CALL_TIMEOUT, api.create(&params, &object))
            .await
        {
            Ok(_) => Ok(()),
            Err(failure) if failure.code() == Some(409) => Ok(()),
            Err(failure) => Err(failure.into_call_error("create events", false)),
        }
    }

    async fn changed(&self, watching: &Watching) -> Changed {
        watch::changed(&self.client, watching, &self.freed).await
    }
}

/// `metav1.Time` has whole seconds.
fn whole_second(t: Timestamp) -> String {
    Timestamp::from_second(t.as_second())
        .unwrap_or(t)
        .to_string()
}
