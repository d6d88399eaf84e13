//! The one loop that is all kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drainwell_app::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

use super::{Departure, SHUTDOWN_MS, START, patch_status, readiness};
use crate::journal::finished;
use crate::watch::Change;

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Told when a kubelet works again.
    pub(super) changed: Notify,
}

/// What the kubelets know.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Pods that are there and bound to a node, as last seen.
    pods: BTreeMap<String, Pod>,
    started: BTreeSet<String>,
    leaving: BTreeMap<String, Leaving>,
    pub(super) departures: BTreeMap<String, Departure>,
    pub(super) halted: BTreeSet<String>,
}

/// A pod between SIGTERM and its end.
#[derive(Debug)]
struct Leaving {
    grace_s: i64,
    /// When its containers end by themselves.
    done: Timestamp,
    /// When SIGKILL ends them.
    kill: Timestamp,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
}

enum Wake {
    Event(Change, Box<Pod>),
    Changed,
    Due,
    End,
}

impl Worker {
    pub(super) async fn run(self, mut events: mpsc::Receiver<(Change, Pod)>) {
        loop {
            // Nothing ends: only an event can change that.
            let due = self.shared.lock().next_end().unwrap_or(Timestamp::MAX);
            let wake = tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some((change, pod)) => Wake::Event(change, Box::new(pod)),
                    None => Wake::End,
                },
                () = self.shared.changed.notified() => Wake::Changed,
                () = self.clock.sleep_until(due) => Wake::Due,
            };
            match wake {
                Wake::Event(change, pod) => self.see(change, *pod),
                Wake::Changed | Wake::Due => {}
                Wake::End => return,
            }
            self.start_pods().await;
            self.end_pods().await;
        }
    }

    fn see(&self, change: Change, pod: Pod) {
        let (Some(uid), Some(spec)) = (pod.uid(), &pod.spec) else {
            return;
        };
        if spec.node_name.is_none() {
            return;
        }
        let mut state = self.shared.lock();
        if change == Change::Deleted {
            state.pods.remove(&uid);
            state.leaving.remove(&uid);
            // Somebody else deleted it at once, with a grace of 0.
            let departure = Departure::of(&pod, false);
            state.departures.entry(uid).or_insert(departure);
            return;
        }
        if let Some(grace_s) = pod.metadata.deletion_grace_period_seconds
            && !state.departures.contains_key(&uid)
        {
            let now = self.clock.now();
            let kill = now + SignedDuration::from_secs(grace_s);
            let done = now + shutdown(&pod);
            let leaving = state.leaving.entry(uid.clone()).or_insert(Leaving {
                grace_s,
                done,
                kill,
            });
            if grace_s < leaving.grace_s {
                leaving.grace_s = grace_s;
                leaving.kill = leaving.kill.min(kill);
            }
        }
        state.pods.insert(uid, pod);
    }

    async fn start_pods(&self) {
        let waiting: Vec<Pod> = {
            let state = self.shared.lock();
            let new = |(uid, pod): &(&String, &Pod)| !state.started.contains(*uid) && to_start(pod);
            let pods = state.pods.iter().filter(new).map(|(_, pod)| pod);
            pods.filter(|pod| state.works(pod)).cloned().collect()
        };
        for pod in waiting {
            let now = Timestamp::now().to_string();
            let ready = pod
                .annotations()
                .get(START)
                .is_none_or(|how| how != "unready");
            let status =
                json!({ "phase": "Running", "startTime": now, "conditions": readiness(ready) });
            // An error is a pod that is no more: its Deleted event is to come.
            if patch_status(&self.client, &pod, status).await.is_ok() {
                self.shared.lock().started.extend(pod.uid());
            }
        }
    }

    async fn end_pods(&self) {
        let now = self.clock.now();
        let due: Vec<(Pod, bool)> = {
            let state = self.shared.lock();
            let ended = state
                .leaving
                .iter()
                .filter(|(_, leaving)| leaving.end() <= now);
            let pods = ended.filter_map(|(uid, leaving)| {
                let killed = leaving.kill < leaving.done;
                state.pods.get(uid).map(|pod| (pod.clone(), killed))
            });
            pods.filter(|(pod, _)| state.works(pod)).collect()
        };
        for (pod, killed) in due {
            self.end_pod(pod, killed).await;
        }
    }

    /// Reports the end of the containers and takes the pod away, as a kubelet
    /// does: first its phase, then a DELETE with a grace of 0.
    async fn end_pod(&self, pod: Pod, killed: bool) {
        let (uid, name) = (pod.uid().unwrap_or_default(), pod.name_any());
        let mut last = pod;
        if !finished(&last) {
            let status = json!({ "phase": "Failed", "conditions": readiness(false) });
            if let Ok(patched) = patch_status(&self.client, &last, status).await {
                last = patched;
            }
        }
        let namespace = last.namespace().unwrap_or_default();
        let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
        let only_this = Preconditions {
            uid: Some(uid.clone()),
            resource_version: None,
        };
        let params = DeleteParams::default()
            .grace_period(0)
            .preconditions(only_this);
        let departure = Departure::of(&last, killed);
        // An error is a pod that is no more, which is what was wanted.
        drop(pods.delete(&name, &params).await);
        let mut state = self.shared.lock();
        state.leaving.remove(&uid);
        state.departures.entry(uid).or_insert(departure);
    }
}

impl State {
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        let works = |uid: &String| self.pods.get(uid).is_some_and(|pod| self.works(pod));
        let leaving = self.leaving.iter().filter(|(uid, _)| works(uid));
        leaving.map(|(_, leaving)| leaving.end()).min()
    }

    /// Whether the kubelet of the pod's node is at work.
    fn works(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|node| !self.halted.contains(node))
    }
}

impl Leaving {
    fn end(&self) -> Timestamp {
        self.done.min(self.kill)
    }
}

impl Departure {
    fn of(pod: &Pod, killed: bool) -> Self {
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let mut conditions = conditions.unwrap_or_default().iter();
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            grace_s: pod
                .metadata
                .deletion_grace_period_seconds
                .unwrap_or_default(),
            killed,
            disruption_target: conditions.find(|c| c.type_ == "DisruptionTarget").cloned(),
            at: Timestamp::now(),
        }
    }
}

/// Whether a kubelet would start this pod now.
fn to_start(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let pending = matches!(phase, None | Some("Pending"));
    let leaving = pod.metadata.deletion_timestamp.is_some();
    pending
        && !leaving
        && pod
            .annotations()
            .get(START)
            .is_none_or(|how| how != "never")
}

fn shutdown(pod: &Pod) -> SignedDuration {
    let text = pod
        .annotations()
        .get(SHUTDOWN_MS)
        .map_or("0", String::as_str);
    match text.parse() {
        Ok(milliseconds) => SignedDuration::from_millis(milliseconds),
        Err(_) => panic!("pod {}: {SHUTDOWN_MS}: no number: {text}", pod.name_any()),
    }
}
