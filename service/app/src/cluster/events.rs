//! Our Events as objects of `events.k8s.io/v1` (KEP-383).

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use crate::driver::events::{About, KubeEvent};

const CONTROLLER: &str = "drainwell.dev/service";
/// Events on objects outside of all namespaces live here (API validation).
const CLUSTER_WIDE: &str = "default";

pub(super) fn namespace(event: &KubeEvent) -> &str {
    match &event.about {
        About::Node { .. } => CLUSTER_WIDE,
        About::Pod(pod) => &pod.namespace,
    }
}

pub(super) fn object(event: &KubeEvent) -> Event {
    let (kind, name, namespaced) = match &event.about {
        About::Node { name, .. } => ("Node", name, None),
        About::Pod(pod) => ("Pod", &pod.name, Some(pod.namespace.clone())),
    };
    let regarding = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.clone()),
        namespace: namespaced,
        uid: Some(event.uid().to_owned()),
        ..ObjectReference::default()
    };
    let severity = if event.warning { "Warning" } else { "Normal" };
    Event {
        metadata: ObjectMeta {
            name: Some(event.name.clone()),
            namespace: Some(namespace(event).to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(event.at)),
        action: Some(event.action.to_owned()),
        reason: Some(event.reason.to_owned()),
        note: Some(event.note.clone()),
        type_: Some(severity.to_owned()),
        regarding: Some(regarding),
        reporting_controller: Some(CONTROLLER.to_owned()),
        // Required. Which instance of the service it was, the log tells.
        reporting_instance: Some(CONTROLLER.to_owned()),
        ..Event::default()
    }
}
