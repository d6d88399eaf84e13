//! Multi-host TPU slices: marked, drained and ended as one, node by node.

use anyhow::ensure;
use drainwell_tests::compute::Maintenance;
use drainwell_tests::fixture::{Amount, BudgetSpec, NodeSpec, PodSpec, completed, ongoing};
use drainwell_tests::service::Service;
use drainwell_tests::wait::{eventually, secs};
use drainwell_tests::{Lease, lease};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use super::{SHORT_TICKS, intent, marked, outcome, unmarked};

struct Slice {
    service: Service,
    hosts: Vec<NodeSpec>,
    ranks: Vec<Pod>,
    since: Timestamp,
    cluster: Lease,
}

impl Slice {
    /// Two hosts of four chips each, with a rank of one gang on each.
    async fn new(topology: &str, policy: &str) -> Self {
        let cluster = lease().await;
        let since = Timestamp::now();
        let (mut hosts, mut ranks) = (vec![], vec![]);
        for n in 0..2 {
            let host = NodeSpec::tpu(&format!("gke-tpu-{n}"), topology, 4).pool("slice");
            cluster.add_node(&host).await.unwrap();
            cluster
                .compute
                .set_maintenance(&host.name, Maintenance::ongoing(since));
            let rank = PodSpec::new(&format!("rank-{n}"))
                .node(&host.name)
                .grace_s(60)
                .shutdown_ms(1000)
                .label("jobset.sigs.k8s.io/jobset-name", "llm");
            ranks.push(cluster.add_pod(&rank).await.unwrap());
            hosts.push(host);
        }
        let setup = cluster.service().policy(policy).arguments(SHORT_TICKS);
        let service = setup.start().await.unwrap();
        Self {
            service,
            hosts,
            ranks,
            since,
            cluster,
        }
    }

    async fn host(&self, n: usize) -> Node {
        self.cluster.nodes().get(&self.hosts[n].name).await.unwrap()
    }

    async fn is_gone(&self, n: usize) {
        eventually(secs(20), "the rank is gone", async || {
            let uid = self.ranks[n].uid().unwrap();
            ensure!(self.cluster.kubelet.departure(&uid).is_some());
            Ok(())
        })
        .await;
    }

    /// The version at which a host was marked, and its rank told to stop.
    fn times(&self, n: usize) -> (u64, u64) {
        let journal = &self.cluster.journal;
        let mark = journal
            .first_node(&self.hosts[n].name, marked)
            .unwrap()
            .version;
        (
            mark,
            journal
                .asked_to_leave(&self.ranks[n].uid().unwrap())
                .unwrap()
                .version,
        )
    }
}

const UNHURRIED: &str = "windows: { tpu: 10m }";

#[tokio::test]
async fn a_notice_for_one_host_marks_its_slice_before_any_rank_leaves() {
    let slice = Slice::new("2x4", UNHURRIED).await;
    let vm = slice.hosts[0].vm();
    let told = slice
        .service
        .push_wrapped(&ongoing(&vm, slice.since))
        .await
        .unwrap();
    assert_eq!(outcome(&told).0, "marked");
    slice.is_gone(0).await;
    slice.is_gone(1).await;
    slice.cluster.journal.catch_up().await;
    let ((mark_0, left_0), (mark_1, left_1)) = (slice.times(0), slice.times(1));
    assert!(
        mark_0.max(mark_1) < left_0.min(left_1),
        "a rank left before both were marked"
    );
    let (first, second) = (intent(&slice.host(0).await), intent(&slice.host(1).await));
    assert_eq!(second["source"], "slice");
    assert_eq!(first["deadline"], second["deadline"]);
    let id = slice.hosts[1].instance_id.to_string();
    assert!(
        second["key"].as_str().unwrap().starts_with(&id),
        "an intent of its own"
    );
    // A later notice for the other belongs to the intent that it has.
    let again = ongoing(&slice.hosts[1].vm(), slice.since);
    let again = slice.service.push_wrapped(&again).await.unwrap();
    assert_eq!(outcome(&again).0, "unchanged");
}

#[tokio::test]
async fn a_slice_is_unmarked_node_by_node_and_not_marked_again() {
    let slice = Slice::new("2x4", UNHURRIED).await;
    let vm = slice.hosts[0].vm();
    slice
        .service
        .push_wrapped(&ongoing(&vm, slice.since))
        .await
        .unwrap();
    slice.is_gone(1).await;
    let second = &slice.hosts[1];
    slice
        .cluster
        .compute
        .set_maintenance(&second.name, Maintenance::Empty);
    let done = completed(&second.vm(), Timestamp::now());
    slice.service.push_wrapped(&done).await.unwrap();
    eventually(secs(20), "the second host is unmarked", async || {
        ensure!(unmarked(&slice.host(1).await));
        Ok(())
    })
    .await;
    slice.service.tick().await.unwrap();
    slice.service.tick().await.unwrap();
    assert!(
        marked(&slice.host(0).await),
        "the first is still under maintenance"
    );
    assert!(
        unmarked(&slice.host(1).await),
        "it came back first and stays so"
    );
}

#[tokio::test]
async fn a_pool_of_single_hosts_is_no_slice_and_policy_can_leave_slices_apart() {
    for (topology, policy) in [
        ("2x2", UNHURRIED),
        ("2x4", "gangs: node\nwindows: { tpu: 10m }"),
    ] {
        let slice = Slice::new(topology, policy).await;
        let vm = slice.hosts[0].vm();
        slice
            .service
            .push_wrapped(&ongoing(&vm, slice.since))
            .await
            .unwrap();
        slice.is_gone(0).await;
        slice.service.tick().await.unwrap();
        assert!(unmarked(&slice.host(1).await), "{topology} {policy}");
    }
}

#[tokio::test]
async fn a_rank_that_a_budget_holds_is_forced_once_another_has_left() {
    let policy = "windows: { tpu: 10m }\npatience: { tpu: 10m }";
    let slice = Slice::new("2x4", policy).await;
    let budget = BudgetSpec::new("held", Amount::MinAvailable(1)).app("rank-1");
    slice.cluster.add_budget(&budget, 1).await.unwrap();
    let vm = slice.hosts[0].vm();
    slice
        .service
        .push_wrapped(&ongoing(&vm, slice.since))
        .await
        .unwrap();
    slice.is_gone(0).await;
    slice.is_gone(1).await;
    let left = slice
        .cluster
        .kubelet
        .departure(&slice.ranks[1].uid().unwrap())
        .unwrap();
    assert!(left.disruption_target.is_some() && left.grace_s == 60);
}
