//! What the sender and the log are told about a request.

use std::time::Duration;

use axum::http::StatusCode;
use drainwell_core::keys;
use drainwell_core::notice::Source;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::forms::{self, AUDIT_LOG, MESSAGE, Sent, binary, event, ongoing, structured, wrapper};
use super::service::{PROJECT, Service, ZONE, node};

const TRACE: &str = "logging.googleapis.com/trace";
const SPAN: &str = "logging.googleapis.com/spanId";
const SAMPLED: &str = "logging.googleapis.com/trace_sampled";

/// An ongoing maintenance of the service's node `n`.
fn entry(n: u64) -> Value {
    ongoing(PROJECT, ZONE, &node(n), &(1000 + n).to_string())
}

fn undated(n: u64) -> Value {
    let mut entry = entry(n);
    for key in ["timestamp", "receiveTimestamp"] {
        entry.as_object_mut().unwrap().remove(key);
    }
    entry
}

impl Service {
    /// The only line since the last look that tells what became of a request.
    fn told(&self) -> Value {
        let lines = self.log.take_parsed();
        let mut told = lines.iter().filter(|line| !line["outcome"].is_null());
        let line = told
            .next()
            .unwrap_or_else(|| panic!("not told in {lines:?}"));
        assert_eq!(told.next(), None, "told once");
        line.clone()
    }

    fn intent(&self, n: u64) -> Value {
        let found = self.world.find_node(&node(n)).unwrap();
        let annotation = found.annotations.get(keys::INTENT_ANNOTATION);
        serde_json::from_str(annotation.map_or("null", String::as_str)).unwrap()
    }
}

#[tokio::test]
async fn every_form_marks_the_node_and_is_told_once() {
    let service = Service::start(14).await;
    for n in 0..13 {
        let (form, source, sent) = forms::all(&entry(n)).swap_remove(usize::try_from(n).unwrap());
        service.log.take();
        let answer = service
            .post_to(["/", "/events"][form.len() % 2], sent.clone())
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{form}: {}", answer.text);
        assert_eq!(answer.body["outcome"], "marked", "{form}");
        let from = if source == Source::Eventarc {
            "eventarc"
        } else {
            "pubsub"
        };
        assert_eq!(service.intent(n)["source"], from, "{form}");
        let lines = service.log.take_parsed();
        let count = |key: &str, value: Value| lines.iter().filter(|l| l[key] == value).count();
        assert_eq!(
            count("event", json!("notice_received")),
            1,
            "{form}: {lines:?}"
        );
        assert_eq!(count("event", json!("node_marked")), 1, "{form}: {lines:?}");
        assert_eq!(count("status", json!(200)), 1, "{form}: {lines:?}");
        assert_eq!(count("outcome", json!("marked")), 1, "{form}: {lines:?}");
        // And again.
        assert_eq!(
            service.post(sent).await.body["outcome"],
            "unchanged",
            "{form}"
        );
        let line = service.told();
        assert_eq!(
            (&line["outcome"], &line["severity"]),
            (&json!("unchanged"), &json!("INFO"))
        );
        let labels = &line["logging.googleapis.com/labels"];
        assert_eq!(labels["node_name"], json!(node(n)));
    }
}

#[tokio::test]
async fn a_refused_request_is_told_with_its_place() {
    let service = Service::start(1).await;
    let batch = structured(&json!([event(AUDIT_LOG, &entry(0))]))
        .header("content-type", "application/cloudevents-batch+json");
    let large = Sent::new("application/json", vec![b' '; (1 << 20) + 1]);
    let version = binary(AUDIT_LOG, &entry(0)).header("ce-specversion", "0.3");
    let mut data = wrapper(&entry(0));
    data["message"]["data"] = json!("?");
    for (sent, status, place) in [
        (batch, 415, Some("content-type")),
        (large, 413, None),
        (version, 400, Some("ce-specversion")),
        (Sent::json(&data), 400, Some("message.data")),
        (binary(MESSAGE, &entry(0)), 400, Some("message")),
        (binary(AUDIT_LOG, &data), 400, Some("entry")),
    ] {
        service.log.take();
        let answer = service.post(sent).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(
            (&answer.body["status"], answer.body["place"].as_str()),
            (&json!(status), place)
        );
        let line = service.told();
        assert_eq!(line["event"], "notice_rejected");
        assert_eq!(
            (&line["status"], &line["severity"]),
            (&json!(status), &json!("WARNING"))
        );
        assert_eq!(line["outcome"], answer.body["title"]);
        let reason = line["reason"].as_str().unwrap();
        assert!(
            reason.ends_with(answer.body["detail"].as_str().unwrap()),
            "{reason}"
        );
        assert!(reason.starts_with(place.unwrap_or_default()), "{reason}");
    }
}

#[tokio::test]
async fn what_is_ignored_is_told_with_its_reason() {
    let service = Service::start(1).await;
    service.log.take();
    let kind = "google.cloud.storage.object.v1.finalized";
    let answer = service.post(binary(kind, &json!({}))).await;
    assert_eq!(
        answer.body,
        json!({"outcome": "ignored", "reason": "not_maintenance"})
    );
    let line = service.told();
    assert_eq!(line["event"], "notice_ignored");
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&json!(200), &json!("not_maintenance"))
    );
    assert!(line["message"].as_str().unwrap().contains(kind), "{line}");
}

