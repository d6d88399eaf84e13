//! Puts the marks of a drain by hand on a node, and takes off what is ours.

use anyhow::{Context as _, bail};
use drainwell_core::edit;
use drainwell_core::intent::Intent;
use drainwell_core::keys;
use drainwell_core::manual;
use drainwell_core::observed::Node;
use futures::stream::{self, StreamExt as _};

use super::Hand;
use crate::driver::ports::CallError;
use crate::telemetry::log::{self, Event, Subject};

/// A node is read and written again so often when others write in between.
const TRIES: usize = 5;
/// Nodes that are unmarked at once.
const NODES_AT_ONCE: usize = 16;

/// What came of taking marks off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// What was ours is off.
    Off {
        /// What stays though we put it there, and why.
        stays: Option<String>,
    },
    /// There was nothing of ours.
    Nothing,
}

impl Hand {
    /// Writes label, taint and intent in one patch, as the service does.
    ///
    /// # Errors
    /// When the node is not to be drained by hand, or can't be written.
    pub async fn mark(&self, name: &str, window_s: i64) -> anyhow::Result<Intent> {
        let policy = self.policies.of(&self.cluster.id().name);
        for _ in 0..TRIES {
            let node = self.node(name).await?;
            let now = self.clock.now();
            let intent = manual::begin(&node, &policy, window_s, now)
                .with_context(|| format!("node {name} is not drained by hand"))?;
            let (edit, intent) = edit::write(&node, &intent, &policy.label_value);
            match self.cluster.edit_node(&edit).await {
                Ok(_) => {
                    let subject = Subject {
                        cluster: Some(self.cluster.id()),
                        node: name,
                        key: &intent.key,
                    };
                    let what = format!("The node is marked: its window ends at {}.", end(&intent));
                    log::event(Event::NodeMarked, &subject, &what);
                    return Ok(intent);
                }
                Err(CallError::Stale) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("node {name} can't be marked"));
                }
            }
        }
        bail!("node {name} can't be marked: others changed it at each of {TRIES} tries")
    }

    /// Takes off what is ours on one node; `force`: also when the annotation
    /// can't be read.
    ///
    /// # Errors
    /// When there is no such node, its annotation can't be read, or it can't be
    /// written.
    pub async fn undo(&self, name: &str, force: bool) -> anyhow::Result<Undone> {
        let policy = self.policies.of(&self.cluster.id().name);
        for _ in 0..TRIES {
            let node = self.node(name).await?;
            let undo =
                manual::undo(&node, &policy, force, self.clock.now()).with_context(|| {
                    format!("node {name} is left as it is (--undo --force cleans it all the same)")
                })?;
            let Some((edit, stays)) = undo else {
                return Ok(Undone::Nothing);
            };
            match self.cluster.edit_node(&edit).await {
                Ok(_) => return Ok(Undone::Off { stays }),
                Err(CallError::Stale) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("node {name} can't be unmarked"));
                }
            }
        }
        bail!("node {name} can't be unmarked: others changed it at each of {TRIES} tries")
    }

    /// The same for every node with marks of ours, by name.
    ///
    /// # Errors
    /// When the nodes can't be listed.
    pub async fn undo_all(
        &self,
        force: bool,
    ) -> anyhow::Result<Vec<(String, anyhow::Result<Undone>)>> {
        let nodes = self.cluster.nodes(keys::MANAGED_LABEL, "true").await;
        let mut nodes = nodes.context("the nodes can't be listed")?;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let undone = stream::iter(nodes).map(|node| async move {
            let undone = self.undo(&node.name, force).await;
            (node.name, undone)
        });
        Ok(undone.buffered(NODES_AT_ONCE).collect().await)
    }

    async fn node(&self, name: &str) -> anyhow::Result<Node> {
        let cluster = &self.cluster.id().path;
        match self.cluster.node(name).await {
            Ok(Some(node)) => Ok(node),
            Ok(None) => bail!("there is no node {name} in {cluster}"),
            Err(error) => {
                Err(error).with_context(|| format!("node {name} of {cluster} can't be read"))
            }
        }
    }
}

/// The deadline in whole seconds, for people.
fn end(intent: &Intent) -> String {
    intent.deadline.strftime("%H:%M:%S UTC").to_string()
}
