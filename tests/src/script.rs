//! Plays a script on the real control plane, with two instances of the service
//! and one clock for all: it moves on only when nobody has anything left to do.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use drainwell_app::cluster::KubeCluster;
use drainwell_app::driver::ports::{Cluster as _, ClusterId};
use drainwell_core::observed::PodRef;
use drainwell_core::time::shift;
use drainwell_sim::World;
use drainwell_sim::journal::What;
use drainwell_sim::script::{End, Entry, Line, Script, Step, stage as scene};
use drainwell_sim::spec::{BudgetSpec, MaintenanceSpec};
use drainwell_sim::world::WorldOptions;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use tokio::time::{Instant, sleep};

use crate::Lease;
use crate::compute::{Fault, Target};
use crate::control_plane::{CLUSTER, LOCATION, PROJECT};
use crate::fixture::{self, Amount};
use crate::hand::{LEADER, Leader};
use crate::lease::lease_by;
use crate::service::{Service, Setup};
use crate::wait::{eventually, millis};

mod mail;
mod stage;
mod told;
mod workload;

/// After a write, controllers and watches get this long to react to it.
const CALM: Duration = Duration::from_millis(120);
/// A service that was woken by the clock shows within this that it is at work.
const BREATH: Duration = Duration::from_millis(4);
/// Nothing takes longer to come to rest.
const RESTS_WITHIN: Duration = Duration::from_secs(30);
/// What is expected is there by now, or on its way: the scheduler takes up to ten
/// seconds to try a pod again, and the controller of Jobs to make one anew.
const EXPECTED_WITHIN: Duration = Duration::from_secs(20);

/// A script while it is played.
pub struct Player {
    script: Script,
    begin: Timestamp,
    /// Hosts and VMs; the pods are real.
    world: World,
    /// How much of the world's journal the cluster has followed.
    followed: usize,
    post: mail::Post,
    setup: Setup,
    services: [Option<Service>; 2],
    /// When an instance that is down comes back.
    back_at: [Timestamp; 2],
    /// When a partition ends.
    heals_at: Option<Timestamp>,
    first: BTreeMap<String, PodRef>,
    builds: u64,
    /// Something was done to the cluster that may have consequences.
    stirred: bool,
    kube: KubeCluster,
    leader: Leader,
    cluster: Lease,
}

impl Player {
    /// Sets the stage. `program` is the service with a clock that can be led.
    pub async fn new(script: &str, program: &Path) -> anyhow::Result<Self> {
        let script = Script::read(script)?;
        let begin = Timestamp::from_second(Timestamp::now().as_second() + 1)?;
        let leader = Leader::start(begin).await?;
        let clock = leader.clock();
        let cluster = lease_by(clock).await;
        let id = ClusterId {
            path: format!("{PROJECT}/{LOCATION}/{CLUSTER}"),
            name: CLUSTER.to_owned(),
            location: LOCATION.to_owned(),
        };
        let world = scene::bare(WorldOptions {
            id: id.clone(),
            project: PROJECT.to_owned(),
            clock,
            seed: 7,
            latency: SignedDuration::ZERO,
        });
        for name in scene::NODES {
            stage::add_node(&cluster, &world, name).await?;
        }
        let pods = cluster.journal.pods();
        cluster.proxy.rewrite_pods(move |pod| {
            let uid = pod["metadata"]["uid"].as_str().map(str::to_owned);
            let versions = pods.select(|known| known.uid() == uid).into_iter();
            let versions: Vec<_> = versions.map(|seen| (seen.at, seen.object)).collect();
            stage::translate(pod, &versions, clock.now());
        });
        let setup = cluster.service().program(program);
        let setup = setup.environment(LEADER, &leader.address());
        let (one, two) = tokio::try_join!(setup.clone().start(), setup.clone().start())?;
        Ok(Self {
            script,
            begin,
            world,
            followed: 0,
            post: mail::Post::default(),
            setup,
            services: [Some(one), Some(two)],
            back_at: [begin; 2],
            heals_at: None,
            first: BTreeMap::new(),
            builds: 0,
            stirred: true,
            kube: KubeCluster::new(id, cluster.admin.clone()),
            leader,
            cluster,
        })
    }

