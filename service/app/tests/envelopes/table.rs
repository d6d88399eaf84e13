//! Every field of every form with every kind of wrong value: the status, the
//! reason or place, one line in the log, and nothing repeated.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::forms::{AUDIT_LOG, MESSAGE, Sent, binary, entry, event, structured, wrapper};
use super::service::Service;

/// What a sender would not want to see again.
const SECRET: &str = "hunter2";

/// What the log names, cut short.
const NAMED: &[&str] = &[
    "/message/messageId",
    "/message/message_id",
    "/id",
    "/type",
    "ce-id",
];

/// Values that no field expects; `None` takes it away.
fn wrong() -> Vec<Option<Value>> {
    let mut deep = json!(1);
    for _ in 0..90 {
        deep = json!([deep]);
    }
    vec![
        None,
        Some(Value::Null),
        Some(json!(7)),
        Some(json!(-1)),
        Some(json!(1e300)),
        Some(json!(u64::MAX)),
        Some(json!(true)),
        Some(json!("")),
        Some(json!(SECRET)),
        Some(json!(SECRET.repeat(3_000))),
        Some(json!(format!("{SECRET}\u{0}\u{7}\r\n\u{1b}[2J\u{202e}"))),
        Some(json!([])),
        Some(json!({SECRET: SECRET})),
        Some(deep),
    ]
}

/// How a request is to be answered. The entry's VM isn't there, so that one
/// which is read to the end is ignored for that.
#[derive(Debug, PartialEq)]
enum Expected {
    Read,
    NotMaintenance,
    Malformed(String),
}

use Expected::{Malformed, NotMaintenance, Read};

/// What becomes of an entry with this value there.
fn of_entry(pointer: &str, value: Option<&Value>) -> Expected {
    let unset = value.is_none_or(Value::is_null);
    let place = || Malformed(pointer[1..].replace('/', "."));
    match (pointer, value) {
        ("/protoPayload" | "/protoPayload/methodName", _) if unset => NotMaintenance,
        // An object is a payload, though one without a method.
        ("/protoPayload", Some(Value::Object(_))) => NotMaintenance,
        ("/protoPayload", _) => place(),
        ("/protoPayload/methodName", Some(Value::String(_))) => NotMaintenance,
        ("/protoPayload/methodName", _) => place(),
        ("/protoPayload/serviceName", Some(Value::String(_))) => NotMaintenance,
        ("/protoPayload/resourceName", _) if !unset => place(),
        _ => Read,
    }
}

fn of_wrapper(pointer: &str, value: Option<&Value>) -> Expected {
    let place = pointer[1..].replace('/', ".");
    match value {
        _ if pointer == "/message/data" => Malformed(place),
        Some(Value::Object(_)) if pointer == "/message" => Malformed("message.data".to_owned()),
        _ if pointer == "/message" => Malformed(place),
        _ => Read,
    }
}

fn of_event(pointer: &str, value: Option<&Value>) -> Expected {
    match (pointer, value) {
        ("/type", Some(Value::String(kind))) if !kind.is_empty() => NotMaintenance,
        ("/data", Some(Value::Object(_))) => Malformed("entry".to_owned()),
        ("/specversion" | "/type" | "/data", _) => Malformed(pointer[1..].to_owned()),
        _ => Read,
    }
}

/// All pointers into a value.
fn pointers(value: &Value) -> Vec<String> {
    let Value::Object(object) = value else {
        return vec![];
    };
    let escape = |key: &String| key.replace('~', "~0").replace('/', "~1");
    let each = object.iter().flat_map(|(key, inner)| {
        let key = escape(key);
        let inner = pointers(inner)
            .into_iter()
            .map(|p| format!("/{key}{p}"))
            .collect::<Vec<_>>();
        [format!("/{key}")].into_iter().chain(inner)
    });
    each.collect()
}

fn change(value: &Value, pointer: &str, to: Option<&Value>) -> Value {
    let mut value = value.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/").replace("~0", "~");
    let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match to {
        Some(to) => drop(parent.insert(key, to.clone())),
        None => drop(parent.remove(&key).unwrap()),
    }
    value
}