#[tokio::test]
async fn a_bad_value_that_is_not_needed_marks_the_node_and_is_named_in_the_log() {
    let service = Service::start(2).await;
    let mut odd = entry(0);
    odd["protoPayload"]["metadata"]["windowStartTime"] = json!("hunter2");
    odd["split"] = json!({"uid": "u", "index": 0, "totalSplits": 2});
    let sent = binary(AUDIT_LOG, &odd)
        .without_header("ce-id")
        .header("ce-time", "hunter2");
    let answer = service.post(sent).await;
    assert_eq!(answer.body["outcome"], "marked", "{}", answer.text);
    let lines = service.log.take();
    let received = lines
        .iter()
        .find(|line| line.contains("notice_received"))
        .unwrap();
    for place in [
        "protoPayload.metadata.windowStartTime: not an RFC 3339 time",
        "entry.split: this is part 1 of 2",
        "ce-id: missing",
        "ce-time: not an RFC 3339 time",
    ] {
        assert!(received.contains(place), "{place} in {received}");
    }
    assert!(
        !lines.iter().any(|line| line.contains("hunter2")),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_notice_without_an_age_is_not_asked_for_again_and_again() {
    let service = Service::start(2).await;
    // One whose age is known has time to be confirmed.
    service.log.take();
    let early = service.post(Sent::json(&entry(1))).await;
    assert_eq!(
        early.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        early.text
    );
    assert!(early.headers.contains_key("retry-after"));
    let line = service.told();
    assert_eq!(
        (&line["status"], &line["severity"]),
        (&json!(503), &json!("WARNING"))
    );
    assert_eq!(
        line["logging.googleapis.com/labels"]["node_name"],
        json!(node(1))
    );
    let answer = service.post(Sent::json(&undated(1))).await;
    assert_eq!(answer.body["reason"], "not_confirmed", "{}", answer.text);
    let mut stop = undated(1);
    stop["protoPayload"]["methodName"] = json!("compute.instances.terminateOnHostMaintenance");
    let answer = service.post(Sent::json(&stop)).await;
    assert_eq!(answer.body["reason"], "not_confirmed", "{}", answer.text);
    assert_eq!(service.intent(1), Value::Null);
    // What Compute shows needs no age.
    let answer = service.post(Sent::json(&undated(0))).await;
    assert_eq!(answer.body["outcome"], "marked", "{}", answer.text);
    assert_eq!(service.intent(0)["deadline_known"], false);
}

#[tokio::test]
async fn where_compute_is_not_asked_a_notice_without_an_age_ends_as_well() {
    let service = Service::alone(1).await;
    let young = service.post(Sent::json(&entry(5))).await;
    assert_eq!(
        young.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        young.text
    );
    let answer = service.post(Sent::json(&undated(5))).await;
    assert_eq!(answer.body["reason"], "node_gone", "{}", answer.text);
}

#[tokio::test]
async fn every_line_of_a_request_bears_its_trace() {
    let service = Service::start(7).await;
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let w3c = format!("00-{id}-00f067aa0ba902b7-01");
    let google = "105445aa7843bc8bf206b12000100000/81985529216486895;o=0";
    let old = "105445aa7843bc8bf206b12000100000";
    let (span, old_span) = (Some("00f067aa0ba902b7"), Some("0123456789abcdef"));
    let bare = format!("{old};o=1");
    for (n, headers, expected) in [
        (
            0,
            vec![("traceparent", w3c.as_str())],
            Some((id, span, true)),
        ),
        (
            1,
            vec![("x-cloud-trace-context", google)],
            Some((old, old_span, false)),
        ),
        (
            2,
            vec![("traceparent", &w3c), ("x-cloud-trace-context", google)],
            Some((id, span, true)),
        ),
        (
            3,
            vec![("traceparent", "00-x"), ("x-cloud-trace-context", &bare)],
            Some((old, None, true)),
        ),
        (
            4,
            vec![
                ("traceparent", &w3c[..54]),
                ("x-cloud-trace-context", "\"},{/1"),
            ],
            None,
        ),
        (5, vec![], None),
    ] {
        service.log.take();
        let mut sent = Sent::json(&wrapper(&entry(n)));
        for (name, value) in headers {
            sent = sent.header(name, value);
        }
        let answer = service.post(sent).await;
        assert_eq!(answer.body["outcome"], "marked", "{}", answer.text);
        let lines = service.log.take_parsed();
        let own = lines.iter().filter(|line| {
            let event = line["event"].as_str();
            event.is_some_and(|e| ["notice_received", "node_marked"].contains(&e))
                || !line["outcome"].is_null()
        });
        let own: Vec<_> = own.collect();
        assert_eq!(own.len(), 3, "{lines:?}");
        for line in own {
            let bears = line[TRACE]
                .as_str()
                .map(|trace| (trace, line[SPAN].as_str(), line[SAMPLED].as_bool().unwrap()));
            assert_eq!(bears, expected, "{line}");
        }
    }
}

#[tokio::test]
async fn a_sender_that_leaves_is_told_too() {
    let service = Service::slow(2, SignedDuration::from_secs(3600)).await;
    let address = service.url.strip_prefix("http://").unwrap();
    let body = wrapper(&entry(0)).to_string();
    let request = format!(
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all((request + &body).as_bytes())
        .await
        .unwrap();
    service.until_logged("notice_received").await;
    drop(stream);
    let line = service.until_logged("\"unanswered\"").await;
    assert_eq!(line["outcome"], "unanswered", "{line}");
}

impl Service {
    /// The first line that has this text; the test ends if there is none soon.
    async fn until_logged(&self, text: &str) -> Value {
        let seen = async {
            loop {
                let lines = self.log.take();
                if let Some(line) = lines.iter().find(|line| line.contains(text)) {
                    return serde_json::from_str(line).unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let bounded = tokio::time::timeout(Duration::from_secs(20), seen).await;
        bounded.unwrap_or_else(|_| panic!("no line with {text}"))
    }
}