    /// Plays it, and waits until it has come to the end that is expected.
    pub async fn play(&mut self, expected_end: &str) -> anyhow::Result<()> {
        for line in self.script.lines.clone() {
            self.run_until(shift(self.begin, line.at_s)).await?;
            let taken = self.take(&line).await;
            taken.with_context(|| format!("at {} `{}`", line.at_s, line.text))?;
        }
        self.run_until(self.now()).await?;
        eventually(EXPECTED_WITHIN, "it ends as in the simulator", async || {
            let end = self.end().await?.print(&self.script);
            ensure!(
                end == expected_end,
                "\n{end}\nand in the simulator\n{expected_end}"
            );
            Ok(())
        })
        .await;
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.leader.clock().now()
    }

    /// Lets time pass, from one event to the next.
    async fn run_until(&mut self, end: Timestamp) -> anyhow::Result<()> {
        loop {
            self.happen().await?;
            let awaited = self.settle().await?;
            let now = self.now();
            if now >= end {
                return Ok(());
            }
            let down = self.services.iter().zip(self.back_at);
            let down = down.filter(|(service, _)| service.is_none());
            let known = [
                self.world.next_event(),
                self.post.next_due(),
                self.cluster.kubelet.next_end(),
                self.heals_at,
                down.map(|(_, back_at)| back_at).min(),
                awaited,
                Some(end),
            ];
            let next = known.into_iter().flatten().filter(|at| *at > now).min();
            self.leader.set(next.unwrap_or(end)).await;
        }
    }

    /// Carries out what is due.
    async fn happen(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        let new = self.world.journal_since(self.followed);
        self.followed += new.len();
        self.stirred |= !new.is_empty();
        for entry in &new {
            stage::follow(&self.cluster, &self.world, &entry.what).await?;
            if let What::Node { node, change } = &entry.what
                && let Some(kind) = Entry::of(change)
            {
                self.send(kind, node, entry.at);
            }
        }
        if self.heals_at.is_some_and(|at| at <= now) {
            self.heals_at = None;
            self.cluster.proxy.heal();
            self.cluster.compute.heal();
        }
        for index in 0..self.services.len() {
            if self.services[index].is_none() && self.back_at[index] <= now {
                self.services[index] = Some(self.setup.clone().start().await?);
                self.stirred = true;
            }
        }
        let up: Vec<&Service> = self.services.iter().flatten().collect();
        self.stirred |= self.post.deliver(&up, now).await;
        Ok(())
    }

    fn send(&mut self, entry: Entry, node: &str, at: Timestamp) {
        let Some(vm) = stage::vm(&self.world, node) else {
            return;
        };
        let shown = self.world.find_vm(node).and_then(|(_, vm)| vm.maintenance);
        let start = shown.and_then(|shown| shown.start).unwrap_or(at);
        self.post.send(entry, &vm, at, start, self.now());
    }

    /// Waits until nobody has anything left to do before the clock moves; gives
    /// the time that an instance waits for.
    async fn settle(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let (now, begun) = (self.now(), Instant::now());
        let mut stirred = std::mem::take(&mut self.stirred);
        let (mut since, mut seen) = (Instant::now(), self.cluster.journal.versions());
        loop {
            let awaited = self.leader.awaited().await;
            let ended = self.cluster.kubelet.next_end().is_some_and(|at| at <= now);
            let works = awaited.iter().any(|at| at.is_none_or(|at| at <= now));
            let versions = self.cluster.journal.versions();
            if works || ended || versions != seen {
                (stirred, seen) = (stirred || versions != seen, versions);
                since = Instant::now();
            } else if since.elapsed() >= if stirred { CALM } else { BREATH } {
                return Ok(awaited.into_iter().flatten().min());
            }
            if begun.elapsed() > RESTS_WITHIN {
                bail!("it does not come to rest: {}", self.last_calls());
            }
            sleep(millis(1)).await;
        }
    }

    /// What the service asked for last.
    fn last_calls(&self) -> String {
        let calls = self.cluster.audit.calls();
        let last = calls.iter().rev().take(20).rev();
        last.fold(String::new(), |all, call| {
            format!(
                "{all}\n{} {} {} {}",
                call.at,
                call.what(),
                call.code,
                call.uri
            )
        })
    }

