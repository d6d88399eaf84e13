//! From a notice to the intent on its Node: resolve the VM, confirm the
//! notice, write the marks. Answers only when that is durable, or when it is
//! known that nothing is to be done.

mod answer;

use std::sync::Arc;

use drainwell_core::confirm::{self, Ignored, REGISTRATION_S, Verdict};
use drainwell_core::edit;
use drainwell_core::intent::{Intent, Stored};
use drainwell_core::keys;
use drainwell_core::merge::{Facts, Merged, merge};
use drainwell_core::notice::{Notice, Vm};
use drainwell_core::observed::{Instance, Node};
use drainwell_core::policy::{Policies, Policy};
use drainwell_core::time::seconds_between;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

pub use self::answer::{Ack, Later, Told};
use crate::clock::Clock;
use crate::driver::ports::{CallError, Cloud, Cluster, ClusterId};
use crate::telemetry::log::{self, Event, Subject};
use crate::telemetry::metrics::Metrics;

/// Whether Compute Engine must confirm a notice before a node is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// Always.
    Required,
    /// If it can be asked.
    Prefer,
    /// It is not asked.
    Off,
}

/// Someone else wrote the Node in between: read again and merge, this often.
const MERGES_MAX: usize = 3;

/// The way from a notice to an intent.
pub struct Intake {
    clusters: Vec<Arc<dyn Cluster>>,
    cloud: Option<Arc<dyn Cloud>>,
    policies: Policies,
    clock: Clock,
    verify: Verify,
    dry_run: bool,
    metrics: Metrics,
}

/// A notice that has found its Node.
struct Found<'a> {
    cluster: &'a Arc<dyn Cluster>,
    node: Node,
    policy: Policy,
}

/// Ways to end early: nothing to do, or try again later.
enum End {
    Ignored(Ignored),
    Later(String),
}

/// Goes on only with a confirmed notice.
fn go_on(verdict: Verdict) -> Result<(), End> {
    match verdict {
        Verdict::Confirmed => Ok(()),
        Verdict::TooEarly(why) => Err(End::Later(why)),
        Verdict::Ignored(reason) => Err(End::Ignored(reason)),
    }
}

impl Intake {
    /// An intake for these clusters. `cloud` is there unless `verify` is off.
    #[must_use]
    pub fn new(
        clusters: Vec<Arc<dyn Cluster>>,
        cloud: Option<Arc<dyn Cloud>>,
        policies: Policies,
        clock: Clock,
        verify: Verify,
        dry_run: bool,
    ) -> Self {
        Self {
            clusters,
            cloud,
            policies,
            clock,
            verify,
            dry_run,
            metrics: Metrics::default(),
        }
    }

    /// The same, counting in `metrics`.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Where it counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Takes a notice in.
    ///
    /// # Errors
    /// When it can't be decided now what is to be done.
    pub async fn take(&self, notice: &Notice) -> Result<Ack, Later> {
        let taken = self.decide(notice).await;
        let outcome = taken.as_ref().map_or("later", |ack| ack.outcome.name());
        let (source, phase) = (notice.source.name(), notice.phase.name());
        self.metrics.notice(source, phase, outcome);
        if outcome == Told::Marked.name() && notice.at_known {
            let after = self.clock.now().duration_since(notice.at);
            self.metrics.marked_after(after.as_secs_f64());
        }
        taken
    }

    async fn decide(&self, notice: &Notice) -> Result<Ack, Later> {
        let ended = match self.resolve(notice).await {
            Ok((found, instance)) => self.write(notice, found, instance.as_ref()).await,
            Err(end) => Err(end),
        };
        match ended {
            Ok(ack) => Ok(ack),
            Err(End::Ignored(reason)) => Ok(Ack::ignored(reason)),
            Err(End::Later(why)) => Err(Later(why)),
        }
    }

    /// VM → cluster → Node, each step checked.
    async fn resolve(&self, notice: &Notice) -> Result<(Found<'_>, Option<Instance>), End> {
        let instance = self.ask_compute(&notice.vm).await?;
        if let (Some(told), Some(vm)) = (notice.vm.id, &instance)
            && told != vm.id
        {
            return Err(End::Ignored(Ignored::InstanceReplaced));
        }
        let home = instance.as_ref().map(|vm| {
            let label = |key: &str| vm.labels.get(key).cloned();
            (
                label(keys::VM_CLUSTER_LOCATION),
                label(keys::VM_CLUSTER_NAME),
            )
        });
        let labelled = home.as_ref().is_some_and(|(_, name)| name.is_some());
        let path = match home {
            Some((Some(location), Some(name))) => {
                Some(format!("{}/{location}/{name}", notice.vm.project))
            }
            Some(_) | None => None,
        };
        let name = instance
            .as_ref()
            .map(|vm| vm.name.clone())
            .or_else(|| notice.vm.name.clone());
        let Some(name) = name else {
            let why = "the entry has no name of the VM, and Compute Engine isn't asked";
            return Err(End::Later(why.to_owned()));
        };
        let named = self
            .clusters
            .iter()
            .find(|c| Some(&c.id().path) == path.as_ref());
        let asked = named.map_or_else(|| self.clusters.iter().collect(), |cluster| vec![cluster]);
        let id = instance.as_ref().map(|vm| vm.id).or(notice.vm.id);
        match find_node(&asked, &notice.vm, id, &name).await? {
            Some((cluster, node)) => {
                let policy = self.policies.of(&cluster.id().name);
                Ok((
                    Found {
                        cluster,
                        node,
                        policy,
                    },
                    instance,
                ))
            }
            None if instance.is_some() && !labelled => Err(End::Ignored(Ignored::NotAGkeNode)),
            None => Err(self.absent(notice, instance.as_ref(), named.is_some(), labelled)),
        }
    }

