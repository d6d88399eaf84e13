//! Kubernetes Events: one per object, reason and maintenance, so named that a
//! repeat is `AlreadyExists`. They wait in a bounded queue and are written
//! beside the passes, in the lowest lane: losing one costs nobody a pod.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use drainwell_core::intent::Intent;
use drainwell_core::observed::{Node, PodRef};
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::ports::Cluster;
use crate::telemetry::metrics::Metrics;

/// A thousand Events are those of about 300 pods at once: whoever needs more
/// detail than that reads the log.
pub(super) const WAITING_MAX: usize = 1000;
/// Few at once: they use calls that no eviction needs.
const AT_ONCE: usize = 4;
/// After the last pass: a drain by hand ends with an Event.
const LAST: Duration = Duration::from_secs(2);
/// `events.k8s.io/v1` allows a kilobyte.
const NOTE_MAX: usize = 1000;
/// A key has about forty characters; one from an annotation may have any number.
const KEY_MAX: usize = 80;

/// The object that an Event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A node.
    Node {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// A pod.
    Pod(PodRef),
}

/// An Event to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeEvent {
    /// Its own name.
    pub name: String,
    /// About whom.
    pub about: About,
    /// In one word, as `kubectl get events` shows it.
    pub reason: &'static str,
    /// Somebody may want to act.
    pub warning: bool,
    /// What is being done to the object.
    pub action: &'static str,
    /// A whole sentence.
    pub note: String,
    /// When it happened.
    pub at: Timestamp,
}

impl KubeEvent {
    /// What happened to a node's maintenance.
    pub(super) fn on_node(node: &Node, intent: &Intent, reason: &'static str, note: &str) -> Self {
        let about = About::Node {
            name: node.name.clone(),
            uid: node.uid.clone(),
        };
        Self::new(about, &intent.key, reason, "Draining", note)
    }

    /// What happened to a pod in a maintenance.
    pub(super) fn on_pod(pod: &PodRef, key: &str, reason: &'static str, note: &str) -> Self {
        Self::new(About::Pod(pod.clone()), key, reason, "Evicting", note)
    }

    fn new(
        about: About,
        key: &str,
        reason: &'static str,
        action: &'static str,
        note: &str,
    ) -> Self {
        let (About::Node { uid, .. } | About::Pod(PodRef { uid, .. })) = &about;
        Self {
            name: name(uid, reason, key),
            about,
            reason,
            warning: false,
            action,
            note: note.chars().take(NOTE_MAX / 4).collect(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    pub(super) fn warning(self) -> Self {
        Self {
            warning: true,
            ..self
        }
    }

    /// The object's UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        match &self.about {
            About::Node { uid, .. } | About::Pod(PodRef { uid, .. }) => uid,
        }
    }

    /// How many Events an object may have in one maintenance: there are six
    /// reasons for a node.
    pub(super) fn most(&self) -> usize {
        match self.about {
            About::Node { .. } => 6,
            About::Pod(_) => 3,
        }
    }
}

/// `UID.REASON.KEY` in the characters that a name may have.
fn name(uid: &str, reason: &str, key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let text: String = format!("{uid}.{reason}.").to_ascii_lowercase();
    let key: String = key.chars().take(KEY_MAX).map(plain).collect();
    let name = format!("drainwell.{text}{}", key.to_ascii_lowercase());
    name.trim_end_matches(['-', '.']).to_owned()
}

/// Where a loop puts its Events.
pub(super) struct Outbox {
    sender: mpsc::Sender<KubeEvent>,
    metrics: Metrics,
}

impl Outbox {
    /// Puts Events into the queue; those that find no room are counted.
    pub(super) fn put(&self, events: impl IntoIterator<Item = KubeEvent>) {
        for event in events {
            match self.sender.try_send(event) {
                Ok(()) => self.metrics.queued(1),
                Err(_) => self.metrics.event_dropped(),
            }
        }
    }
}

/// Runs `passes` with an outbox, and writes what is put into it. Ends soon
/// after them.
pub(super) async fn beside<F: Future<Output = ()>>(
    cluster: &Arc<dyn Cluster>,
    metrics: &Metrics,
    passes: impl FnOnce(Outbox) -> F,
) {
    let (sender, mut waiting) = mpsc::channel(WAITING_MAX);
    let outbox = Outbox {
        sender,
        metrics: metrics.clone(),
    };
    let queue = futures::stream::poll_fn(move |cx| waiting.poll_recv(cx));
    let mut written = pin!(queue.for_each_concurrent(AT_ONCE, |event| async move {
        metrics.queued(-1);
        // One try: the log has it as well.
        if let Err(error) = cluster.post_event(&event).await {
            metrics.event_dropped();
            tracing::debug!("The Event {} was not written: {error}", event.name);
        }
    }));
    let mut passes = pin!(passes(outbox));
    tokio::select! {
        biased;
        () = &mut passes => {}
        () = &mut written => passes.await,
    }
    drop(tokio::time::timeout(LAST, written).await);
}
