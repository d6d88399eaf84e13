//! How keys are kept and replaced in the course of hours, on a fast clock.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use drainwell_app::clock::Clock;
use drainwell_app::driver::ports::{Cloud, Cluster, ClusterId};
use drainwell_app::ingress::auth::{Auth, Rules};
use drainwell_app::serve::{self, Parts};
use drainwell_core::policy::Policies;
use drainwell_sim::world::{World, WorldOptions};
use drainwell_tests::issuer::{Draft, Key};
use drainwell_tests::key_server::{Fault, KeyServer};
use drainwell_tests::wait::{eventually, secs};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{AUDIENCE, Answer, SENDER, ask, bearer};

/// A service in this process, on a clock of its own.
struct Fast {
    url: String,
    keys: KeyServer,
    clock: Clock,
    _tasks: JoinSet<anyhow::Result<()>>,
}

impl Fast {
    async fn start(speed: f64) -> Self {
        // Far from the time of this machine, so that nobody reads that.
        let begin: Timestamp = "2031-05-01T00:00:00Z".parse().unwrap();
        let clock = Clock::scaled(begin, speed);
        let world = World::new(WorldOptions {
            id: ClusterId {
                name: "train".to_owned(),
                location: "us-central1".to_owned(),
                path: "p/us-central1/train".to_owned(),
            },
            project: "p".to_owned(),
            clock,
            seed: 1,
            latency: SignedDuration::ZERO,
        });
        let keys = KeyServer::start().await.unwrap();
        let clusters: Vec<Arc<dyn Cluster>> = vec![Arc::new(world.clone())];
        let cloud: Arc<dyn Cloud> = Arc::new(world);
        let mut parts = Parts::new(clusters, Some(cloud), Policies::default(), clock);
        parts.options.auth = Auth::Jwks(Rules {
            audiences: vec![AUDIENCE.into()],
            senders: vec![SENDER.parse().unwrap()],
            viewers: Vec::new(),
            jwks_url: keys.url(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::run(parts, listener, std::future::pending()));
        Self {
            url,
            keys,
            clock,
            _tasks: tasks,
        }
    }

    /// A token by this clock that lasts for the whole test.
    fn draft(&self) -> Draft {
        let now = self.clock.now();
        let draft = Draft::new(SENDER, AUDIENCE, now);
        draft.claim("exp", now.as_second() + 1_000_000_000)
    }

    async fn ask(&self, method: Method, path: &str, token: &str) -> Answer {
        let headers = [("authorization", &*bearer(token))];
        ask(&self.url, method, path, &headers).await
    }

    async fn status_of(&self, token: &str) -> u16 {
        let path = "/api/v1/maintenances";
        self.ask(Method::GET, path, token).await.status
    }

    /// The shortest time between two fetches.
    fn least_gap(&self) -> Duration {
        let asked = self.keys.asked();
        let gaps = asked.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.min().expect("there were two fetches")
    }
}

fn by_the_next(draft: &Draft) -> String {
    let draft = draft.clone().header("kid", Key::next().id);
    draft.signed_by(&Key::next(), &RSA_PKCS1_SHA256)
}

#[tokio::test]
async fn times_are_read_by_the_clock_that_is_given() {
    let fast = Fast::start(1.0).await;
    let now = fast.clock.now().as_second();
    let cases = [
        ("exp", -30, 200),
        ("exp", -61, 401),
        ("iat", 30, 200),
        ("iat", 90, 401),
    ];
    for (claim, offset, status) in cases {
        let token = fast.draft().claim(claim, now + offset).signed();
        assert_eq!(fast.status_of(&token).await, status, "{claim} {offset}");
    }
    let here = Draft::new(SENDER, AUDIENCE, Timestamp::now()).signed();
    assert_eq!(fast.status_of(&here).await, 401, "years ago by that clock");
}

#[tokio::test]
async fn keys_that_were_never_had_are_a_matter_of_time_and_not_of_the_token() {
    // Ten seconds pass in a second.
    let fast = Fast::start(10.0).await;
    let token = fast.draft().signed();
    let body = |body: &str| Fault::Body(body.into());
    let huge = format!("{{\"keys\": [\"{}\"]}}", "x".repeat(100_000));
    let keys = (0..40).map(|number| {
        let mut jwk = Key::current().jwk();
        jwk["kid"] = json!(number.to_string());
        jwk
    });
    let keys: Vec<_> = keys.collect();
    let faults = [
        (Fault::Status(500), "HTTP 500"),
        (body("<html>"), "no JSON"),
        (body("[]"), "no set of keys"),
        (body("{\"keys\": []}"), "no RSA key"),
        (body(&huge), "over 65536 bytes"),
        (body(&json!({ "keys": keys }).to_string()), "too many keys"),
        (Fault::Hang, "timed out"),
    ];
    for (fault, said) in faults {
        fast.keys.fail(fault);
        // Within the pause between two tries, the last fault is told.
        eventually(secs(30), said, async || {
            let answer = fast.ask(Method::POST, "/", &token).await;
            anyhow::ensure!(answer.status == 503, "{answer:?}");
            anyhow::ensure!(answer.headers.contains_key("retry-after"), "{answer:?}");
            anyhow::ensure!(answer.text.contains(said), "{answer:?}");
            Ok(())
        })
        .await;
        // The service has started, and goes on with what it does.
        let ready = ask(&fast.url, Method::GET, "/health/ready", &[]).await;
        assert_eq!(ready.status, 200);
    }
    // What is refused anyway needs no key.
    let expired = fast.draft().claim("exp", 1).signed();
    assert_eq!(fast.status_of(&expired).await, 401);
    fast.keys.heal();
    eventually(secs(15), "the keys are there at last", async || {
        let answer = fast.ask(Method::POST, "/", &token).await;
        anyhow::ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    })
    .await;
    // Tries were five seconds apart, whatever came in.
    assert!(fast.least_gap() >= Duration::from_millis(500));
}

#[tokio::test]
async fn a_storm_of_unknown_keys_has_them_fetched_once_a_minute() {
    // A minute passes in a second.
    let fast = Fast::start(60.0).await;
    let (good, next) = (fast.draft().signed(), by_the_next(&fast.draft()));
    let mut storm = 0;
    while fast.keys.asked().len() < 3 {
        for n in 0..10 {
            let unknown = fast.draft().header("kid", format!("{storm}-{n}")).signed();
            assert_eq!(fast.status_of(&unknown).await, 401);
        }
        storm += 1;
        assert!(storm < 1000, "unknown keys are looked for again");
        assert_eq!(fast.status_of(&good).await, 200);
    }
    // A new key is found in spite of it.
    fast.keys.publish(&[&Key::current(), &Key::next()]);
    eventually(secs(10), "the new key is known", async || {
        let status = fast.status_of(&next).await;
        anyhow::ensure!(status == 200, "{status}");
        Ok(())
    })
    .await;
    assert!(fast.least_gap() >= secs(1), "{:?}", fast.keys.asked());
}

#[tokio::test]
async fn keys_are_replaced_when_they_have_had_their_time() {
    // Ten minutes pass in a second.
    let fast = Fast::start(600.0).await;
    fast.keys.cache_control("public, max-age=600");
    let (old, next) = (fast.draft().signed(), by_the_next(&fast.draft()));
    assert_eq!(fast.status_of(&old).await, 200);
    fast.keys.publish(&[&Key::next()]);
    eventually(secs(10), "the old key is forgotten", async || {
        let status = fast.status_of(&old).await;
        anyhow::ensure!(status == 401, "{status}");
        Ok(())
    })
    .await;
    assert_eq!(fast.status_of(&next).await, 200);
    assert!(fast.least_gap() >= secs(1), "{:?}", fast.keys.asked());
}

#[tokio::test]
async fn what_a_publisher_asks_for_is_kept_within_bounds() {
    // Five minutes pass in a second.
    let fast = Fast::start(300.0).await;
    fast.keys.cache_control("no-cache, max-age=0");
    let token = fast.draft().signed();
    eventually(secs(10), "keys are fetched again", async || {
        assert_eq!(fast.status_of(&token).await, 200);
        anyhow::ensure!(fast.keys.asked().len() > 2);
        Ok(())
    })
    .await;
    assert!(fast.least_gap() >= secs(1), "{:?}", fast.keys.asked());

    // A day passes in a second.
    let fast = Fast::start(86_400.0).await;
    fast.keys.cache_control("max-age=31536000");
    let token = fast.draft().signed();
    eventually(secs(10), "keys are fetched again", async || {
        assert_eq!(fast.status_of(&token).await, 200);
        anyhow::ensure!(fast.keys.asked().len() > 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn old_keys_are_good_while_new_ones_cannot_be_had() {
    let fast = Fast::start(600.0).await;
    fast.keys.cache_control("max-age=300");
    let token = fast.draft().signed();
    assert_eq!(fast.status_of(&token).await, 200);
    for fault in [Fault::Status(503), Fault::Body("{}".into()), Fault::Hang] {
        fast.keys.fail(fault);
        let before = fast.keys.asked().len();
        eventually(secs(20), "new keys are asked for", async || {
            // Sooner than a fetch is given up: the old key is at hand.
            let seen = timeout(secs(4), fast.status_of(&token)).await;
            assert_eq!(seen, Ok(200));
            anyhow::ensure!(fast.keys.asked().len() > before + 1);
            Ok(())
        })
        .await;
    }
    fast.keys.heal();
    fast.keys.publish(&[&Key::next()]);
    eventually(secs(10), "the old key is forgotten", async || {
        let status = fast.status_of(&token).await;
        anyhow::ensure!(status == 401, "{status}");
        Ok(())
    })
    .await;
    // A minute is a tenth of a second.
    assert!(fast.least_gap() >= Duration::from_millis(100));
}