    async fn ask_compute(&self, vm: &Vm) -> Result<Option<Instance>, End> {
        let Some(cloud) = &self.cloud else {
            return Ok(None);
        };
        match cloud.instance(vm).await {
            Ok(Some(instance)) => Ok(Some(instance)),
            Ok(None) => Err(End::Ignored(Ignored::InstanceGone)),
            Err(error) => {
                if let CallError::Denied { what } = &error {
                    let what = format!("The service lacks the permission {what}.");
                    log::event(Event::PermissionMissing, &Subject::default(), &what);
                }
                if self.verify == Verify::Prefer {
                    tracing::warn!("Compute Engine can't confirm the notice for {vm}: {error}");
                    return Ok(None);
                }
                Err(End::Later(format!(
                    "Compute Engine can't be asked about {vm}: {error}"
                )))
            }
        }
    }

    /// No served cluster has the Node. Is that the last word? Only if the VM
    /// doesn't run, or has had the time to register.
    fn absent(
        &self,
        notice: &Notice,
        instance: Option<&Instance>,
        cluster_known: bool,
        labelled: bool,
    ) -> End {
        let reason = if labelled && !cluster_known {
            Ignored::ForeignCluster
        } else {
            Ignored::NodeGone
        };
        // An undated notice would find its VM young at each redelivery.
        let noticed = Some(notice.at).filter(|_| !notice.undated);
        let up_since = instance.map_or(noticed, |vm| vm.last_start.max(vm.created));
        let running = instance.is_none_or(|vm| vm.running);
        let now = self.clock.now();
        let registered = up_since.is_none_or(|t| seconds_between(t, now) > REGISTRATION_S);
        if !running || registered {
            End::Ignored(reason)
        } else {
            End::Later("the VM is young and its node may not have registered yet".to_owned())
        }
    }

    /// Confirms, merges and writes, again if someone else writes in between.
    async fn write(
        &self,
        notice: &Notice,
        mut found: Found<'_>,
        instance: Option<&Instance>,
    ) -> Result<Ack, End> {
        let policy = &found.policy;
        if let Some(vm) = instance {
            let now = self.clock.now();
            go_on(confirm::by_compute(notice, vm, policy, now))?;
        }
        for _ in 0..MERGES_MAX {
            let now = self.clock.now();
            go_on(confirm::by_node(notice, &found.node, instance, policy, now))?;
            let facts = Facts {
                notice,
                node: &found.node,
                instance,
                policy,
                now,
            };
            let merged = merge(&facts, &Stored::on(&found.node));
            match self.put(&found, merged).await? {
                Some(ack) => return Ok(ack),
                None => match found.cluster.node(&found.node.name).await {
                    Ok(Some(node)) => found.node = node,
                    Ok(None) => return Err(End::Ignored(Ignored::NodeGone)),
                    Err(error) => return Err(End::Later(error.to_string())),
                },
            }
        }
        Err(End::Later(
            "the Node was changed by others at each try".to_owned(),
        ))
    }

    /// Puts the managed label back if somebody took it away: no pass would find
    /// the node without it. `false` when the Node has changed meanwhile.
    async fn keep_managed(&self, found: &Found<'_>, open: Option<&Intent>) -> Result<bool, End> {
        let Found { cluster, node, .. } = found;
        let Some(open) = open.filter(|_| !node.labels.contains_key(keys::MANAGED_LABEL)) else {
            return Ok(true);
        };
        if self.dry_run {
            return Ok(true);
        }
        let (patch, _) = edit::write(node, open, &open.label_value);
        match cluster.edit_node(&patch).await {
            Ok(_) => Ok(true),
            Err(CallError::Stale) => Ok(false),
            Err(error) => Err(refused(&error, cluster.id(), node, open)),
        }
    }

