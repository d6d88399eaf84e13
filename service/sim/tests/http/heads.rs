//! Heads of requests: slow, huge, in a row, and from senders who hang up.

use std::time::{Duration, Instant};

use drainwell_app::ingress::Limits;

use super::SOON;
use super::client::{head, post};
use super::scene::{Scene, Setup};

fn quick_limits() -> Limits {
    Limits {
        head_time: Duration::from_millis(300),
        ..Limits::default()
    }
}

#[tokio::test]
async fn who_takes_too_long_for_a_head_is_cut_off() {
    let scene = Setup::new(quick_limits()).start().await;
    let mut silent = scene.client().await;
    let mut slow = scene.client().await;
    slow.send(b"POST / HTTP/1.1\r\nhost: ").await;
    let mut kept = scene.client().await;
    assert_eq!(kept.get("/health/live").await.status, 200);
    for connection in [&mut silent, &mut slow, &mut kept] {
        assert!(connection.answer().await.is_none());
    }
    assert_eq!(scene.client().await.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn heads_over_the_limits_are_refused_in_words() {
    let scene = Setup::new(Limits::default()).start().await;
    let line = |length: usize| format!("x-long: {}\r\n", "x".repeat(length));
    let lines = |count: usize| line(1000).repeat(count);
    let url = |length: usize| format!("/health/live?{}", "x".repeat(length));
    for (path, more, status) in [
        ("/health/live".to_owned(), lines(15), 200),
        ("/health/live".to_owned(), line(17 << 10), 431),
        ("/".to_owned(), lines(17), 431),
        (url(8000), String::new(), 200),
        (url(9000), String::new(), 414),
        ("/no/such/path".to_owned() + &url(9000), line(14 << 10), 414),
    ] {
        let mut client = scene.client().await;
        client.send(head("GET", &path, &more).as_bytes()).await;
        let answer = client.answer().await.unwrap();
        let what = format!("{} of head, {} of URL: {answer:?}", more.len(), path.len());
        assert_eq!(answer.status, status, "{what}");
        if status != 200 {
            assert!(answer.head.contains("application/problem+json"), "{what}");
            assert_eq!(answer.json()["status"], status, "{what}");
        }
    }
    // What is far beyond isn't even read.
    let mut client = scene.client().await;
    let more = lines(300);
    client.send(head("GET", "/", &more).as_bytes()).await;
    assert!(client.answer().await.is_none_or(|a| a.status == 431));
    let mut many = scene.client().await;
    many.send(head("GET", "/", &"x: y\r\n".repeat(600)).as_bytes())
        .await;
    assert!(many.answer().await.is_none_or(|a| a.status == 431));
}

#[tokio::test]
async fn a_message_with_all_the_attributes_that_it_may_have_is_taken_unwrapped() {
    let scene = Setup::new(Limits::default()).start().await;
    scene.announce(0);
    let attribute = |n| format!("attribute-{n}: {}\r\n", "v".repeat(40));
    let lines: String = (0..100).map(attribute).collect();
    let front = "x-forwarded-for: 10.0.0.1\r\n".repeat(20);
    let body = scene.ongoing(0).to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let mut sender = scene.client().await;
    sender
        .send((head("POST", "/", &(lines + &front + &length)) + &body).as_bytes())
        .await;
    let answer = sender.answer().await.unwrap();
    assert_eq!(answer.json()["outcome"], "marked", "{answer:?}");
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order() {
    let scene = Setup::new(Limits::default()).start().await;
    scene.announce(0);
    let mut client = scene.client().await;
    let row = [
        head("GET", "/health/live", ""),
        post("/", "no JSON"),
        post("/events", &scene.ongoing(0).to_string()),
        head("DELETE", "/tick", ""),
        head("GET", "/nowhere", ""),
        head("GET", "/health/live", ""),
    ];
    client.send(row.concat().as_bytes()).await;
    for status in [200, 400, 200, 405, 404, 200] {
        assert_eq!(client.answer().await.unwrap().status, status);
    }
}

#[tokio::test]
async fn who_hangs_up_holds_no_place() {
    let limits = Limits {
        notices: 1,
        ..Limits::default()
    };
    let scene = Setup::new(limits).latency_ms(500).start().await;
    scene.announce(0);
    let notice = scene.ongoing(0).to_string();
    let whole = post("/", &notice);
    // Half a request, a whole one, and both once more by those who go at once.
    for part in [&whole[..whole.len() - 9], &whole] {
        let mut client = scene.client().await;
        client.send(part.as_bytes()).await;
        client.finish().await;
        let answer = client.answer().await;
        assert!(answer.is_none_or(|a| [200, 400, 503].contains(&a.status)));
        let mut client = scene.client().await;
        client.send(part.as_bytes()).await;
        drop(client);
    }
    let began = Instant::now();
    while scene.client().await.post("/", &notice).await.status == 503 {
        assert!(began.elapsed() < SOON, "the place is never free again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_end_waits_for_requests_and_not_for_those_who_are_in_no_hurry() {
    let limits = Limits {
        head_time: SOON * 3,
        ..Limits::default()
    };
    let mut scene: Scene = Setup::new(limits).latency_ms(700).start().await;
    scene.announce(0);
    let mut slow = scene.client().await;
    slow.send(b"POST / HTTP/1.1\r\nhost: ").await;
    let mut idle = scene.client().await;
    assert_eq!(idle.get("/health/live").await.status, 200);
    let mut sender = scene.client().await;
    let notice = scene.ongoing(0).to_string();
    sender.send(post("/", &notice).as_bytes()).await;
    // So that all of it is in before the service is asked to stop.
    assert_eq!(scene.client().await.get("/health/live").await.status, 200);
    let began = Instant::now();
    let (answer, ()) = tokio::join!(sender.answer(), scene.end());
    assert_eq!(answer.unwrap().status, 200);
    assert!(idle.answer().await.is_none() && slow.answer().await.is_none());
    // Were it for them, it would take the eight seconds after which all ends.
    assert!(began.elapsed() < Duration::from_secs(7), "{began:?}");
}