    async fn take(&mut self, line: &Line) -> anyhow::Result<()> {
        let now = self.now();
        let later = |seconds: u32| shift(now, i64::from(seconds));
        self.stirred = true;
        match &line.step {
            Step::Pod { node, pod } => {
                let pod = workload::add(&self.cluster, node, pod).await?;
                self.first.insert(pod.uid.clone(), pod);
            }
            Step::Budget(budget) => self.add_budget(budget).await?,
            Step::Free(app) => {
                let budgets = self.cluster.api::<PodDisruptionBudget>("default");
                budgets.delete(app, &DeleteParams::default()).await?;
            }
            Step::Begin { node, in_s, how } => self.begin(node, later(*in_s), how),
            Step::Move { node, in_s } => {
                let how = self.world.pending(node).context("no window lies ahead")?;
                self.begin(node, later(*in_s), &how);
            }
            Step::Cancel(node) => {
                self.world.cancel(node);
                self.world.end_early(node);
            }
            Step::Notice { node, entry, age_s } => {
                self.send(*entry, node, shift(now, -i64::from(*age_s)));
            }
            Step::Mail { how, for_s } => self.post.rule(*how, later(*for_s)),
            Step::Crash {
                instance,
                gently,
                down_s,
            } => {
                let running = self.services[*instance].take().context("it is down")?;
                end(running, *gently).await?;
                self.back_at[*instance] = later(*down_s);
            }
            Step::Partition(for_s) => {
                self.cluster.proxy.go_away();
                self.cluster.compute.fail(Target::All, Fault::Status(503));
                self.heals_at = Some(later(*for_s));
            }
            Step::Touch { node, how } => {
                stage::rewrite(&self.cluster, node, |node| how.apply(node)).await?;
            }
            Step::Remove(node) => {
                self.world.remove_node(node);
                stage::remove_node(&self.cluster, node).await?;
            }
            Step::Rebuild(node) => {
                self.builds += 1;
                self.world.rebuild_node(scene::node(node, self.builds));
                stage::add_node(&self.cluster, &self.world, node).await?;
            }
            Step::Expect { what, object } => {
                eventually(EXPECTED_WITHIN, &line.text, async || {
                    let end = self.end().await?;
                    let holds = what.holds(object, &end, &self.script);
                    ensure!(holds, "\n{}", end.print(&self.script));
                    Ok(())
                })
                .await;
            }
        }
        Ok(())
    }

    fn begin(&self, node: &str, starts_at: Timestamp, how: &MaintenanceSpec) {
        scene::announce(&self.world, node, starts_at, how);
    }

    async fn add_budget(&self, spec: &BudgetSpec) -> anyhow::Result<()> {
        let running = self.first.values();
        let healthy = running.filter(|pod| self.script.app_of(&pod.name) == spec.name);
        let amount = Amount::MinAvailable(spec.min_available);
        let budget = fixture::BudgetSpec::new(&spec.name, amount);
        let healthy = i32::try_from(healthy.count())?;
        self.cluster.add_budget(&budget, healthy).await.map(drop)
    }

    /// What there is now, and what led to it.
    async fn end(&self) -> anyhow::Result<End> {
        let mut end = End {
            first: self.first.clone(),
            notices: self.post.answers.clone(),
            told: told::told(&self.cluster.journal),
            ..End::default()
        };
        for name in scene::NODES {
            end.nodes.extend(self.kube.node(name).await?);
            let bound = self.kube.pods(name).await?.pods.into_iter();
            end.pods
                .extend(bound.map(|pod| (pod, Some(name.to_owned()))));
        }
        let waiting = self.kube.pods("").await?.pods.into_iter();
        end.pods.extend(waiting.map(|pod| (pod, None)));
        Ok(end)
    }
}

async fn end(mut service: Service, gently: bool) -> anyhow::Result<()> {
    if gently {
        let code = service.terminate().await?;
        ensure!(code == 0, "the service ended with {code}");
        return Ok(());
    }
    service.kill9().await
}