impl Service {
    /// Posts, and checks the answer, and all that is written about it.
    async fn check(&self, what: &str, sent: Sent, expected: &Expected) {
        let named = NAMED.iter().any(|field| what.starts_with(field));
        self.log.take();
        let answer = self.post(sent).await;
        let what = format!("{what}: {} {}", answer.status, answer.text);
        match expected {
            Malformed(place) => {
                assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{what}");
                assert_eq!(answer.body["place"], json!(place), "{what}");
                assert_eq!(answer.headers["content-type"], "application/problem+json");
            }
            Read | NotMaintenance => {
                let reason = if *expected == Read {
                    "instance_gone"
                } else {
                    "not_maintenance"
                };
                assert_eq!(answer.status, StatusCode::OK, "{what}");
                assert_eq!(answer.body["reason"], reason, "{what}");
            }
        }
        assert!(
            answer.text.len() < 400 && !answer.text.contains(SECRET),
            "{what}"
        );
        let lines = self.log.take();
        for line in &lines {
            let inside = line.trim_end();
            assert!(
                inside.len() < 3000 && (named || !inside.contains(SECRET)),
                "{what}: {line}"
            );
            assert!(!inside.contains(|c: char| c.is_control()), "{what}: {line}");
        }
        let parse = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        let mut told = lines
            .iter()
            .map(parse)
            .filter(|line| !line["status"].is_null());
        let (line, other) = (told.next(), told.next());
        let line = line.unwrap_or_else(|| panic!("{what}: not told in {lines:?}"));
        assert_eq!(
            (&line["status"], other),
            (&json!(answer.status.as_u16()), None),
            "{what}"
        );
    }
}

#[tokio::test]
async fn every_wrong_value_in_an_entry_has_its_answer() {
    let service = Service::start(1).await;
    let good = entry();
    let pointers = pointers(&good);
    assert!(pointers.len() > 30, "{pointers:?}");
    for pointer in &pointers {
        for value in wrong() {
            let expected = of_entry(pointer, value.as_ref());
            let entry = change(&good, pointer, value.as_ref());
            let what = format!("{pointer} {}", value.map_or(0, |v| v.to_string().len()));
            for sent in [Sent::json(&wrapper(&entry)), binary(AUDIT_LOG, &entry)] {
                service.check(&what, sent, &expected).await;
            }
        }
    }
}

#[tokio::test]
async fn every_wrong_value_in_an_envelope_has_its_answer() {
    let service = Service::start(1).await;
    let (wrapped, event) = (wrapper(&entry()), event(AUDIT_LOG, &entry()));
    for value in wrong() {
        let value = value.as_ref();
        for pointer in pointers(&wrapped) {
            let expected = of_wrapper(&pointer, value);
            let body = change(&wrapped, &pointer, value);
            let what = format!("{pointer} in {body}");
            service.check(&what, Sent::json(&body), &expected).await;
            service
                .check(&what, binary(MESSAGE, &body), &expected)
                .await;
        }
        for pointer in event
            .as_object()
            .unwrap()
            .keys()
            .map(|key| format!("/{key}"))
        {
            let body = change(&event, &pointer, value);
            let what = format!("{pointer} in {body}");
            service
                .check(&what, structured(&body), &of_event(&pointer, value))
                .await;
        }
    }
}

#[tokio::test]
async fn every_odd_header_of_an_event_has_its_answer() {
    let service = Service::start(1).await;
    let good = binary(AUDIT_LOG, &entry());
    let names: Vec<_> = good
        .headers
        .keys()
        .map(|name| name.as_str().to_owned())
        .collect();
    let long = SECRET.repeat(1000);
    for name in names.iter().filter(|name| *name != "content-type") {
        let needed = ["ce-specversion", "ce-type"].contains(&name.as_str());
        let malformed = || {
            if needed {
                Malformed(name.clone())
            } else {
                Read
            }
        };
        let missing = good.clone().without_header(name);
        service.check(name, missing, &malformed()).await;
        for value in [
            &b""[..],
            b"\xff\xfe",
            b"7",
            b"-1",
            SECRET.as_bytes(),
            long.as_bytes(),
        ] {
            let readable = std::str::from_utf8(value).is_ok_and(|text| !text.is_empty());
            let foreign = name == "ce-type" && readable;
            let expected = if foreign { NotMaintenance } else { malformed() };
            let sent = good.clone().raw_header(name, value);
            if foreign {
                // The type is told, cut short; that is all it is.
                let answer = service.post(sent).await;
                assert_eq!(answer.body["reason"], "not_maintenance");
                assert!(service.log.take().iter().all(|line| line.len() < 1000));
            } else {
                service.check(name, sent, &expected).await;
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_json_at_all_has_its_answer() {
    let service = Service::start(1).await;
    let body = || Malformed("body".to_owned());
    for bytes in [
        &b""[..],
        b"x",
        b"null",
        b"[]",
        b"7",
        b"\"text\"",
        b"\x00",
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf{}",
        b"{\"a\":1}{}",
        b"{\"logName\":\"\xff\"}",
    ] {
        for content_type in [
            "application/json",
            "application/cloudevents+json",
            "text/plain",
            "",
        ] {
            service
                .check("bytes", Sent::new(content_type, bytes), &body())
                .await;
        }
        let mut event = binary(AUDIT_LOG, &entry());
        event.body = bytes.to_vec();
        service.check("bytes", event, &body()).await;
    }
}
