//! Ends that take minutes and hours: the same service in this process, with a
//! clock that runs 60 times as fast, against the same API server. Only that an
//! end does not come too early is claimed: the core's tables have exact times.

use std::sync::{Arc, Mutex};

use anyhow::ensure;
use async_trait::async_trait;
use drainwell_app::clock::Clock;
use drainwell_app::cluster::KubeCluster;
use drainwell_app::driver::ports::{CallError, Cloud, ClusterId};
use drainwell_app::serve::{self, Parts};
use drainwell_core::notice::Vm;
use drainwell_core::observed::{Instance, Maintenance};
use drainwell_core::policy::Policies;
use drainwell_tests::fixture::{NodeSpec, ongoing, terminate, wrap};
use drainwell_tests::wait::{eventually, secs};
use drainwell_tests::{Lease, lease};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{intent, marked, unmarked};

const SPEED: f64 = 60.0;
/// For what takes hours.
const FASTER: f64 = 600.0;

/// Compute Engine, as this test says it is.
#[derive(Clone)]
struct Shown(Arc<Mutex<Result<Instance, CallError>>>);

#[async_trait]
impl Cloud for Shown {
    async fn instance(&self, _: &Vm) -> Result<Option<Instance>, CallError> {
        self.0.lock().unwrap().clone().map(Some)
    }
}

impl Shown {
    fn set(&self, maintenance: Option<Maintenance>) {
        if let Ok(vm) = self.0.lock().unwrap().as_mut() {
            vm.maintenance = maintenance;
        }
    }
}

struct Fast {
    clock: Clock,
    shown: Shown,
    node: NodeSpec,
    url: String,
    _tasks: JoinSet<anyhow::Result<()>>,
    cluster: Lease,
}

impl Fast {
    /// A node that Compute shows under maintenance; its window is an hour.
    async fn new() -> Self {
        Self::at(SPEED).await
    }

    async fn at(speed: f64) -> Self {
        let cluster = lease().await;
        let node = NodeSpec::gpu("gke-train-a3-0001");
        cluster.add_node(&node).await.unwrap();
        let vm = node.vm();
        let clock = Clock::scaled(Timestamp::now(), speed);
        let labels = vm
            .labels
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()));
        let instance = Instance {
            id: vm.id,
            name: vm.name.clone(),
            running: true,
            terminates: true,
            labels: labels.collect(),
            created: Some(vm.created),
            last_start: Some(vm.last_start),
            maintenance: Some(under_way()),
        };
        let shown = Shown(Arc::new(Mutex::new(Ok(instance))));
        let id = ClusterId {
            path: "test".to_owned(),
            name: "test".to_owned(),
            location: String::new(),
        };
        let client = cluster.plane.as_service().await.unwrap();
        let kube = Arc::new(KubeCluster::new(id, client));
        let cloud: Arc<dyn Cloud> = Arc::new(shown.clone());
        let parts = Parts::new(vec![kube], Some(cloud), Policies::default(), clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::run(parts, listener, std::future::pending()));
        Self {
            clock,
            shown,
            node,
            url,
            _tasks: tasks,
            cluster,
        }
    }

    async fn push(&self, entry: &Value) -> Value {
        let request = reqwest::Client::new().post(&self.url).json(&wrap(entry));
        request.send().await.unwrap().json().await.unwrap()
    }

    async fn begin(&self) {
        let answer = self.push(&ongoing(&self.node.vm(), self.clock.now())).await;
        assert_eq!(answer["outcome"], "marked", "{answer}");
    }

    async fn node(&self) -> k8s_openapi::api::core::v1::Node {
        self.cluster.nodes().get(&self.node.name).await.unwrap()
    }

    /// Waits until the marks are off; gives the minutes since `from`.
    async fn minutes_until_unmarked(&self, from: Timestamp, bound: u64) -> i64 {
        eventually(secs(bound), "the node is unmarked", async || {
            let node = self.node().await;
            ensure!(unmarked(&node), "marked; the intent is {}", intent(&node));
            Ok(())
        })
        .await;
        self.clock.now().duration_since(from).as_mins()
    }

    async fn noted(&self, key: &str) {
        eventually(secs(10), "it is noted in the intent", async || {
            let node = self.node().await;
            ensure!(!intent(&node)[key].is_null(), "{}", intent(&node));
            Ok(())
        })
        .await;
    }
}

fn under_way() -> Maintenance {
    Maintenance {
        ongoing: true,
        ..Maintenance::default()
    }
}

#[tokio::test]
async fn absence_after_a_sign_ends_it_within_minutes() {
    let fast = Fast::new().await;
    fast.begin().await;
    fast.cluster
        .kubelet
        .set_node_ready(&fast.node.name, false)
        .await
        .unwrap();
    fast.noted("seen_down").await;
    fast.cluster
        .kubelet
        .set_node_ready(&fast.node.name, true)
        .await
        .unwrap();
    let from = fast.clock.now();
    fast.shown.set(None);
    let minutes = fast.minutes_until_unmarked(from, 90).await;
    assert!(minutes >= 1, "{minutes} minutes");
}

#[tokio::test]
async fn absence_without_a_sign_ends_it_after_ten_minutes() {
    let fast = Fast::new().await;
    fast.begin().await;
    let from = fast.clock.now();
    fast.shown.set(None);
    let minutes = fast.minutes_until_unmarked(from, 90).await;
    assert!(minutes >= 10, "{minutes} minutes");
}

#[tokio::test]
async fn a_maintenance_that_comes_back_into_sight_is_not_over() {
    let fast = Fast::new().await;
    fast.begin().await;
    fast.shown.set(None);
    fast.noted("absent_since").await;
    fast.shown.set(Some(under_way()));
    eventually(secs(10), "the absence is forgotten", async || {
        ensure!(intent(&fast.node().await)["absent_since"].is_null());
        Ok(())
    })
    .await;
    assert!(marked(&fast.node().await));
}

#[tokio::test]
async fn a_stop_that_compute_never_showed_ends_one_window_after_its_deadline() {
    let fast = Fast::new().await;
    fast.shown.set(None);
    let stopped = terminate(&fast.node.vm(), fast.clock.now());
    let answer = fast.push(&stopped).await;
    assert_eq!(answer["outcome"], "marked", "{answer}");
    let deadline: Timestamp = answer["deadline"].as_str().unwrap().parse().unwrap();
    // The assumed deadline is five minutes off; ten more are the least.
    let minutes = fast.minutes_until_unmarked(deadline, 90).await;
    assert!(minutes >= 10, "{minutes} minutes");
}

#[tokio::test]
async fn without_compute_it_ends_long_after_and_only_once_the_node_has_booted() {
    let fast = Fast::at(FASTER).await;
    let before = fast.clock.now() - SignedDuration::from_secs(10);
    let answer = fast.push(&ongoing(&fast.node.vm(), before)).await;
    assert_eq!(answer["outcome"], "marked", "{answer}");
    *fast.shown.0.lock().unwrap() = Err(CallError::unavailable("down for good"));
    fast.cluster
        .kubelet
        .set_boot_id(&fast.node.name, "another-boot")
        .await
        .unwrap();
    let deadline: Timestamp = answer["deadline"].as_str().unwrap().parse().unwrap();
    let minutes = fast.minutes_until_unmarked(deadline, 90).await;
    assert!(minutes >= 120, "{minutes} minutes");
}
