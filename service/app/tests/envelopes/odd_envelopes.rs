//! Envelopes that are wrong, or right in an unusual way.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drainwell_app::ingress::envelope::Fault;
use drainwell_core::notice::{Reading, Source};
use serde_json::{Value, json};

use super::forms::{
    AT, AUDIT_LOG, MESSAGE, PUBLISHED, Sent, binary, entry, event, structured, time, unwrapped,
    wrapper,
};

fn place(sent: &Sent) -> String {
    sent.fault().0
}

/// A value with one field set, or taken away.
fn with(mut value: Value, pointer: &str, field: Option<Value>) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match field {
        Some(field) => drop(parent.insert(key.to_owned(), field)),
        None => drop(parent.remove(key).unwrap()),
    }
    value
}

fn pushed(data: &str) -> Sent {
    Sent::json(&with(wrapper(&entry()), "/message/data", Some(json!(data))))
}

#[test]
fn a_wrapper_without_its_message_or_data_is_refused_there() {
    let good = wrapper(&entry());
    let at = |pointer: &str, value: Option<Value>| {
        place(&Sent::json(&with(good.clone(), pointer, value)))
    };
    assert_eq!(at("/message", None), "message");
    for value in [Value::Null, json!(5), json!("x"), json!([])] {
        assert_eq!(at("/message", Some(value)), "message");
    }
    assert_eq!(at("/message/data", None), "message.data");
    for value in [
        Value::Null,
        json!(""),
        json!(5),
        json!({}),
        json!("no base64!"),
        json!("=="),
        json!("e30=e30="),
        json!("eyI"),
        json!("größer"),
        json!(STANDARD.encode("no JSON")),
        json!(STANDARD.encode([0x22, 0xc3, 0x28, 0x22])),
    ] {
        assert_eq!(
            at("/message/data", Some(value.clone())),
            "message.data",
            "{value}"
        );
    }
    assert_eq!(place(&pushed(&STANDARD.encode("[1]"))), "entry");
    assert_eq!(place(&pushed(&STANDARD.encode("{}"))), "entry");
    // In an event the same place is deeper down.
    let deep = with(event(MESSAGE, &good), "/data/message/data", None);
    assert_eq!(place(&structured(&deep)), "data.message.data");
    let shallow = with(good.clone(), "/message/data", None);
    assert_eq!(place(&binary(MESSAGE, &shallow)), "message.data");
}

#[test]
fn what_a_message_says_besides_its_data_is_not_needed() {
    let undated = with(entry(), "/timestamp", None);
    let good = wrapper(&undated);
    for field in [
        "attributes",
        "messageId",
        "message_id",
        "orderingKey",
        "publish_time",
    ] {
        for value in [
            None,
            Some(Value::Null),
            Some(json!(7)),
            Some(json!({})),
            Some(json!("x")),
        ] {
            let sent = Sent::json(&with(good.clone(), &format!("/message/{field}"), value));
            assert_eq!(sent.notice().at, time(PUBLISHED), "{field}");
        }
    }
    // Either spelling of the time is enough; with none, Logging's own is left.
    let wrong = with(good, "/message/publishTime", Some(json!(7)));
    assert_eq!(Sent::json(&wrong).notice().at, time(PUBLISHED));
    for value in [Some(json!(7)), Some(json!("soon")), None] {
        let none = with(wrong.clone(), "/message/publish_time", value.clone());
        let none = match value {
            Some(value) => with(none, "/message/publishTime", Some(value)),
            None => none,
        };
        let letter = Sent::json(&none).read().unwrap();
        let place = letter.doubts[0].split(':').next();
        assert_eq!(
            (letter.doubts.len(), place),
            (1, Some("message.publishTime"))
        );
        let at = Sent::json(&none).notice().at;
        assert_eq!(at, time("2026-11-03T08:15:30.801Z"));
    }
    let odd = unwrapped(&undated).raw_header("x-goog-pubsub-publish-time", b"\xff");
    assert_eq!(
        odd.read().unwrap().doubts,
        ["x-goog-pubsub-publish-time: not text"]
    );
}

