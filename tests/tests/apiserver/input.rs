//! Bad input: the right answer, no crash, and the next request is served.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drainwell_tests::control_plane::PROJECT;
use drainwell_tests::fixture::{ongoing, wrap};
use drainwell_tests::service::Answer;
use drainwell_tests::wait::secs;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{INTENT, LABEL, MANAGED, Scene, UNHURRIED, ignored, outcome, unmarked};

impl Scene {
    async fn post(&self, body: impl Into<Vec<u8>>) -> Answer {
        self.service
            .post_raw("application/json", body.into(), &[])
            .await
            .unwrap()
    }

    async fn rejects(&self, body: impl Into<Vec<u8>>, place: &str) {
        let body = body.into();
        let answer = self.post(body.clone()).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.body);
        assert_eq!(answer.body["place"], json!(place), "{shown}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
}

fn data(entry: &[u8]) -> Vec<u8> {
    let message = json!({"data": STANDARD.encode(entry), "messageId": "1"});
    json!({"message": message, "subscription": "projects/p/subscriptions/s"})
        .to_string()
        .into()
}

#[tokio::test]
async fn what_is_no_envelope_is_refused_with_its_place() {
    let scene = Scene::new(UNHURRIED).await;
    for body in [
        "",
        "x",
        "{",
        "null",
        "[]",
        "\"text\"",
        "7",
        "\u{0}",
        "{\"a\":1}{}",
    ] {
        scene.rejects(body, "body").await;
    }
    scene.rejects(vec![0xff, 0xfe, 0x00], "body").await;
    scene.rejects("[".repeat(5000), "body").await;
    scene.rejects("{}", "entry").await;
    scene.rejects(r#"{"message": 5}"#, "message").await;
    scene.rejects(r#"{"message": {}}"#, "message.data").await;
    scene
        .rejects(r#"{"message": {"data": null}}"#, "message.data")
        .await;
    scene
        .rejects(r#"{"message": {"data": ""}}"#, "message.data")
        .await;
    scene
        .rejects(r#"{"message": {"data": 7}}"#, "message.data")
        .await;
    scene
        .rejects(r#"{"message": {"data": "no base64!"}}"#, "message.data")
        .await;
    scene.rejects(data(b"no JSON"), "message.data").await;
    scene.rejects(data(&[0xc3, 0x28]), "message.data").await;
    scene.rejects(data(b"[1]"), "entry").await;
    // And the next request is served.
    assert_eq!(outcome(&scene.begin().await).0, "marked");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let scene = Scene::new(UNHURRIED).await;
    let answer = scene.post(vec![b' '; 2 << 20]).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    assert_eq!(outcome(&scene.begin().await).0, "marked");
}

#[tokio::test]
async fn an_entry_with_a_wrong_type_in_any_field_is_answered_and_survived() {
    let scene = Scene::new(UNHURRIED).await;
    let good = ongoing(&scene.node.vm(), scene.since);
    let mut pointers = Vec::new();
    collect(&good, String::new(), &mut pointers);
    assert!(pointers.len() > 15, "{pointers:?}");
    let wrong = [
        json!(7),
        json!("x"),
        json!([]),
        json!({}),
        json!(true),
        Value::Null,
    ];
    for pointer in &pointers {
        for value in &wrong {
            let mut entry = good.clone();
            *entry.pointer_mut(pointer).unwrap() = value.clone();
            let answer = scene.push(&entry).await;
            let essential = ["", "/methodName", "/resourceName", "/serviceName"];
            let inner = pointer.strip_prefix("/protoPayload");
            if inner.is_some_and(|inner| essential.contains(&inner)) {
                assert!([200, 400].contains(&answer.status), "{pointer} {value}");
            } else if pointer.ends_with("/instance_id") && *value == json!(7) {
                assert_eq!(
                    ignored(&answer),
                    "instance_replaced",
                    "a number is understood"
                );
            } else {
                // A value that can't be read is no reason not to mark.
                let what = format!("{pointer} {value}: {}", answer.body);
                assert_eq!(answer.body["outcome"], "marked", "{what}");
            }
            scene.reset().await;
        }
    }
    assert_eq!(outcome(&scene.begin().await).0, "marked");
}

impl Scene {
    /// Takes the marks off by hand.
    async fn reset(&self) {
        let marks = json!({
            "metadata": {"labels": {LABEL: null, MANAGED: null}, "annotations": {INTENT: null}},
            "spec": {"taints": null},
        });
        let (nodes, params) = (self.cluster.nodes(), PatchParams::default());
        nodes
            .patch(&self.node.name, &params, &Patch::Merge(marks))
            .await
            .unwrap();
    }
}

fn collect(value: &Value, at: String, pointers: &mut Vec<String>) {
    if let Value::Object(object) = value {
        for (key, inner) in object {
            let pointer = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            pointers.push(pointer.clone());
            collect(inner, pointer, pointers);
        }
    }
}

#[tokio::test]
async fn names_that_are_none_are_refused_and_numbers_may_be_strings() {
    let scene = Scene::new(UNHURRIED).await;
    let good = ongoing(&scene.node.vm(), scene.since);
    let name = good["protoPayload"]["resourceName"]
        .as_str()
        .unwrap()
        .to_owned();
    for bad in [
        format!("{name}/x"),
        format!("{name}/../y"),
        name.to_uppercase(),
        String::new(),
    ] {
        let mut entry = good.clone();
        entry["protoPayload"]["resourceName"] = json!(bad);
        let answer = scene.push(&entry).await;
        assert_eq!(answer.status, 400, "{bad}");
        assert_eq!(answer.body["place"], "protoPayload.resourceName");
    }
    assert!(unmarked(&scene.node().await));
    let mut numeric = good.clone();
    numeric["resource"]["labels"]["instance_id"] = json!(scene.node.instance_id);
    assert_eq!(outcome(&scene.push(&numeric).await).0, "marked");
}

#[tokio::test]
async fn dates_that_nobody_can_mean_are_not_counted_from() {
    for time in [
        "9999-12-31T23:59:59Z",
        "1969-07-20T20:17:40Z",
        "-000001-01-01T00:00:00Z",
        "x",
    ] {
        let scene = Scene::new(UNHURRIED).await;
        let mut entry = ongoing(&scene.node.vm(), scene.since);
        entry["timestamp"] = json!(time);
        entry["protoPayload"]["metadata"]["windowEndTime"] = json!(time);
        let answer = scene.push(&entry).await;
        assert_eq!(answer.body["outcome"], "marked", "{time}: {}", answer.body);
        let intent = scene.intent().await;
        assert_eq!(intent["deadline_known"], false, "{time}: {intent}");
        assert_eq!(intent["window_s"], 600, "{time}: {intent}");
    }
}

#[tokio::test]
async fn an_old_entry_is_stale_and_other_paths_and_methods_have_their_answers() {
    let scene = Scene::new(UNHURRIED).await;
    let hour_ago = scene.since - jiff::SignedDuration::from_hours(1);
    let old = ongoing(&scene.node.vm(), hour_ago);
    assert_eq!(ignored(&scene.push(&old).await), "stale");
    assert_eq!(
        scene.service.get("/nothing-here").await.unwrap().status,
        404
    );
    assert_eq!(scene.service.get("/tick").await.unwrap().status, 405);
    assert_eq!(scene.service.get("/health/live").await.unwrap().status, 200);
    assert_eq!(
        scene.service.get("/health/ready").await.unwrap().status,
        200
    );
    let body = wrap(&ongoing(&scene.node.vm(), scene.since))
        .to_string()
        .into_bytes();
    let url = format!("{}/events", scene.service.url());
    let answer = reqwest::Client::new()
        .post(url)
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn an_event_of_eventarc_is_taken_and_its_lines_bear_the_trace_of_the_request() {
    let scene = Scene::new(UNHURRIED).await;
    let entry = ongoing(&scene.node.vm(), scene.since);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let (time, parent) = (
        scene.since.to_string(),
        format!("00-{trace}-b7ad6b7169203331-01"),
    );
    let headers = [
        ("ce-id", "system_event-1"),
        (
            "ce-source",
            "//cloudaudit.googleapis.com/projects/p/logs/system_event",
        ),
        ("ce-specversion", "1.0"),
        ("ce-type", "google.cloud.audit.log.v1.written"),
        ("ce-time", time.as_str()),
        ("traceparent", &parent),
    ];
    let body = entry.to_string();
    let content_type = "application/json; charset=utf-8";
    let answer = scene.service.post_raw(content_type, body, &headers);
    assert_eq!(outcome(&answer.await.unwrap()).0, "marked");
    assert_eq!(scene.intent().await["source"], "eventarc");
    let whole = format!("projects/{PROJECT}/traces/{trace}");
    let marked = scene
        .service
        .wait_for_log(secs(20), "the node is marked", |line| {
            line["event"] == "node_marked"
        });
    let marked = marked.await;
    assert_eq!(
        marked["logging.googleapis.com/trace"],
        json!(whole),
        "{marked}"
    );
    assert_eq!(marked["logging.googleapis.com/spanId"], "b7ad6b7169203331");
    assert_eq!(marked["logging.googleapis.com/trace_sampled"], true);
    let labels = &marked["logging.googleapis.com/labels"];
    assert_eq!(labels["node_name"], json!(scene.node.name), "{marked}");
    assert!(labels["cluster_name"].is_string(), "{marked}");
}
