//! Waking up when something that a drain waits for has changed. Watches carry
//! no data: the pass that follows reads the state for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use tokio::time::{Instant, timeout_at};

use super::CALL_TIMEOUT;
use crate::driver::ports::{Changed, Watching};

/// Up to this many nodes are watched one by one; above it, one watch sees the
/// deletions of the whole cluster. Each watch holds a connection.
const SINGLE_WATCHES_MAX: usize = 20;
/// A watch that can't be opened, or ends, wakes its pass only after this, or
/// an API server that is down would be asked in a hot loop.
const LOST: Duration = Duration::from_secs(3);
/// Deletions come in swarms; one wake-up tells of all that come within this
/// time, or each would need a pass of its own.
const GATHER: Duration = Duration::from_millis(50);
/// Budgets change whenever a pod of theirs does: they wake at most this often,
/// the first of them at once.
const BUDGETS_APART: Duration = Duration::from_secs(1);
/// The server ends a watch after this long.
const WATCH_S: u32 = 280;

pub(super) async fn changed(client: &kube::Client, watching: &Watching, freed: &Freed) -> Changed {
    let mut streams: SelectAll<BoxStream<'static, Option<Changed>>> = SelectAll::new();
    if watching.nodes.len() > SINGLE_WATCHES_MAX {
        // Metadata has no phase, so a watch for each phase of interest: a pod
        // that comes into its selection is told as added.
        streams.push(across(client, watching, None));
        streams.push(across(client, watching, Some("Succeeded")));
        streams.push(across(client, watching, Some("Failed")));
    } else {
        for (node, awaited) in &watching.nodes {
            streams.push(pods_of(client, node, &awaited.version));
        }
    }
    for namespace in &watching.budgets {
        streams.push(budgets_of(client, namespace));
    }
    if streams.is_empty() {
        return std::future::pending().await;
    }
    let mut told = gathered(streams, freed).await;
    if told.is_empty() {
        tokio::time::sleep(LOST).await;
        return Changed::Pods(None);
    }
    match told.pop_first() {
        Some(only) if told.is_empty() => only,
        first => Changed::Several(first.into_iter().chain(told).collect()),
    }
}

/// What is told within a moment after the first; nothing when a watch is lost
/// before that. At most one of each node and namespace.
async fn gathered(
    mut streams: SelectAll<BoxStream<'static, Option<Changed>>>,
    freed: &Freed,
) -> BTreeSet<Changed> {
    let mut told = BTreeSet::new();
    let mut pods_by = None;
    loop {
        let until = pods_by.into_iter().chain(freed.due_at()).min();
        let next = match until {
            None => Ok(streams.next().await),
            Some(until) => timeout_at(until, streams.next()).await,
        };
        match next {
            Ok(Some(Some(Changed::Budget(namespace)))) => freed.note(namespace),
            Ok(Some(Some(changed))) => {
                pods_by.get_or_insert_with(|| Instant::now() + GATHER);
                told.insert(changed);
            }
            // A watch is lost, or the time is over.
            Ok(Some(None) | None) | Err(_) => break,
        }
    }
    if freed.due_at().is_some_and(|at| at <= Instant::now()) {
        told.extend(freed.take().into_iter().map(Changed::Budget));
    }
    told
}

/// Namespaces with budgets that have changed and that nobody was woken for yet.
/// They outlive a wait that is given up, since a budget's watch begins with
/// what comes next.
#[derive(Default)]
pub(super) struct Freed(Mutex<FreedState>);

#[derive(Default)]
struct FreedState {
    untold: BTreeSet<String>,
    since: Option<Instant>,
    told_at: Option<Instant>,
}

impl Freed {
    fn locked<T>(&self, change: impl FnOnce(&mut FreedState) -> T) -> T {
        // Names can't be left half written by a panic.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, namespace: String) {
        self.locked(|state| {
            state.since.get_or_insert_with(Instant::now);
            state.untold.insert(namespace);
        });
    }

    /// When somebody is to be woken for them, if there are any.
    fn due_at(&self) -> Option<Instant> {
        self.locked(|state| {
            let gathered = state.since? + GATHER;
            let apart = state.told_at.map(|at| at + BUDGETS_APART);
            Some(apart.map_or(gathered, |apart| apart.max(gathered)))
        })
    }

    fn take(&self) -> BTreeSet<String> {
        self.locked(|state| {
            state.since = None;
            state.told_at = Some(Instant::now());
            std::mem::take(&mut state.untold)
        })
    }
}

/// One item per wake-up; `None` when the watch is lost.
fn pods_of(
    client: &kube::Client,
    node: &str,
    version: &str,
) -> BoxStream<'static, Option<Changed>> {
    let api: Api<Pod> = Api::all(client.clone());
    let params = WatchParams::default()
        .fields(&format!("spec.nodeName={node}"))
        .timeout(WATCH_S);
    let (version, node) = (version.to_owned(), node.to_owned());
    let stream = async move {
        match api.watch(&params, &version).await {
            Ok(events) => events
                .filter_map(move |event| {
                    let wake = wakes(event, &node);
                    async { wake }
                })
                .boxed(),
            Err(_) => futures::stream::iter([None]).boxed(),
        }
    };
    ending(stream)
}