#[test]
fn an_event_needs_its_version_and_type_and_nothing_else() {
    for good in [
        binary(AUDIT_LOG, &entry()),
        binary(MESSAGE, &wrapper(&entry())),
    ] {
        for name in ["ce-specversion", "ce-type"] {
            assert_eq!(
                good.clone().without_header(name).fault(),
                (name.into(), "missing".into())
            );
            let empty = good.clone().header(name, "");
            assert_eq!(empty.fault(), (name.into(), "empty".into()));
            let odd = good.clone().raw_header(name, b"1.0\xff");
            assert_eq!(odd.fault(), (name.into(), "not text".into()));
        }
        for name in ["ce-id", "ce-source"] {
            let doubts = |sent: Sent| {
                assert_eq!(sent.notice().source, Source::Eventarc);
                sent.read().unwrap().doubts
            };
            let lacking = doubts(good.clone().without_header(name));
            assert_eq!(lacking, [format!("{name}: missing")]);
            let odd = doubts(good.clone().raw_header(name, b"\xfe"));
            assert_eq!(odd, [format!("{name}: not text")]);
        }
        for name in ["ce-time", "ce-subject", "ce-methodname", "content-type"] {
            assert_eq!(
                good.clone().without_header(name).notice().at,
                time(AT),
                "{name}"
            );
        }
        let odd = good.header("ce-time", "soon").read().unwrap().doubts;
        assert_eq!(odd, ["ce-time: not an RFC 3339 time"]);
    }
}

#[test]
fn the_attributes_of_a_structured_event_are_needed_alike() {
    let good = event(AUDIT_LOG, &entry());
    for name in ["specversion", "type"] {
        let pointer = format!("/{name}");
        for (value, problem) in [
            (None, "missing"),
            (Some(Value::Null), "missing"),
            (Some(json!("")), "empty"),
            (Some(json!(1.0)), "not a string"),
            (Some(json!(["1.0"])), "not a string"),
        ] {
            let sent = structured(&with(good.clone(), &pointer, value));
            assert_eq!(sent.fault(), (name.into(), problem.into()));
        }
    }
    for name in ["id", "source", "time", "datacontenttype", "methodName"] {
        for value in [
            None,
            Some(Value::Null),
            Some(json!(5)),
            Some(json!({})),
            Some(json!("x")),
        ] {
            let sent = structured(&with(good.clone(), &format!("/{name}"), value));
            assert_eq!(sent.notice().at, time(AT), "{name}");
        }
    }
}

#[test]
fn other_versions_of_cloudevents_are_refused() {
    for version in ["0.3", "1", "1.1", "2.0", "1.0.2", " 1.0 x"] {
        let sent = binary(AUDIT_LOG, &entry()).header("ce-specversion", version);
        assert_eq!(place(&sent), "ce-specversion", "{version}");
        assert!(sent.fault().1.contains("version 1.0"));
        let other = with(
            event(AUDIT_LOG, &entry()),
            "/specversion",
            Some(json!(version)),
        );
        assert_eq!(place(&structured(&other)), "specversion", "{version}");
    }
}

#[test]
fn batches_and_other_event_formats_are_not_understood() {
    for content_type in [
        "application/cloudevents-batch+json",
        "Application/CloudEvents-Batch+JSON; charset=utf-8",
        "application/cloudevents-batch",
        "application/cloudevents+xml",
        "application/cloudevents+avro",
        "application/cloudevents",
        "application/cloudevents+json+x",
    ] {
        // Whatever the headers and the body say besides.
        for body in [
            json!([event(AUDIT_LOG, &entry())]),
            wrapper(&entry()),
            json!(0),
        ] {
            let sent = binary(AUDIT_LOG, &body).header("content-type", content_type);
            let Err(Fault::Unsupported(fault)) = sent.read() else {
                panic!("{content_type}: {:?}", sent.read())
            };
            assert_eq!(fault.place, "content-type", "{content_type}");
            let batched = content_type.to_lowercase().contains("batch");
            assert_eq!(fault.problem.contains("batched"), batched, "{fault}");
        }
    }
    let upper = structured(&event(AUDIT_LOG, &entry()));
    let upper = upper.header(
        "content-type",
        " APPLICATION/CloudEvents+Json ;charset=utf-8",
    );
    assert_eq!(upper.notice().at, time(AT));
}

