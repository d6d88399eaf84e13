//! The play: what happens to the hosts, act by act. All else follows from it.

use std::time::Duration;

use anyhow::{Context as _, bail};
use drainwell_core::observed::Node;
use drainwell_core::time::shift;

use super::narrate::Narrator;
use super::scene;
use super::screen::Screen;
use super::story::{ActStory, Cast, Story};
use crate::spec::MaintenanceSpec;
use crate::world::World;

/// Before the first act, and between the acts.
const PAUSE_S: i64 = 60;
/// How long after its host's return a node's marks may stay.
const MARKS_S: i64 = 1800;
/// The service has this long to be ready, in real time: it is a real one.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The stage, and what has been played on it.
pub(super) struct Stage<'a> {
    world: &'a World,
    screen: &'a Screen,
    played: Vec<ActStory>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(world: &'a World, screen: &'a Screen) -> Self {
        Self {
            world,
            screen,
            played: Vec::new(),
        }
    }

    /// What has been played so far.
    pub(super) fn story(&self) -> Story {
        Story {
            acts: self.played.clone(),
        }
    }

    /// Plays all acts.
    pub(super) async fn play(&mut self, base: &str) -> anyhow::Result<()> {
        tokio::time::timeout(READY_TIMEOUT, until_ready(base))
            .await
            .context("the service has not become ready")??;
        let clock = self.world.clock();
        let text = "A training job saves its checkpoint in about 4 minutes, another one needs \
                    half an hour.\nAn inference server is held by a disruption budget that has \
                    nothing to give. Somebody\nhas put a taint of their own on the node: it has \
                    to be there at the end.";
        clock.sleep_until(shift(clock.now(), PAUSE_S)).await;
        self.act(
            "Act 1: a GPU node, 60 minutes from the notice to the stop of its host",
            text,
            &[scene::GPU_NODE],
            &scene::gpu_maintenance(),
        )
        .await?;
        clock.sleep_until(shift(clock.now(), PAUSE_S)).await;
        let text = "One training step runs on both hosts.";
        self.act(
            "Act 2: a TPU slice of two hosts, 5 minutes from the notice to their stop",
            text,
            &scene::TPU_NODES,
            &scene::tpu_maintenance(),
        )
        .await
    }

    /// One maintenance, from the notice until the nodes are as they were.
    async fn act(
        &mut self,
        title: &str,
        text: &str,
        nodes: &[&str],
        maintenance: &MaintenanceSpec,
    ) -> anyhow::Result<()> {
        let world = self.world;
        let since = world.clock().now();
        let cast = Cast::of(world, title, nodes, &scene::OTHER_NODES, since);
        self.screen.act(title, text, since)?;
        let mut narrator = Narrator::new(world, self.screen, since);
        for node in nodes {
            if !world.announce(node, since, maintenance.clone()) {
                bail!("there is no node {node}");
            }
        }
        let down_s = i64::from(maintenance.notice_s) + i64::from(maintenance.repair_s);
        let last = shift(since, down_s + MARKS_S);
        let clock = world.clock();
        tokio::select! {
            biased;
            error = narrator.read() => return Err(error.into()),
            () = until_back(world, &cast.nodes) => {}
            () = clock.sleep_until(last) => {}
        }
        narrator.catch_up()?;
        self.played.push(cast.story(world));
        Ok(())
    }
}

/// Waits until each node has booted, and is what it was before.
async fn until_back(world: &World, before: &[Node]) {
    for node in before {
        let back = |now: &Node| now.boot_id != node.boot_id && differences(node, now).is_empty();
        world.until_node(&node.name, back).await;
        world.until_maintenance_over(&node.name).await;
    }
}

/// What a maintenance has left behind on a Node.
pub(super) fn differences(before: &Node, now: &Node) -> Vec<String> {
    let mut all = Vec::new();
    if !now.ready {
        all.push("it is not Ready".to_owned());
    }
    for (what, before, now) in [
        ("labels", &before.labels, &now.labels),
        ("annotations", &before.annotations, &now.annotations),
    ] {
        let other = |key: &&String| before.get(*key) != now.get(*key);
        let keys: Vec<_> = before
            .keys()
            .chain(now.keys())
            .filter(other)
            .cloned()
            .collect();
        if !keys.is_empty() {
            all.push(format!("its {what} differ: {}", keys.join(", ")));
        }
    }
    if before.taints != now.taints {
        let keys: Vec<_> = now.taints.iter().map(|t| t.key.as_str()).collect();
        all.push(format!("its taints differ: {}", keys.join(", ")));
    }
    all
}

async fn until_ready(base: &str) -> anyhow::Result<()> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .context("no HTTP client")?;
    let url = format!("{base}/health/ready");
    loop {
        if let Ok(response) = client.get(&url).send().await
            && response.status().is_success()
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
