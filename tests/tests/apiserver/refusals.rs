//! Refusals by others than a budget's usual 429: what each means, and that none
//! costs another pod its time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::http::Method;
use drainwell_tests::fixture::{Amount, BudgetSpec, PodSpec};
use drainwell_tests::kubelet::Departure;
use drainwell_tests::proxy::{Fault, On, Seen};
use drainwell_tests::wait::{eventually, secs};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Error, ResourceExt as _};
use serde_json::{Value, from_value, json};

use super::{Scene, UNHURRIED, outcome};

impl Scene {
    async fn pod_named(&self, name: &str) -> Pod {
        let spec = PodSpec::new(name).node(&self.node.name);
        self.cluster.add_pod(&spec).await.unwrap()
    }

    async fn system_pod(&self) -> Pod {
        let spec = PodSpec::new("dns").node(&self.node.name);
        let spec = spec.namespace("kube-system");
        self.cluster.add_pod(&spec).await.unwrap()
    }

    async fn departure_of(&self, pod: &Pod) -> Departure {
        let uid = pod.uid().unwrap();
        eventually(secs(40), "the pod has left", async || {
            let left = self.cluster.kubelet.departure(&uid);
            left.context("it is there")
        })
        .await
    }

    /// Requests for the pod's eviction, refused ones too.
    fn tries(&self, pod: &str) -> Vec<Seen> {
        let path = format!("/pods/{pod}/eviction");
        let mut seen = self.cluster.proxy.requests();
        seen.retain(|seen| seen.path.contains(&path));
        seen
    }

    fn refuse(&self, times: u32, pod: &str, fault: Fault) {
        let on = On::new(Method::POST, &format!("/pods/{pod}/eviction"));
        self.cluster.proxy.fail_times(times, on, fault);
    }

    fn told(&self, event: &str, pod: &str) -> Vec<String> {
        let lines = self.service.log_of(event).into_iter();
        let said = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        said.filter(|message| message.contains(&format!("default/{pod} ")))
            .collect()
    }