#[test]
fn the_data_of_a_structured_event_is_there_once() {
    let good = event(AUDIT_LOG, &entry());
    let at = |value: &Value| place(&structured(value));
    assert_eq!(at(&with(good.clone(), "/data", None)), "data");
    for value in [Value::Null, json!(5), json!([]), json!(entry().to_string())] {
        assert_eq!(at(&with(good.clone(), "/data", Some(value))), "data");
    }
    let both = with(good.clone(), "/data_base64", Some(json!("e30=")));
    assert_eq!(at(&both), "data_base64");
    let bare = with(good.clone(), "/data", None);
    for value in [
        json!(5),
        json!("?"),
        json!("e30"),
        json!(STANDARD.encode("[]")),
    ] {
        let place = at(&with(bare.clone(), "/data_base64", Some(value.clone())));
        assert_eq!(
            place,
            if value == json!("e30") {
                "entry"
            } else {
                "data_base64"
            }
        );
    }
    let null = with(good, "/data_base64", Some(Value::Null));
    assert_eq!(structured(&null).notice().at, time(AT));
}

#[test]
fn events_of_other_types_are_no_maintenance_whatever_they_hold() {
    let kind = "google.cloud.storage.object.v1.finalized";
    let secret = "hunter2 ".repeat(5000);
    for sent in [
        binary(kind, &json!({"bucket": "b"})),
        binary(kind, &entry()),
        Sent {
            body: b"\xff not JSON".to_vec(),
            ..binary(kind, &entry())
        },
        structured(&event(kind, &json!("text"))),
        structured(&with(event(kind, &json!(5)), "/data", None)),
    ] {
        let letter = sent.read().unwrap();
        assert_eq!(letter.reading, Reading::NotMaintenance);
        assert_eq!(letter.foreign.as_deref(), Some(kind));
    }
    let letter = structured(&event(&format!("a\u{7}\n\u{202e}{secret}"), &json!(1))).read();
    let kind = letter.unwrap().foreign.unwrap();
    assert!(kind.len() == 64 && kind.starts_with("ahunter2"), "{kind}");
}

#[test]
fn json_is_taken_as_parsers_take_it() {
    let text = entry().to_string();
    // Of a key that is there twice, the last value counts.
    let twice = text.replacen("{\"", r#"{"timestamp":7,"severity":5,""#, 1);
    assert_eq!(Sent::new("application/json", twice).notice().at, time(AT));
    let message = r#"{"message":5,"message":{"data":"bm8=","data":"e30="}}"#;
    assert_eq!(place(&Sent::new("application/json", message)), "entry");
    // Depth and numbers.
    let nested = |depth: usize| {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        text.replacen('{', &format!(r#"{{"x":{deep},"#), 1)
    };
    assert_eq!(
        Sent::new("application/json", nested(100)).notice().at,
        time(AT)
    );
    assert_eq!(place(&Sent::new("application/json", nested(200))), "body");
    assert_eq!(
        place(&pushed(&STANDARD.encode(nested(200)))),
        "message.data"
    );
    assert_eq!(
        place(&Sent::new("application/json", nested(400_000))),
        "body"
    );
    for number in ["1e999", "-", "01", "NaN", "0x10"] {
        let odd = text.replacen('{', &format!(r#"{{"x":{number},"#), 1);
        assert_eq!(
            place(&Sent::new("application/json", odd)),
            "body",
            "{number}"
        );
    }
    for number in ["123456789012345678901234567890", "1e308", "-0.0"] {
        let odd = text.replacen('{', &format!(r#"{{"x":{number},"#), 1);
        assert_eq!(
            Sent::new("application/json", odd).notice().at,
            time(AT),
            "{number}"
        );
    }
    // Bytes that are no UTF-8, and characters that are no JSON.
    for odd in [
        &b"\xff\xfe"[..],
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\x00",
        b"\n",
        b"\x1f",
    ] {
        let mut body = text.clone().into_bytes();
        let at = text.find("INFO").unwrap();
        body.splice(at..at, odd.iter().copied());
        assert_eq!(
            place(&Sent::new("application/json", body)),
            "body",
            "{odd:?}"
        );
    }
}