/// Pods of the whole cluster that are deleted, or come into a phase: metadata
/// only, so that it stays cheap.
fn across(
    client: &kube::Client,
    watching: &Watching,
    phase: Option<&'static str>,
) -> BoxStream<'static, Option<Changed>> {
    let api: Api<Pod> = Api::all(client.clone());
    let mut params = WatchParams::default().timeout(WATCH_S);
    if let Some(phase) = phase {
        params = params.fields(&format!("status.phase={phase}"));
    }
    // The oldest of the versions, so that nothing since any list is missed.
    let versions = watching.nodes.values().map(|awaited| &awaited.version);
    let oldest = versions.min_by_key(|v| (v.len(), (*v).clone()));
    let version = oldest.cloned().unwrap_or_default();
    // What is told again, or of other pods, wakes nobody.
    let awaited = watching
        .nodes
        .iter()
        .flat_map(|(node, awaited)| awaited.uids.iter().map(|uid| (uid.clone(), node.clone())));
    let awaited: BTreeMap<String, String> = awaited.collect();
    let stream = async move {
        match api.watch_metadata(&params, &version).await {
            Ok(events) => events
                .filter_map(move |event| {
                    let node_of = |pod: &PartialObjectMeta<Pod>| {
                        let node = awaited.get(pod.metadata.uid.as_ref()?)?;
                        Some(Some(Changed::Pods(Some(node.clone()))))
                    };
                    let wake = match event {
                        Ok(WatchEvent::Deleted(pod)) if phase.is_none() => node_of(&pod),
                        Ok(WatchEvent::Added(pod)) if phase.is_some() => node_of(&pod),
                        Ok(WatchEvent::Error(_)) | Err(_) => Some(None),
                        Ok(
                            WatchEvent::Added(_)
                            | WatchEvent::Deleted(_)
                            | WatchEvent::Modified(_)
                            | WatchEvent::Bookmark(_),
                        ) => None,
                    };
                    async { wake }
                })
                .boxed(),
            Err(_) => futures::stream::iter([None]).boxed(),
        }
    };
    ending(stream)
}

/// Budgets of a namespace, from now on.
fn budgets_of(client: &kube::Client, namespace: &str) -> BoxStream<'static, Option<Changed>> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    let namespace = namespace.to_owned();
    let stream = async move {
        // The list is only for its version; one item is enough.
        let one = ListParams::default().limit(1);
        let Ok(Ok(list)) = tokio::time::timeout(CALL_TIMEOUT, api.list(&one)).await else {
            return futures::stream::iter([None]).boxed();
        };
        let version = list.metadata.resource_version.unwrap_or_default();
        let params = WatchParams::default().timeout(WATCH_S);
        match api.watch(&params, &version).await {
            Ok(events) => events
                .filter_map(move |event| {
                    let freed = Some(Some(Changed::Budget(namespace.clone())));
                    let wake = match event {
                        Ok(WatchEvent::Deleted(_)) => freed,
                        Ok(WatchEvent::Added(pdb) | WatchEvent::Modified(pdb)) => {
                            freed.filter(|_| pdb.status.is_some_and(|s| s.disruptions_allowed > 0))
                        }
                        Ok(WatchEvent::Error(_)) | Err(_) => Some(None),
                        Ok(WatchEvent::Bookmark(_)) => None,
                    };
                    async { wake }
                })
                .boxed(),
            Err(_) => futures::stream::iter([None]).boxed(),
        }
    };
    ending(stream)
}

fn ending(
    stream: impl Future<Output = BoxStream<'static, Option<Changed>>> + Send + 'static,
) -> BoxStream<'static, Option<Changed>> {
    let end = futures::stream::iter([None]);
    futures::stream::once(stream).flatten().chain(end).boxed()
}

/// What a pod's event is worth waking for: it is gone, has finished, or is new.
fn wakes(event: kube::Result<WatchEvent<Pod>>, node: &str) -> Option<Option<Changed>> {
    let there = || Some(Some(Changed::Pods(Some(node.to_owned()))));
    match event {
        Ok(WatchEvent::Added(_) | WatchEvent::Deleted(_)) => there(),
        Ok(WatchEvent::Modified(pod)) => {
            let phase = pod.status.and_then(|s| s.phase).unwrap_or_default();
            if matches!(phase.as_str(), "Succeeded" | "Failed") {
                there()
            } else {
                None
            }
        }
        Ok(WatchEvent::Bookmark(_)) => None,
        Ok(WatchEvent::Error(_)) | Err(_) => Some(None),
    }
}
