//! Hosts: a maintenance is announced, begins, stops the host for real, and
//! ends.

use std::time::Duration;

use drainwell_app::driver::ports::{Cloud as _, Cluster as _};
use drainwell_core::action::Outcome;
use drainwell_core::notice::Vm;
use drainwell_core::observed::Instance;
use drainwell_core::time::shift;
use drainwell_sim::World;
use drainwell_sim::journal::{NodeChange, PodChange, Way};
use drainwell_sim::spec::{MaintenanceSpec, Owner, PodSpec};
use jiff::Timestamp;

use super::{NODE, SPARE, begin, course, node_course, pass, places, pod, world};

fn maintenance(repair_s: u32) -> MaintenanceSpec {
    let reasons = vec!["PLANNED_UPDATE".to_owned()];
    MaintenanceSpec {
        notice_s: 300,
        repair_s,
        cleared_s: 90,
        reasons,
    }
}

async fn instance(world: &World) -> Instance {
    let (vm, _) = world.find_vm(NODE).expect("the node has a VM");
    world
        .instance(&vm)
        .await
        .expect("Compute answers")
        .expect("the VM exists")
}

fn at(seconds: i64) -> Timestamp {
    shift(begin(), seconds)
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_is_pending_then_ongoing_then_absent() {
    let world = world();
    let boot = world.find_node(NODE).unwrap().boot_id;
    assert!(world.announce(NODE, at(1000), maintenance(600)));
    let shown = instance(&world).await.maintenance.unwrap();
    assert_eq!((shown.ongoing, shown.start), (false, Some(at(1000))));
    pass(1100).await;
    let shown = instance(&world).await.maintenance.unwrap();
    assert_eq!((shown.ongoing, shown.start), (true, Some(at(1000))));
    assert!(instance(&world).await.running);
    pass(300).await;
    assert!(!instance(&world).await.running);
    assert!(!world.find_node(NODE).unwrap().ready);
    pass(600).await;
    let node = world.find_node(NODE).unwrap();
    assert!(node.ready && node.boot_id != boot && node.taints.is_empty());
    let vm = instance(&world).await;
    assert!(vm.running && vm.maintenance.is_none());
    assert_eq!(vm.last_start, Some(at(1900)));
    let expected = [
        (
            0,
            NodeChange::MaintenanceAnnounced {
                starts_at: at(1000),
            },
        ),
        (1000, NodeChange::MaintenanceBegan { stops_at: at(1300) }),
        (1300, NodeChange::HostStopped),
        (1340, NodeChange::NotReady),
        (1900, NodeChange::HostStarted),
        (1960, NodeChange::Ready),
        (1990, NodeChange::MaintenanceEnded),
    ];
    assert_eq!(node_course(&world, NODE), expected);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_takes_with_it_what_still_runs() {
    let world = world();
    let told = world.add_pod(Some(NODE), pod("told", Owner::Job).stops(600, 500));
    let forgotten = world.add_pod(Some(NODE), pod("forgotten", Owner::Job));
    let daemon = world.add_pod(Some(NODE), PodSpec::new("ml", "daemon", Owner::DaemonSet));
    let elsewhere = world.add_pod(Some(SPARE), pod("elsewhere", Owner::Nobody));
    assert!(world.announce(NODE, at(0), maintenance(120)));
    assert_eq!(world.evict(&told, None).await, Outcome::Done);
    pass(310).await;
    let lost = |told| PodChange::Lost { told };
    let evicted = PodChange::Told {
        way: Way::Evicted,
        grace_s: 600,
    };
    assert_eq!(course(&world, &told), [evicted.clone(), lost(true)]);
    assert_eq!(course(&world, &forgotten), [lost(false)]);
    assert_eq!(course(&world, &daemon), [lost(false)]);
    assert_eq!(course(&world, &elsewhere), []);
    // Nobody is left to confirm that they have stopped.
    assert_eq!(world.pods_on(NODE).len(), 3);
    pass(200).await;
    assert_eq!(course(&world, &told), [evicted, lost(true)]);
    assert_eq!(course(&world, &daemon), [lost(false), PodChange::Restarted]);
    let shown = world.pods_on(NODE);
    let failed = shown.iter().find(|p| p.id == forgotten).unwrap();
    assert!(failed.finished);
    assert!(shown.iter().all(|p| p.id != told));
    assert_eq!(places(&world, "told").len(), 1);
    assert_eq!(places(&world, "forgotten").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_stays_away_are_given_up() {
    let world = world();
    let web = world.add_pod(Some(NODE), pod("web", Owner::ReplicaSet));
    assert!(world.announce(NODE, at(0), maintenance(3600)));
    pass(300 + 40 + 301).await;
    let given_up = PodChange::Told {
        way: Way::Platform,
        grace_s: 30,
    };
    assert_eq!(
        course(&world, &web),
        [PodChange::Lost { told: false }, given_up]
    );
    assert_eq!(places(&world, "web"), [NODE, SPARE]);
    pass(3600).await;
    assert_eq!(places(&world, "web"), [SPARE]);
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_that_is_called_off_never_begins() {
    let world = world();
    assert!(world.announce(NODE, at(100), maintenance(60)));
    world.cancel(NODE);
    pass(5000).await;
    assert!(instance(&world).await.maintenance.is_none());
    let announced = NodeChange::MaintenanceAnnounced { starts_at: at(100) };
    assert_eq!(
        node_course(&world, NODE),
        [(0, announced), (0, NodeChange::MaintenanceCancelled)]
    );
    assert!(!world.announce("nobody", at(0), maintenance(60)));
}

#[tokio::test(start_paused = true)]
async fn compute_finds_a_vm_by_name_or_by_number() {
    let world = world();
    let (vm, shown) = world.find_vm(NODE).unwrap();
    let found = |vm: Vm| {
        let world = world.clone();
        async move { world.instance(&vm).await.unwrap().map(|i| i.id) }
    };
    assert_eq!(found(vm.clone()).await, Some(shown.id));
    assert_eq!(
        found(Vm {
            name: None,
            ..vm.clone()
        })
        .await,
        Some(shown.id)
    );
    assert_eq!(
        found(Vm {
            name: None,
            id: Some(1),
            ..vm.clone()
        })
        .await,
        None
    );
    assert_eq!(
        found(Vm {
            zone: "us-central1-b".to_owned(),
            ..vm
        })
        .await,
        None
    );
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_woken_by_what_happens_in_the_world() {
    let world = world();
    assert!(world.announce(NODE, at(50), maintenance(60)));
    let limit = Duration::from_secs(1000);
    let down = world.until_node(NODE, |node| !node.ready);
    tokio::time::timeout(limit, down).await.unwrap();
    assert_eq!(
        world.clock().now().as_second(),
        at(50 + 300 + 40).as_second()
    );
    let entries = tokio::time::timeout(limit, world.journal_after(4))
        .await
        .unwrap();
    assert!(
        matches!(entries[0].at, at_ if at_ >= at(390)),
        "{entries:?}"
    );
    tokio::time::timeout(limit, world.until_maintenance_over(NODE))
        .await
        .unwrap();
    assert_eq!(
        world.clock().now().as_second(),
        at(50 + 300 + 60 + 90).as_second()
    );
}
