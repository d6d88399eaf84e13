//! Pods: how they are told to stop, what budgets say to it, and who makes
//! them anew.

use std::time::Duration;

use drainwell_app::driver::ports::{Awaited, Changed, Cluster as _, Watching};
use drainwell_core::action::Outcome;
use drainwell_core::keys;
use drainwell_core::observed::PodRef;
use drainwell_sim::journal::{PodChange, Way};
use drainwell_sim::spec::{BudgetSpec, NodeSpec, Owner, PodSpec};

use super::{NODE, SPARE, course, pass, places, pod, world};

fn evicted(grace_s: u32) -> PodChange {
    PodChange::Told {
        way: Way::Evicted,
        grace_s,
    }
}

fn budget(min_available: u32) -> BudgetSpec {
    BudgetSpec {
        namespace: "ml".to_owned(),
        name: "keep".to_owned(),
        selector: [("app".to_owned(), "chat".to_owned())].into(),
        min_available,
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_another_uid_is_not_touched() {
    let world = world();
    let there = world.add_pod(Some(NODE), pod("a", Owner::Nobody));
    let other = PodRef {
        uid: "another".to_owned(),
        ..there.clone()
    };
    let now = world.clock().now();
    assert_eq!(world.evict(&other, None).await, Outcome::Stale);
    assert_eq!(world.force(&other, None, now).await, Outcome::Stale);
    assert_eq!(world.shorten(&other, 1).await, Outcome::Stale);
    pass(60).await;
    assert_eq!(course(&world, &there), []);
    assert_eq!(world.pods_on(NODE).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_takes_its_own_time_but_no_more_than_its_grace() {
    let world = world();
    let quick = world.add_pod(Some(NODE), pod("quick", Owner::Nobody).stops(100, 10));
    let slow = world.add_pod(Some(NODE), pod("slow", Owner::Nobody).stops(100, 900));
    for pod in [&quick, &slow] {
        assert_eq!(world.evict(pod, None).await, Outcome::Done);
    }
    let shown = world.pods(NODE).await.unwrap().pods;
    let end = shown.iter().map(|p| p.deletion_at.unwrap().as_second());
    assert_eq!(end.collect::<Vec<_>>(), [1_800_000_100, 1_800_000_100]);
    pass(50).await;
    assert_eq!(
        course(&world, &quick),
        [evicted(100), PodChange::Stopped { after_s: 10 }]
    );
    assert_eq!(course(&world, &slow), [evicted(100)]);
    pass(51).await;
    assert_eq!(
        course(&world, &slow),
        [evicted(100), PodChange::Killed { after_s: 100 }]
    );
    assert!(world.pods_on(NODE).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_delete_can_only_shorten_the_grace() {
    let world = world();
    let slow = world.add_pod(Some(NODE), pod("slow", Owner::Nobody).stops(600, 900));
    assert_eq!(world.evict(&slow, None).await, Outcome::Done);
    pass(10).await;
    assert_eq!(world.shorten(&slow, 900).await, Outcome::Done);
    assert_eq!(world.shorten(&slow, 30).await, Outcome::Done);
    pass(60).await;
    let told = PodChange::Told {
        way: Way::Shortened,
        grace_s: 30,
    };
    assert_eq!(
        course(&world, &slow),
        [evicted(600), told, PodChange::Killed { after_s: 40 }]
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_delete_counts_from_the_first() {
    let world = world();
    let slow = world.add_pod(Some(NODE), pod("slow", Owner::Nobody).stops(600, 900));
    assert_eq!(world.evict(&slow, None).await, Outcome::Done);
    let end = || world.pods_on(NODE)[0].deletion_at.unwrap().as_second();
    let told = end() - 600;
    pass(100).await;
    assert_eq!(world.shorten(&slow, 300).await, Outcome::Done);
    assert_eq!(end(), told + 300);
    pass(150).await;
    // Over since 50 s: as good as none.
    assert_eq!(world.shorten(&slow, 200).await, Outcome::Done);
    assert_eq!(end(), told + 250);
    pass(3).await;
    let cut = |grace_s| PodChange::Told {
        way: Way::Shortened,
        grace_s,
    };
    assert_eq!(
        course(&world, &slow),
        [
            evicted(600),
            cut(300),
            cut(1),
            PodChange::Killed { after_s: 251 }
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_blocks_until_another_pod_is_ready() {
    let world = world();
    let chat = pod("chat", Owner::ReplicaSet).label("app", "chat");
    let first = world.add_pod(Some(NODE), chat.clone());
    world.add_budget(budget(1));
    let blocked = world.evict(&first, None).await;
    assert!(
        matches!(&blocked, Outcome::Blocked { why } if why.contains("budget keep needs 1")),
        "{blocked:?}"
    );
    // Not yet ready, it doesn't count.
    let watching = Watching {
        budgets: ["ml".to_owned()].into(),
        ..Watching::default()
    };
    let mut slow = chat;
    slow.starts_in_s = 30;
    world.add_pod(None, slow);
    assert!(matches!(
        world.evict(&first, None).await,
        Outcome::Blocked { .. }
    ));
    let freed = tokio::time::timeout(Duration::from_secs(60), world.changed(&watching)).await;
    assert_eq!(freed, Ok(Changed::Budget("ml".to_owned())));
    assert_eq!(world.evict(&first, None).await, Outcome::Done);
    let held = PodChange::Blocked {
        budget: "keep".to_owned(),
    };
    assert_eq!(course(&world, &first), [held.clone(), held, evicted(30)]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_holds_back_only_pods_that_run() {
    let world = world();
    let done = pod("chat", Owner::Job).label("app", "chat").finished();
    let done = world.add_pod(Some(NODE), done);
    world.add_budget(budget(1));
    assert_eq!(world.evict(&done, None).await, Outcome::Done);
    assert!(world.pods_on(NODE).is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_budgets_on_one_pod_block_it() {
    let world = world();
    let chat = world.add_pod(Some(NODE), pod("chat", Owner::Nobody).label("app", "chat"));
    world.add_budget(budget(0));
    world.add_budget(BudgetSpec {
        name: "too".to_owned(),
        ..budget(0)
    });
    let outcome = world.evict(&chat, None).await;
    assert!(matches!(outcome, Outcome::Blocked { .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_forced_pod_goes_whatever_its_budget_says() {
    let world = world();
    let chat = pod("chat", Owner::Nobody).label("app", "chat").stops(30, 5);
    let chat = world.add_pod(Some(NODE), chat);
    world.add_budget(budget(1));
    assert_eq!(
        world.force(&chat, Some(20), world.clock().now()).await,
        Outcome::Done
    );
    pass(10).await;
    let told = PodChange::Told {
        way: Way::Forced,
        grace_s: 20,
    };
    assert_eq!(
        course(&world, &chat),
        [told, PodChange::Stopped { after_s: 5 }]
    );
}

#[tokio::test(start_paused = true)]
async fn each_controller_makes_its_pods_anew_in_its_own_time() {
    let world = world();
    let deployment = world.add_pod(Some(NODE), pod("web", Owner::ReplicaSet).stops(30, 20));
    let job = world.add_pod(Some(NODE), pod("job", Owner::Job).stops(30, 20));
    let set = world.add_pod(Some(NODE), pod("db-0", Owner::StatefulSet).stops(30, 20));
    for pod in [&deployment, &job, &set] {
        assert_eq!(world.evict(pod, None).await, Outcome::Done);
    }
    // A Deployment doesn't wait for its pod to be gone.
    assert_eq!(places(&world, "web").len(), 2);
    assert_eq!(places(&world, "job").len(), 1);
    pass(25).await;
    assert_eq!(places(&world, "web").len(), 1);
    assert!(places(&world, "job").is_empty());
    assert_eq!(places(&world, "db-0").len(), 1);
    assert_ne!(world.pods_on(NODE)[0].id.uid, set.uid);
    pass(10).await;
    assert_eq!(places(&world, "job"), [NODE]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_place_waits_for_room() {
    let world = world();
    world.add_node(NodeSpec::new("small", "us-central1-a", 13).gpus("nvidia-l4", 1));
    let only = PodSpec::new("ml", "one", Owner::Nobody).needs(1, &["small"]);
    let first = world.add_pod(None, only.clone());
    assert_eq!(world.pods_on("small").len(), 1);
    let second = world.add_pod(
        None,
        PodSpec {
            name: "two".to_owned(),
            ..only
        },
    );
    assert_eq!(world.pods_waiting().len(), 1);
    assert_eq!(world.evict(&first, None).await, Outcome::Done);
    pass(3).await;
    let bound = PodChange::Bound {
        node: "small".to_owned(),
    };
    assert_eq!(course(&world, &second), [bound]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_pod_comes_straight_back_only_if_it_tolerates_the_taint() {
    let world = world();
    world.add_node(NodeSpec::new("tainted", "us-central1-a", 13).taint(
        keys::TERMINATION_TAINT,
        "",
        keys::NO_SCHEDULE,
    ));
    let driver = PodSpec::new("kube-system", "driver", Owner::DaemonSet).tolerates("");
    let logs = PodSpec::new("logging", "logs", Owner::DaemonSet);
    let driver = world.add_pod(Some("tainted"), driver);
    let logs = world.add_pod(Some("tainted"), logs);
    for pod in [&driver, &logs] {
        assert_eq!(world.evict(pod, None).await, Outcome::Done);
    }
    pass(30).await;
    let there = world.pods_on("tainted");
    assert_eq!(there.len(), 1);
    assert!(there[0].id.name.starts_with("driver-"));
    assert_ne!(there[0].id.uid, driver.uid);
}

#[tokio::test(start_paused = true)]
async fn the_image_of_a_static_pod_is_put_back_and_its_containers_go_on() {
    let world = world();
    let proxy = PodSpec::new("kube-system", "kube-proxy", Owner::Static);
    let proxy = world.add_pod(Some(NODE), proxy);
    assert_eq!(world.evict(&proxy, None).await, Outcome::Done);
    let there = world.pods_on(NODE);
    assert_eq!(there.len(), 1);
    assert!(there[0].annotations.contains_key(keys::MIRROR_ANNOTATION));
    assert_eq!(course(&world, &proxy), [evicted(30)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_wakes_when_a_pod_of_its_node_is_gone() {
    let world = world();
    let here = world.add_pod(Some(NODE), pod("a", Owner::Nobody).stops(60, 20));
    let elsewhere = world.add_pod(Some(SPARE), pod("b", Owner::Nobody).stops(60, 5));
    let version = world.pods(NODE).await.unwrap().version;
    let awaited = Awaited {
        version,
        uids: [].into(),
    };
    let nodes = [(NODE.to_owned(), awaited)].into();
    let watching = Watching {
        nodes,
        ..Watching::default()
    };
    for pod in [&here, &elsewhere] {
        assert_eq!(world.evict(pod, None).await, Outcome::Done);
    }
    let begin = world.clock().now();
    let changed = tokio::time::timeout(Duration::from_secs(60), world.changed(&watching)).await;
    assert_eq!(changed, Ok(Changed::Pods(Some(NODE.to_owned()))));
    let waited_s = world.clock().now().duration_since(begin).as_secs();
    assert!((19..23).contains(&waited_s), "{waited_s}");
    // From the old version it wakes again, for nothing was missed.
    assert_eq!(
        world.changed(&watching).await,
        Changed::Pods(Some(NODE.to_owned()))
    );
}