    /// A policy of the cluster that forbids the eviction of pod `guarded`, once
    /// the API server goes by it.
    async fn guard(&self, guarded: &Pod) {
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods/eviction"],
        });
        let denial = json!({
            "expression": "request.name != 'guarded'", "reason": "Invalid", "message": "guarded",
        });
        let policy = json!({
            "metadata": { "name": "guard" },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "resourceRules": [rule] },
                "validations": [denial],
            },
        });
        let policy: ValidatingAdmissionPolicy = from_value(policy).unwrap();
        let binding = json!({
            "metadata": { "name": "guard" },
            "spec": { "policyName": "guard", "validationActions": ["Deny"] },
        });
        let binding: ValidatingAdmissionPolicyBinding = from_value(binding).unwrap();
        let (params, admin) = (PostParams::default(), &self.cluster.admin);
        let policies = Api::all(admin.clone());
        policies.create(&params, &policy).await.unwrap();
        let bindings = Api::all(admin.clone());
        bindings.create(&params, &binding).await.unwrap();
        let (pods, name) = (self.cluster.pods("default"), guarded.name_any());
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        };
        let eviction = Eviction {
            metadata,
            delete_options: None,
        };
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually(secs(30), "the policy is in force", async || {
            let tried = pods.create_subresource::<_, Value>("eviction", &name, &dry, &eviction);
            let refused = matches!(tried.await, Err(Error::Api(status)) if status.code == 422);
            ensure!(refused);
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn an_eviction_that_admission_refuses_is_left_alone_and_said_whatever_its_code() {
    let scene = Scene::new(UNHURRIED).await;
    let codes = [400, 403, 409, 413, 422, 429, 500];
    for code in codes {
        let name = format!("denied-{code}");
        scene.pod_named(&name).await;
        scene.refuse(u32::MAX, &name, Fault::denied(code));
    }
    // The same by the API server itself, so that its words are the real ones.
    let guarded = scene.pod_named("guarded").await;
    scene.guard(&guarded).await;
    let (free, system) = (scene.pod_named("free").await, scene.system_pod().await);
    assert_eq!(outcome(&scene.begin().await).0, "marked");
    scene.is_gone(&free, 20).await;
    // The next tier doesn't wait for pods that won't go.
    scene.is_gone(&system, 20).await;
    eventually(secs(10), "the drain is recorded as complete", async || {
        ensure!(scene.intent().await["drained_at"].is_string());
        Ok(())
    })
    .await;
    let mut names: Vec<String> = codes.iter().map(|code| format!("denied-{code}")).collect();
    names.push("guarded".to_owned());
    for name in names {
        assert_eq!(scene.tries(&name).len(), 1, "{name} is asked for once");
        let said = scene.told("pod_skipped", &name);
        assert!(
            said.iter().any(|message| message.contains("left alone")),
            "{name}: {said:?}"
        );
    }
    assert!(scene.service.log_of("permission_missing").is_empty());
    assert!(scene.service.log_of("eviction_blocked").is_empty());
    assert_eq!(scene.cluster.audit.count("delete pods"), 0);
}

#[tokio::test]
async fn refusals_for_a_moment_are_tried_again_when_the_server_says_so() {
    let scene = Scene::new(UNHURRIED).await;
    let mut pods = Vec::new();
    for (name, fault) in [
        ("ending", Fault::namespace_terminating()),
        ("contended", Fault::status(504)),
        ("replaced", Fault::status(409)),
        ("crowded", Fault::throttled_in_words()),
        ("asked-to-wait", Fault::throttled(Some(6))),
    ] {
        pods.push(scene.pod_named(name).await);
        scene.refuse(1, name, fault);
    }
    scene.begin().await;
    for pod in &pods {
        scene.departure_of(pod).await;
    }
    for pod in &pods {
        let name = pod.name_any();
        let tries = scene.tries(&name);
        assert_eq!(tries.len(), 2, "{name} is asked for twice");
        let asked_s = if name == "asked-to-wait" { 6 } else { 1 };
        let waited = tries[1].at.duration_since(tries[0].at);
        assert!(waited >= Duration::from_secs(asked_s), "{name}: {waited:?}");
    }
    // No role is missing, and only one of them is a matter of budgets.
    assert!(scene.service.log_of("permission_missing").is_empty());
    let blocked = scene.service.log_of("eviction_blocked");
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    let said = scene.told("eviction_blocked", "contended");
    assert!(said[0].contains("contended"), "{said:?}");
}

#[tokio::test]
async fn two_budgets_on_one_pod_hold_it_no_longer_than_one_would() {
    let scene = Scene::new("windows: { gpu: 10m }\npatience: { gpu: 5s }").await;
    let pod = scene.pod_named("web").await;
    for name in ["web-a", "web-b"] {
        // Each alone would let it go.
        let budget = BudgetSpec::new(name, Amount::MinAvailable(0)).app("web");
        scene.cluster.add_budget(&budget, 1).await.unwrap();
    }
    scene.begin().await;
    let left = scene.departure_of(&pod).await;
    let after = left.at.duration_since(scene.since).as_secs();
    assert!((5..25).contains(&after), "{after} s");
    assert_eq!(left.grace_s, 30);
    assert!(left.disruption_target.is_some());
    let said = scene.told("eviction_blocked", "web");
    assert!(
        said.len() == 1 && said[0].contains("more than one disruption budget"),
        "{said:?}"
    );
    let calls = scene.cluster.audit.calls();
    let refused = |c: &&drainwell_tests::audit::Call| c.subresource == "eviction" && c.code == 500;
    assert!(calls.iter().any(|c| refused(&c)), "{calls:?}");
}

#[tokio::test]
async fn a_pod_that_has_to_go_goes_also_when_its_condition_cannot_be_set() {
    let scene = Scene::new("windows: { gpu: 10m }\npatience: { gpu: 2s }").await;
    let mut pods = Vec::new();
    for (name, fault) in [
        ("forbidden", Fault::status(403)),
        // As when a webhook that must be asked does not answer.
        ("failing", Fault::status(500)),
        ("hanging", Fault::Hang),
    ] {
        let spec = PodSpec::new(name)
            .node(&scene.node.name)
            .label("app", "web");
        pods.push(scene.cluster.add_pod(&spec).await.unwrap());
        let on = On::new(Method::PATCH, &format!("/pods/{name}/status"));
        scene.cluster.proxy.fail(on, fault);
    }
    let budget = BudgetSpec::new("web", Amount::MinAvailable(3));
    scene.cluster.add_budget(&budget, 3).await.unwrap();
    scene.begin().await;
    for pod in &pods {
        let left = scene.departure_of(pod).await;
        assert_eq!(left.grace_s, 30);
        assert!(left.disruption_target.is_none());
        let name = pod.name_any();
        let log = scene.service.log();
        let said = log.iter().find(|line| {
            let message = line["message"].as_str().unwrap_or_default();
            message.contains(&format!(
                "default/{name} is deleted without DisruptionTarget"
            ))
        });
        let said = said.unwrap_or_else(|| panic!("{name}: nothing is said of it"));
        assert_eq!(said["severity"], "ERROR");
    }
}
