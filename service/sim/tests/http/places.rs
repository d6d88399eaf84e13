//! A service that is full: what is put off, and what is not.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drainwell_app::ingress::Limits;
use drainwell_app::ingress::auth::{Auth, Rules};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::SOON;
use super::client::{Client, head, post};
use super::scene::{Scene, Setup};

/// Few enough to take them all.
fn few() -> Limits {
    Limits {
        connections: 8,
        notices: 2,
        ticks: 1,
        views: 1,
        ..Limits::default()
    }
}

#[tokio::test]
async fn idle_connections_are_closed_for_those_who_have_something_to_say() {
    let scene = Setup::new(few()).start().await;
    scene.announce(0);
    let mut idle = Vec::new();
    for index in 0..60 {
        let mut client = scene.client().await;
        match index % 3 {
            0 => {}
            1 => client.send(b"POST / HTTP/1.1\r\nhost: ").await,
            _ => assert_eq!(client.get("/health/live").await.status, 200),
        }
        idle.push(client);
    }
    let mut sender = scene.client().await;
    let notice = scene.ongoing(0).to_string();
    assert_eq!(sender.post("/", &notice).await.status, 200);
    assert_eq!(scene.client().await.get("/health/live").await.status, 200);
    // The oldest were closed for the others.
    for client in &mut idle[..50] {
        assert!(client.answer().await.is_none());
    }
}

#[tokio::test]
async fn whoever_waits_for_keys_is_not_idle() {
    let publisher = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rules = Rules {
        audiences: vec!["https://drainwell.example".to_owned()],
        senders: vec!["push@p.iam.gserviceaccount.com".parse().unwrap()],
        viewers: vec![],
        jwks_url: format!("http://{}/keys", publisher.local_addr().unwrap()),
    };
    let setup = Setup::new(few()).auth(Auth::Jwks(rules));
    let scene = setup.start().await;
    let now = scene.world.clock().now().as_second();
    let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let header = part(json!({"alg": "RS256", "kid": "k1", "typ": "JWT"}));
    let claims = part(json!({
        "iss": "https://accounts.google.com", "aud": "https://drainwell.example",
        "iat": now, "exp": now + 600,
    }));
    let bearer = format!("authorization: Bearer {header}.{claims}.c2lnbmF0dXJl\r\n");
    let mut sender = scene.client().await;
    sender
        .send(head("POST", "/tick", &(bearer + "content-length: 0\r\n")).as_bytes())
        .await;
    let asked = tokio::time::timeout(SOON, publisher.accept()).await;
    let (mut keys, _) = asked.unwrap().unwrap();
    for _ in 0..30 {
        let mut client = scene.client().await;
        assert_eq!(client.get("/health/live").await.status, 200);
    }
    let failed = b"HTTP/1.1 500 Oh no\r\ncontent-length: 0\r\n\r\n";
    keys.write_all(failed).await.unwrap();
    let answer = sender.answer().await;
    assert_eq!(answer.expect("it was hung up on").status, 503);
}

/// Sends two notices, for each of which Compute takes a while, and waits until
/// both have their place.
async fn fill(scene: &Scene) -> [Client; 2] {
    let mut senders = [scene.client().await, scene.client().await];
    let notice = scene.ongoing(0).to_string();
    for sender in &mut senders {
        sender.send(post("/", &notice).as_bytes()).await;
    }
    // One that comes too soon to be put off has a place itself.
    let began = Instant::now();
    loop {
        let mut probe = scene.client().await;
        probe.send(post("/", "no JSON").as_bytes()).await;
        if probe.answer().await.unwrap().status == 503 {
            return senders;
        }
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}

#[tokio::test]
async fn with_all_places_taken_notices_are_put_off_at_once_and_the_rest_is_served() {
    let scene = Setup::new(few()).latency_ms(3000).start().await;
    scene.announce(0);
    let mut senders = fill(&scene).await;
    let began = Instant::now();
    let mut late = scene.client().await;
    let answer = late.post("/", &scene.ongoing(0).to_string()).await;
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("retry-after: "), "{answer:?}");
    assert!(answer.head.contains("application/problem+json"));
    assert_eq!(late.get("/health/live").await.status, 200);
    assert_eq!(late.get("/api/v1/maintenances").await.status, 200);
    // Those whose requests are worked on lose no connection to idle ones.
    for _ in 0..30 {
        let mut client = scene.client().await;
        assert_eq!(client.get("/health/live").await.status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "none of it waits");
    for sender in &mut senders {
        assert_eq!(sender.answer().await.unwrap().status, 200);
    }
    // And there is room again.
    assert_eq!(scene.client().await.post("/", "no JSON").await.status, 400);
}

#[tokio::test]
async fn ticks_take_no_place_from_notices() {
    let scene = Setup::new(few()).latency_ms(1000).start().await;
    scene.announce(0);
    // A pass takes a second here, and a tick waits for one.
    let mut tick = scene.client().await;
    tick.send(post("/tick", "").as_bytes()).await;
    let began = Instant::now();
    let mut second = scene.client().await;
    assert_eq!(second.post("/tick", "").await.status, 503);
    assert!(began.elapsed() < Duration::from_millis(900), "at once");
    let mut sender = scene.client().await;
    let answer = sender.post("/", &scene.ongoing(0).to_string()).await;
    assert_eq!(answer.json()["outcome"], "marked", "{answer:?}");
    assert_eq!(tick.answer().await.unwrap().status, 200);
}
