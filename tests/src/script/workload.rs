//! The script's pods as real ones: bare, or made by the real controllers.

use drainwell_core::observed::PodRef;
use drainwell_sim::spec::{self, Owner};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::Lease;
use crate::fixture::{PodSpec, daemon_set, deployment, job};

/// Makes a pod run on a node.
pub(super) async fn add(
    cluster: &Lease,
    node: &str,
    pod: &spec::PodSpec,
) -> anyhow::Result<PodRef> {
    let mut real = PodSpec::new(&pod.name)
        .namespace(&pod.namespace)
        .grace_s(pod.grace_s.into())
        .shutdown_ms(u64::from(pod.takes_s) * 1000);
    for (key, value) in &pod.annotations {
        real = real.annotation(key, value);
    }
    if !pod.tolerations.is_empty() {
        real = real.tolerates_everything();
    }
    let here = |mut pod: PodSpec| {
        let host = ("kubernetes.io/hostname".to_owned(), node.to_owned());
        pod.selector.extend([host]);
        pod
    };
    let made = match pod.owner {
        Owner::Nobody => cluster.add_pod(&real.node(node)).await?,
        Owner::Static => cluster.add_pod(&real.node(node).mirror()).await?,
        Owner::DaemonSet => {
            cluster.create(&daemon_set(&here(real))).await?;
            ready(cluster, pod).await
        }
        Owner::Job => {
            cluster.create(&job(&here(real), 1)).await?;
            ready(cluster, pod).await
        }
        Owner::ReplicaSet => {
            cluster
                .create::<Deployment>(&deployment(&here(real), 1))
                .await?;
            ready(cluster, pod).await
        }
        Owner::StatefulSet => anyhow::bail!("no script has a StatefulSet"),
    };
    Ok(reference(&made))
}

async fn ready(cluster: &Lease, pod: &spec::PodSpec) -> Pod {
    let pods = cluster.ready_pods(&pod.namespace, &pod.name, 1).await;
    pods.into_iter().next().unwrap_or_default()
}

pub(super) fn reference(pod: &Pod) -> PodRef {
    PodRef {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
    }
}
