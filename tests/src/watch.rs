//! Follows all objects of a kind, across the ends of single watches.

use std::fmt::Debug;

use anyhow::{anyhow, bail};
use futures::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there: newly, or already when the watch began.
    Added,
    /// It was changed.
    Modified,
    /// It is there no more.
    Deleted,
}

/// Far more than a test makes happen while one event is handled.
const WAITING_EVENTS: usize = 1024;

/// Sends all objects that there are, and then every change. The task lives in
/// `tasks`. When this returns, the list has been read, so that no later change
/// is missed.
pub(crate) async fn follow<K>(
    api: Api<K>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<mpsc::Receiver<(Change, K)>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let list = api.list(&ListParams::default()).await?;
    let mut version = list.metadata.resource_version.unwrap_or_default();
    let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
    tasks.spawn(async move {
        for object in list.items {
            if sender.send((Change::Added, object)).await.is_err() {
                return;
            }
        }
        while let Ok(next) = watch_once(&api, &version, &sender).await {
            version = next;
        }
    });
    Ok(receiver)
}

/// Watches until the server ends it; gives the last version that was seen.
async fn watch_once<K>(
    api: &Api<K>,
    from: &str,
    sender: &mpsc::Sender<(Change, K)>,
) -> anyhow::Result<String>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let mut version = from.to_owned();
    let stream = api.watch(&WatchParams::default(), from).await?;
    let mut stream = std::pin::pin!(stream);
    while let Ok(Some(event)) = stream.try_next().await {
        let (change, object) = match event {
            WatchEvent::Added(object) => (Change::Added, object),
            WatchEvent::Modified(object) => (Change::Modified, object),
            WatchEvent::Deleted(object) => (Change::Deleted, object),
            WatchEvent::Bookmark(bookmark) => {
                version = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => bail!("watch: {status}"),
        };
        version = object.resource_version().unwrap_or_default();
        sender
            .send((change, object))
            .await
            .map_err(|_| anyhow!("nobody listens"))?;
    }
    Ok(version)
}