    /// Writes what a merge came to; `None` when the Node has changed meanwhile.
    async fn put(&self, found: &Found<'_>, merged: Merged) -> Result<Option<Ack>, End> {
        let Found {
            cluster,
            node,
            policy,
        } = found;
        let ack = |outcome, intent: Option<&Intent>| Ack {
            outcome,
            reason: None,
            cluster: Some(cluster.id().path.clone()),
            node: Some(node.name.clone()),
            deadline: intent.map(|i| i.deadline),
        };
        let (patch, intent, told) = match merged {
            Merged::Unchanged => {
                let open = match Stored::on(node) {
                    Stored::Intent(intent) => Some(intent),
                    Stored::Nothing | Stored::Unreadable(_) => None,
                };
                let ack = ack(Told::Unchanged, open.as_deref());
                return self
                    .keep_managed(found, open.as_deref())
                    .await
                    .map(|kept| kept.then_some(ack));
            }
            Merged::Stale => return Err(End::Ignored(Ignored::Stale)),
            Merged::Unreadable(why) => {
                return Err(End::Later(format!(
                    "the node's annotation can't be read: {why}"
                )));
            }
            Merged::Mark(intent) => {
                let (patch, intent) = edit::write(node, &intent, &policy.label_value);
                (patch, intent, Told::Marked)
            }
            Merged::Record(intent) => {
                let (patch, intent) = edit::write(node, &intent, &policy.label_value);
                (patch, intent, Told::Scheduled)
            }
            Merged::Update(intent) => (edit::rewrite(node, &intent), intent, Told::Updated),
            Merged::Complete(intent) => (edit::rewrite(node, &intent), intent, Told::Completed),
            Merged::Forget(intent) => (edit::unmark(node, &intent).0, intent, Told::Completed),
        };
        if self.dry_run {
            tracing::info!("Dry run, not written to {}: {}", node.name, patch.patch);
            return Err(End::Ignored(Ignored::DryRun));
        }
        match cluster.edit_node(&patch).await {
            Ok(_) => {
                tell(told, cluster.id(), node, &intent);
                Ok(Some(ack(told, Some(&intent))))
            }
            Err(CallError::Stale) => Ok(None),
            Err(error) => Err(refused(&error, cluster.id(), node, &intent)),
        }
    }
}

/// Asks every given cluster for the VM's Node: the one whose providerID fits,
/// or its instance id where it has no providerID. Whoever is slow is not waited
/// for once another has it.
async fn find_node<'a>(
    asked: &[&'a Arc<dyn Cluster>],
    vm: &Vm,
    id: Option<u64>,
    name: &str,
) -> Result<Option<(&'a Arc<dyn Cluster>, Node)>, End> {
    let provider_id = format!("gce://{}/{}/{name}", vm.project, vm.zone);
    let fits = |node: &Node| match &node.provider_id {
        Some(has) => *has == provider_id,
        None => id.is_some() && node.instance_id() == id,
    };
    let answers = asked.iter().map(|c| async { (*c, c.node(name).await) });
    let mut answers: FuturesUnordered<_> = answers.collect();
    let mut failed = None;
    while let Some((cluster, answer)) = answers.next().await {
        match answer {
            Ok(Some(node)) if fits(&node) => return Ok(Some((cluster, node))),
            Ok(_) => {}
            Err(error) => failed = Some((cluster.id(), error)),
        }
    }
    let Some((id, error)) = failed else {
        return Ok(None);
    };
    let subject = Subject {
        cluster: Some(id),
        node: name,
        ..Subject::default()
    };
    if let CallError::Denied { what } = &error {
        let what = format!("The service lacks the permission to {what}.");
        log::event(Event::PermissionMissing, &subject, &what);
    }
    Err(End::Later(format!(
        "cluster {} can't be asked: {error}",
        id.path
    )))
}

fn tell(told: Told, cluster: &ClusterId, node: &Node, intent: &Intent) {
    let subject = Subject {
        cluster: Some(cluster),
        node: &node.name,
        key: &intent.key,
    };
    let deadline = intent.deadline;
    match told {
        Told::Marked => {
            let sure = if intent.deadline_known {
                ""
            } else {
                " (assumed)"
            };
            let what = format!("The node is marked: its host stops at {deadline}{sure}.");
            log::event(Event::NodeMarked, &subject, &what);
        }
        Told::Scheduled => {
            let what = format!("A maintenance from {} on is recorded.", intent.since);
            log::event(Event::MaintenanceScheduled, &subject, &what);
        }
        Told::Updated | Told::Completed | Told::Unchanged | Told::Ignored => {}
    }
}

/// The Node could not be written, and not because it had changed.
fn refused(error: &CallError, cluster: &ClusterId, node: &Node, intent: &Intent) -> End {
    let subject = Subject {
        cluster: Some(cluster),
        node: &node.name,
        key: &intent.key,
    };
    match error {
        CallError::Refused { why } => {
            let what = format!("Admission refuses to let the Node be written: {why}");
            log::alarm(Event::NoticeIgnored, &subject, &what);
            End::Ignored(Ignored::NodeNotWritable)
        }
        CallError::Denied { what } => {
            let what = format!("The service lacks the permission to {what}.");
            log::event(Event::PermissionMissing, &subject, &what);
            End::Later("a permission is missing".to_owned())
        }
        CallError::Stale | CallError::Unavailable { .. } => {
            End::Later(format!("the Node can't be written: {error}"))
        }
    }
}
