//! Which VM an entry speaks of. Whatever comes out of here fits into a URL.

use serde_json::Value;

use super::read::{Object, field};
use super::{Malformed, Vm};

/// The VM, from `protoPayload.resourceName`, completed by `resource.labels`.
pub(super) fn read_vm(
    entry: &Object,
    payload: &Object,
    doubts: &mut Vec<String>,
) -> Result<Vm, Malformed> {
    let place = "protoPayload.resourceName";
    let labels = read_labels(entry, doubts);
    let text = |key: &str| field(labels?, key)?.as_str();
    let id = read_id(labels, doubts);
    let (project, zone, instance) = match field(payload, "resourceName") {
        Some(Value::String(path)) => split_path(path)
            .ok_or_else(|| Malformed::at(place, "not projects/P/zones/Z/instances/NAME"))?,
        None => match (text("project_id"), text("zone"), text("instance_id")) {
            (Some(project), Some(zone), Some(id)) => (project, zone, id),
            _ => {
                let problem = "missing, and no labels to make up for it";
                return Err(Malformed::at(place, problem));
            }
        },
        Some(_) => return Err(Malformed::at(place, "not a string")),
    };
    let number = instance.parse().ok().filter(|id| *id > 0);
    let named = is_instance_name(instance);
    if !is_project(project) || !is_zone(zone) || (number.is_none() && !named) {
        let problem = "not a valid project, zone and instance";
        return Err(Malformed::at(place, problem));
    }
    Ok(Vm {
        project: project.to_owned(),
        zone: zone.to_owned(),
        name: named.then(|| instance.to_owned()),
        id: id.or(number),
    })
}

fn read_labels<'a>(entry: &'a Object, doubts: &mut Vec<String>) -> Option<&'a Object> {
    let mut object = |from: &'a Object, key: &str, place: &str| match field(from, key) {
        Some(Value::Object(object)) => Some(object),
        Some(_) => {
            doubts.push(format!("{place}: not a JSON object"));
            None
        }
        None => None,
    };
    let resource = object(entry, "resource", "resource")?;
    object(resource, "labels", "resource.labels")
}

/// The numeric id: a string in Google's samples. A number is understood while
/// it is exact; ids have up to 20 digits.
fn read_id(labels: Option<&Object>, doubts: &mut Vec<String>) -> Option<u64> {
    let value = field(labels?, "instance_id")?;
    let text = value.as_str().and_then(|text| text.parse().ok());
    let id = text.or_else(|| value.as_u64()).filter(|id| *id > 0);
    if id.is_none() {
        doubts.push("resource.labels.instance_id: no instance id".to_owned());
    }
    id
}

fn split_path(path: &str) -> Option<(&str, &str, &str)> {
    let rest = path.strip_prefix("projects/")?;
    let (project, rest) = rest.split_once("/zones/")?;
    let (zone, name) = rest.split_once("/instances/")?;
    Some((project, zone, name))
}

/// Compute's pattern for names: `[a-z]([-a-z0-9]{0,61}[a-z0-9])?`.
fn is_instance_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_zone(text: &str) -> bool {
    is_instance_name(text)
}

/// Project ids, with the domain prefix of old ones (`example.com:name`).
fn is_project(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b':')
        })
}
