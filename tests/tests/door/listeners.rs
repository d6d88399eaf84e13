//! What is told of those who never got as far as a notice, and who may see it.

use anyhow::{Context as _, ensure};
use drainwell_tests::service::{Service, Setup};
use drainwell_tests::wait::{eventually, secs};
use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ask;

/// Where the metrics are, as the log tells.
async fn metrics_url(service: &Service) -> String {
    let url = |line: &Value| {
        let told = line["message"].as_str()?.strip_prefix("metrics are on ")?;
        told.strip_suffix("/metrics").map(str::to_owned)
    };
    eventually(secs(10), "where the metrics are", async || {
        service.log().iter().find_map(url).context("not told yet")
    })
    .await
}

fn open_setup() -> Setup {
    Setup::alone().unwrap().auth(&["--auth", "none"])
}

#[tokio::test]
async fn metrics_have_a_listener_of_their_own_where_nothing_else_is() {
    let setup = open_setup();
    let setup = setup.arguments(&["--metrics-listen", "127.0.0.1:0"]);
    let service = setup.start().await.unwrap();
    let url = metrics_url(&service).await;
    let answer = ask(&url, Method::GET, "/metrics", &[]).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains("drainwell_build_info"), "{answer:?}");
    assert_eq!(ask(&url, Method::POST, "/metrics", &[]).await.status, 405);
    for path in [
        "/",
        "/events",
        "/tick",
        "/api/v1/maintenances",
        "/health/live",
    ] {
        for method in [Method::GET, Method::POST] {
            let answer = ask(&url, method.clone(), path, &[]).await;
            assert_eq!(answer.status, 404, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn what_holds_no_notice_is_counted_too() {
    let service = open_setup().start().await.unwrap();
    let url = service.url();
    assert_eq!(ask(&url, Method::POST, "/", &[]).await.status, 200);
    for body in ["no JSON", "{}", r#"{"message": {"data": "e30="}}"#] {
        let answer = service.post_raw("application/json", body, &[]).await;
        assert_eq!(answer.unwrap().status, 400, "{body}");
    }
    let text = ask(&url, Method::GET, "/metrics", &[]).await.text;
    for line in [
        r#"drainwell_notices_total{source="pubsub",phase="none",outcome="ignored"} 1"#,
        r#"drainwell_notices_total{source="unknown",phase="none",outcome="malformed"} 3"#,
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test]
async fn heads_that_cannot_be_read_are_told_of() {
    let service = open_setup().start().await.unwrap();
    let address = service.url().replace("http://", "");
    let lines = "x: y\r\n".repeat(2000);
    let heads = [
        format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n"),
        format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000)),
        "what is this\r\n\r\n".to_owned(),
    ];
    for head in &heads {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // It may be hung up on before the end.
        drop(stream.write_all(head.as_bytes()).await);
        let mut answer = Vec::new();
        drop(
            timeout(secs(10), stream.read_to_end(&mut answer))
                .await
                .unwrap(),
        );
    }
    eventually(secs(10), "a line for each", async || {
        let told = service.log_of("notice_rejected").len();
        ensure!(told == heads.len(), "{told} lines");
        Ok(())
    })
    .await;
}
