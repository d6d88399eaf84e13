//! Builders for what tests put into the cluster and send to the service.

mod node;
mod notice;
mod pod;
mod workload;

pub use node::NodeSpec;
pub use notice::{
    Notice, automatic_restart, completed, host_error, migrate, ongoing, pending, terminate, unwrap,
    wrap,
};
pub use pod::PodSpec;
pub use workload::{Amount, BudgetSpec, daemon_set, deployment, job};

/// Builds a Kubernetes object from JSON that this crate wrote itself.
fn object<K: serde::de::DeserializeOwned>(json: serde_json::Value) -> K {
    match serde_json::from_value(json.clone()) {
        Ok(object) => object,
        Err(error) => panic!("no {}: {error}: {json}", std::any::type_name::<K>()),
    }
}
