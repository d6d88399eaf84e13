//! Whatever happens, in whatever order, with the cluster never reset: in the
//! end a second pass finds nothing to do.

use anyhow::ensure;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{
    Amount, BudgetSpec, PodSpec, completed, ongoing, pending, terminate,
};
use drainwell_tests::wait::{eventually, secs};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};

use super::Scene;

/// Patience and window are short, so that a sequence ends within seconds.
const POLICY: &str = "windows: { gpu: 60s }\npatience: { gpu: 3s }";
const SEQUENCES: u64 = 4;
const STEPS: usize = 12;

#[derive(Debug, Clone, Copy)]
enum Happening {
    Begins,
    NoticedAgain,
    Announced,
    StopNoticed,
    Ends,
    CompletionNoticed,
    Boots,
    PodStarts,
    SlowPodStarts,
    SystemPodStarts,
    PodFinishes,
    BudgetAppears,
    BudgetGoes,
    Restart,
    Tick,
}

const ALL: [Happening; 15] = {
    use Happening::*;
    [
        Begins,
        NoticedAgain,
        Announced,
        StopNoticed,
        Ends,
        CompletionNoticed,
        Boots,
        PodStarts,
        SlowPodStarts,
        SystemPodStarts,
        PodFinishes,
        BudgetAppears,
        BudgetGoes,
        Restart,
        Tick,
    ]
};

#[tokio::test]
async fn after_any_sequence_a_second_pass_finds_nothing_to_do() {
    let seed = std::env::var("DRAINWELL_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| Timestamp::now().as_microsecond().unsigned_abs());
    // A failure is told with the seed that repeats it.
    println!("DRAINWELL_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut scene = Scene::new(POLICY).await;
    let mut pods = 0;
    let sequences = std::env::var("DRAINWELL_TEST_SEQUENCES")
        .ok()
        .and_then(|s| s.parse().ok());
    for sequence in 0..sequences.unwrap_or(SEQUENCES) {
        for _ in 0..STEPS {
            let happening = ALL[random.usize(..ALL.len())];
            println!("sequence {sequence}: {happening:?}");
            happen(&mut scene, happening, &mut pods).await;
        }
        settles(&scene).await;
    }
}

async fn happen(scene: &mut Scene, happening: Happening, count: &mut u32) {
    *count += 1;
    let (vm, name, now) = (scene.node.vm(), scene.node.name.clone(), Timestamp::now());
    let compute = &scene.cluster.compute;
    match happening {
        Happening::Begins => {
            scene.since = now;
            compute.set_maintenance(&name, Maintenance::ongoing(now));
            scene.begin().await;
        }
        Happening::NoticedAgain => drop(scene.push(&ongoing(&vm, scene.since)).await),
        Happening::Announced => {
            let start = now + SignedDuration::from_hours(9);
            scene.push(&pending(&vm, now, start)).await;
        }
        Happening::StopNoticed => drop(scene.push(&terminate(&vm, now)).await),
        Happening::Ends => compute.set_maintenance(&name, Maintenance::Empty),
        Happening::CompletionNoticed => drop(scene.push(&completed(&vm, now)).await),
        Happening::Boots => {
            let boot = format!("boot-{count}");
            scene
                .cluster
                .kubelet
                .set_boot_id(&name, &boot)
                .await
                .unwrap();
        }
        Happening::Restart => {
            scene.service.kill9().await.unwrap();
            scene.service.restart().await.unwrap();
        }
        Happening::Tick => drop(scene.service.tick().await.unwrap()),
        Happening::PodStarts
        | Happening::SlowPodStarts
        | Happening::SystemPodStarts
        | Happening::PodFinishes
        | Happening::BudgetAppears
        | Happening::BudgetGoes => happen_in_cluster(scene, happening, *count).await,
    }
}

async fn happen_in_cluster(scene: &Scene, happening: Happening, count: u32) {
    let cluster = &scene.cluster;
    let pod = PodSpec::new(&format!("p{count}"))
        .node(&scene.node.name)
        .label("app", "p");
    let pod = match happening {
        Happening::SlowPodStarts => pod.shutdown_ms(1500),
        Happening::SystemPodStarts => pod.namespace("kube-system"),
        Happening::PodFinishes => {
            let pods = cluster
                .pods("default")
                .list(&ListParams::default())
                .await
                .unwrap();
            let running = pods
                .items
                .iter()
                .find(|p| p.metadata.deletion_timestamp.is_none());
            if let Some(pod) = running {
                // It may have been evicted meanwhile.
                drop(cluster.kubelet.finish(pod, true).await);
            }
            return;
        }
        Happening::BudgetAppears => {
            let budget = BudgetSpec::new(&format!("b{count}"), Amount::MaxUnavailable(0)).app("p");
            cluster.create(&budget.budget()).await.unwrap();
            return;
        }
        Happening::BudgetGoes => {
            let budgets: Api<PodDisruptionBudget> = cluster.api("default");
            let all = ListParams::default();
            budgets
                .delete_collection(&DeleteParams::default(), &all)
                .await
                .unwrap();
            return;
        }
        _ => pod,
    };
    cluster.create(&pod.pod()).await.unwrap();
}

/// What passes have written. Events are not theirs: they follow in their own time.
fn writes(scene: &Scene) -> usize {
    let all = scene.cluster.audit.writes();
    all.iter().filter(|call| call.resource != "events").count()
}

/// Once nothing happens any more, pods and marks come to rest, and then a pass
/// writes nothing. A pod that has just come may still be unknown to one pass.
async fn settles(scene: &Scene) {
    eventually(secs(60), "a second pass finds nothing to do", async || {
        finds_nothing(scene).await?;
        let before = writes(scene);
        finds_nothing(scene).await?;
        ensure!(writes(scene) == before, "it has written");
        is_empty(scene).await
    })
    .await;
}

async fn finds_nothing(scene: &Scene) -> anyhow::Result<()> {
    let summary = scene.service.tick().await?;
    let rests = summary["actions"] == 0 && summary["waiting"] == 0;
    ensure!(rests, "{summary}");
    Ok(())
}

/// While marks are on, nothing evictable is left on the node.
async fn is_empty(scene: &Scene) -> anyhow::Result<()> {
    let node = scene.node().await;
    if !super::marked(&node) || super::intent(&node)["phase"] != "ongoing" {
        return Ok(());
    }
    let all: Api<k8s_openapi::api::core::v1::Pod> = Api::all(scene.cluster.admin.clone());
    for pod in all.list(&ListParams::default()).await? {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let done = drainwell_tests::journal::finished(&pod);
        ensure!(
            on != Some(&scene.node.name) || done,
            "{} is left",
            pod.name_any()
        );
    }
    Ok(())
}
