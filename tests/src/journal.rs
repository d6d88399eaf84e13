//! The history of nodes and pods, version by version, for claims about order:
//! which change came with which other one, and what came before what.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use drainwell_app::clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::wait::{eventually, secs};
pub use crate::watch::Change;
use crate::watch::follow;

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Seen<K> {
    /// What happened.
    pub change: Change,
    /// The version at which it happened. Versions of all kinds come from one
    /// counter, so they order changes of nodes and pods among each other.
    pub version: u64,
    /// When this process heard of it.
    pub at: Timestamp,
    /// The object as it was then; for `Deleted`, as it was last.
    pub object: K,
}

/// Records every version of every node and pod while it lives.
pub struct Journal {
    client: Client,
    nodes: Log<Node>,
    pods: Log<Pod>,
    _tasks: JoinSet<()>,
}

impl Journal {
    /// Begins with what there is, and dates it by this clock.
    pub async fn start(client: Client, clock: Clock) -> anyhow::Result<Self> {
        let mut tasks = JoinSet::new();
        let nodes = Log::default();
        let pods = Log::default();
        let node_events = follow(Api::<Node>::all(client.clone()), &mut tasks).await?;
        let pod_events = follow(Api::<Pod>::all(client.clone()), &mut tasks).await?;
        tasks.spawn(nodes.clone().record(node_events, clock));
        tasks.spawn(pods.clone().record(pod_events, clock));
        Ok(Self {
            client,
            nodes,
            pods,
            _tasks: tasks,
        })
    }

    /// Waits until everything that has happened so far is recorded. Call it
    /// before a claim that something did *not* happen.
    pub async fn catch_up(&self) {
        self.nodes.catch_up(Api::all(self.client.clone())).await;
        self.pods.catch_up(Api::all(self.client.clone())).await;
    }

    /// The versions of a node, oldest first.
    pub fn node(&self, name: &str) -> Vec<Seen<Node>> {
        self.nodes.select(|node| node.name_any() == name)
    }

    /// The versions of a pod, oldest first.
    pub fn pod(&self, uid: &str) -> Vec<Seen<Pod>> {
        self.pods
            .select(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }

    /// How many versions there were so far.
    pub fn versions(&self) -> usize {
        self.nodes.lock().len() + self.pods.lock().len()
    }

    /// The versions of pods, for those who outlive a borrow of this.
    pub(crate) fn pods(&self) -> Log<Pod> {
        self.pods.clone()
    }

    /// The versions of all pods of a namespace, oldest first.
    pub fn pods_in(&self, namespace: &str) -> Vec<Seen<Pod>> {
        self.pods
            .select(|pod| pod.metadata.namespace.as_deref() == Some(namespace))
    }

    /// The first version of a node for which `holds`.
    pub fn first_node(&self, name: &str, holds: impl Fn(&Node) -> bool) -> Option<Seen<Node>> {
        let mut versions = self.node(name).into_iter();
        versions.find(|seen| seen.change != Change::Deleted && holds(&seen.object))
    }

    /// The version at which a pod was told to leave.
    pub fn asked_to_leave(&self, uid: &str) -> Option<Seen<Pod>> {
        let mut versions = self.pod(uid).into_iter();
        versions.find(|seen| {
            // One with a grace of 0 is deleted without that version in between.
            let told = seen.object.metadata.deletion_timestamp.is_some();
            told || seen.change == Change::Deleted
        })
    }

    /// The version at which a pod was gone: deleted, or its containers ended.
    pub fn gone(&self, uid: &str) -> Option<Seen<Pod>> {
        let mut versions = self.pod(uid).into_iter();
        versions.find(|seen| seen.change == Change::Deleted || finished(&seen.object))
    }

    /// Fails unless each of `later` was told to leave after all of `earlier`
    /// were gone. Uids.
    pub fn ensure_order(&self, earlier: &[String], later: &[String]) -> anyhow::Result<()> {
        for first in earlier {
            let Some(gone) = self.gone(first) else {
                anyhow::bail!("pod {first} is not gone");
            };
            for second in later {
                if let Some(asked) = self.asked_to_leave(second) {
                    ensure!(
                        asked.version > gone.version,
                        "{} was told to leave at version {}, {} was gone at {}",
                        asked.object.name_any(),
                        asked.version,
                        gone.object.name_any(),
                        gone.version,
                    );
                }
            }
        }
        Ok(())
    }
}

/// Whether a pod's containers have ended for good.
pub fn finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The versions of all objects of a kind.
#[derive(Debug)]
pub(crate) struct Log<K>(Arc<Mutex<Vec<Seen<K>>>>);

impl<K> Default for Log<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> Clone for Log<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Log<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    fn lock(&self) -> MutexGuard<'_, Vec<Seen<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn record(self, mut events: mpsc::Receiver<(Change, K)>, clock: Clock) {
        while let Some((change, object)) = events.recv().await {
            let version = version(&object);
            self.lock().push(Seen {
                change,
                version,
                at: clock.now(),
                object,
            });
        }
    }

    pub(crate) fn select(&self, wanted: impl Fn(&K) -> bool) -> Vec<Seen<K>> {
        self.lock()
            .iter()
            .filter(|seen| wanted(&seen.object))
            .cloned()
            .collect()
    }

    /// The latest recorded version of each object that is still there.
    fn present(&self) -> BTreeMap<Option<String>, u64> {
        let mut latest = BTreeMap::new();
        for seen in self.lock().iter() {
            let uid = seen.object.uid();
            if seen.change == Change::Deleted {
                latest.remove(&uid);
            } else {
                latest.insert(uid, seen.version);
            }
        }
        latest
    }

    async fn catch_up(&self, api: Api<K>) {
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list,
            Err(error) => panic!("the journal can't list: {error}"),
        };
        let listed_at = parse_version(list.metadata.resource_version.as_deref());
        let listed: BTreeMap<_, _> = list
            .items
            .iter()
            .map(|object| (object.uid(), version(object)))
            .collect();
        eventually(secs(20), "the journal has seen everything", async || {
            let present = self.present();
            for (uid, wanted) in &listed {
                let recorded = self.select(|object| object.uid() == *uid);
                let latest = recorded.last().map_or(0, |seen| seen.version);
                ensure!(
                    latest >= *wanted,
                    "{uid:?} is behind: {latest}, not {wanted}"
                );
            }
            for (uid, latest) in &present {
                let gone = !listed.contains_key(uid) && *latest <= listed_at;
                ensure!(!gone, "{uid:?} is deleted, which is not recorded yet");
            }
            Ok(())
        })
        .await;
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    parse_version(object.meta().resource_version.as_deref())
}

fn parse_version(version: Option<&str>) -> u64 {
    version
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}
