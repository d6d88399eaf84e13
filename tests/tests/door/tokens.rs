//! Which tokens are valid, and what is said of those that are not.

use std::net::SocketAddr;

use anyhow::ensure;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PKCS1_SHA512};
use drainwell_tests::issuer::{Draft, Key, TAKEN};
use drainwell_tests::wait::{eventually, secs};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{AUDIENCE, Door, SENDER, bearer, draft};

/// A token, the status that it gets, and what the answer must say.
type Case = (&'static str, String, u16, &'static str);

fn times() -> Vec<Case> {
    let now = Timestamp::now().as_second();
    let at = |name: &str, offset: i64| draft().claim(name, now + offset);
    vec![
        ("good", draft().signed(), 200, "maintenances"),
        ("expired", at("exp", -90).signed(), 401, "expired"),
        ("just expired", at("exp", -30).signed(), 200, ""),
        (
            "fraction",
            draft().claim("exp", now as f64 + 0.5).signed(),
            200,
            "",
        ),
        (
            "no exp",
            draft().claim("exp", Value::Null).signed(),
            401,
            "when it expires",
        ),
        (
            "exp is text",
            draft().claim("exp", "soon").signed(),
            401,
            "when it expires",
        ),
        (
            "exp is huge",
            draft().claim("exp", 1e300).signed(),
            401,
            "when it expires",
        ),
        (
            "exp is least",
            draft().claim("exp", i64::MIN).signed(),
            401,
            "expired",
        ),
        (
            "no iat",
            draft().claim("iat", Value::Null).signed(),
            401,
            "when it was issued",
        ),
        ("issued later", at("iat", 120).signed(), 401, "s from now"),
        ("issued a bit later", at("iat", 30).signed(), 200, ""),
        (
            "not yet valid",
            at("nbf", 120).signed(),
            401,
            "not valid before",
        ),
        ("valid soon", at("nbf", 30).signed(), 200, ""),
    ]
}

fn claims() -> Vec<Case> {
    let both = json!(["https://other.example.com", AUDIENCE]);
    let is = |name: &str, value: Value| draft().claim(name, value).signed();
    let mine = "none of --audience";
    vec![
        (
            "short issuer",
            is("iss", json!("accounts.google.com")),
            200,
            "",
        ),
        (
            "other issuer",
            is("iss", json!("https://example.com")),
            401,
            "issuer is \"https://e",
        ),
        ("no issuer", is("iss", Value::Null), 401, "issuer"),
        ("several audiences", is("aud", both), 200, ""),
        (
            "other audience",
            is("aud", json!("https://other.example.com")),
            403,
            mine,
        ),
        ("other audiences", is("aud", json!(["a", 1])), 403, mine),
        (
            "longer audience",
            is("aud", json!(format!("{AUDIENCE}/"))),
            403,
            mine,
        ),
        ("no audience", is("aud", Value::Null), 403, mine),
        (
            "other sender",
            is("email", json!("x@example.com")),
            403,
            "\"x@example.com\" is none of",
        ),
        (
            "sender in capitals",
            is("email", json!(SENDER.to_uppercase())),
            200,
            "",
        ),
        ("no e-mail", is("email", Value::Null), 403, "no e-mail"),
        (
            "unverified",
            is("email_verified", json!(false)),
            403,
            "not verified",
        ),
        (
            "verified as text",
            is("email_verified", json!("true")),
            403,
            "not verified",
        ),
        (
            "verification unsaid",
            is("email_verified", Value::Null),
            403,
            "not verified",
        ),
        (
            "terminal codes",
            is("email", json!("\u{1b}[31m@x.y")),
            403,
            "\\u{1b}[31m@x.y",
        ),
    ]
}

fn algorithms() -> Vec<Case> {
    let key = Key::current();
    let with = |alg: &str| draft().header("alg", alg);
    let bad = "signature is not right";
    let hmac = with("HS256").signed_with_secret(&key.public_bytes());
    let pss = with("PS256").signed();
    vec![
        (
            "none",
            with("none").with_signature(""),
            401,
            "algorithm is \"none\"",
        ),
        (
            "no algorithm",
            draft().header("alg", Value::Null).signed(),
            401,
            "no algorithm",
        ),
        ("a secret", hmac, 401, "algorithm is \"HS256\""),
        (
            "a secret as RS256",
            draft().signed_with_secret(&key.public_bytes()),
            401,
            bad,
        ),
        (
            "RS512",
            with("RS512").signed_by(&key, &RSA_PKCS1_SHA512),
            401,
            "RS256 is expected",
        ),
        (
            "RS512 as RS256",
            draft().signed_by(&key, &RSA_PKCS1_SHA512),
            401,
            bad,
        ),
        ("PS256", pss, 401, "RS256 is expected"),
    ]
}

fn signatures() -> Vec<Case> {
    let other = draft().header("kid", Key::next().id);
    let (good, forged) = (draft().signed(), draft().claim("email", "x@example.com"));
    let (message, signature) = good.rsplit_once('.').unwrap();
    let taken = format!("{message}.{TAKEN}");
    let bad = "signature is not right";
    vec![
        (
            "another's key",
            draft().signed_by(&Key::next(), &RSA_PKCS1_SHA256),
            401,
            bad,
        ),
        (
            "unknown key",
            other.signed_by(&Key::next(), &RSA_PKCS1_SHA256),
            401,
            "is none that",
        ),
        (
            "no key named",
            draft().header("kid", Value::Null).signed(),
            401,
            "names no key",
        ),
        (
            "own key in header",
            draft()
                .header("jwk", Key::next().jwk())
                .signed_by(&Key::next(), &RSA_PKCS1_SHA256),
            401,
            bad,
        ),
        ("no signature", draft().with_signature(""), 401, bad),
        ("other claims", forged.with_signature(signature), 401, bad),
        ("signature taken", taken, 401, "`--auth iam`"),
        ("cut short", good[..good.len() - 2].to_owned(), 401, bad),
        ("padded", format!("{good}=="), 401, bad),
    ]
}

fn texts() -> Vec<Case> {
    let good = draft().signed();
    let part = "bm8ganNvbg";
    vec![
        ("no dots", "abc".into(), 401, "three parts"),
        ("four parts", format!("{good}.e30"), 401, "three parts"),
        ("no base64", "{}.{}.x".into(), 401, "header that is no"),
        (
            "no JSON",
            format!("{part}.{part}.x"),
            401,
            "header that is no",
        ),
        ("a list", "W10.W10.x".into(), 401, "header that is no"),
        (
            "10 kB",
            draft().claim("x", "y".repeat(10_000)).signed(),
            401,
            "over 8192 bytes",
        ),
        (
            "something after",
            format!("{good} more"),
            401,
            "more in it than one",
        ),
        (
            "two in one",
            format!("{good}, Bearer {good}"),
            401,
            "more in it than one",
        ),
    ]
}

#[tokio::test]
async fn a_token_is_valid_or_it_is_said_what_is_wrong_with_it() {
    let door = Door::jwks(&[]).await;
    let mut refused = 0;
    let all = [times(), claims(), algorithms(), signatures(), texts()].concat();
    for (name, token, status, text) in &all {
        let answer = door.see(&bearer(token)).await;
        assert_eq!(answer.status, *status, "{name}: {}", answer.text);
        assert!(answer.text.contains(text), "{name}: {}", answer.text);
        let challenge = answer.headers.get("www-authenticate");
        assert_eq!(
            challenge.is_some_and(|c| c == "Bearer"),
            *status == 401,
            "{name}"
        );
        if *status != 200 {
            refused += 1;
            assert_eq!(
                answer.headers["content-type"], "application/problem+json",
                "{name}"
            );
            shows_nothing_of(token, &answer.text, name);
        }
    }
    // One line each, and none that shows a token, at any level.
    eventually(secs(10), "one line each", async || {
        let told = door.service.log_of("notice_rejected").len();
        ensure!(told == refused, "{told} of {refused}");
        Ok(())
    })
    .await;
    let lines: Vec<String> = door.service.log().iter().map(Value::to_string).collect();
    let log = lines.join("\n") + &door.service.stderr();
    for (name, token, _, _) in &all {
        shows_nothing_of(token, &log, name);
    }
    let accepted = "is none of --sender and --viewer (pubsub-push@proj";
    assert!(log.contains(accepted), "the log says who would be let in");
}

/// Claims are named where they are why; parts of the token never are.
fn shows_nothing_of(token: &str, text: &str, name: &str) {
    for part in token.split(['.', ' ']).filter(|part| part.len() > 30) {
        assert!(!text.contains(&part[..30]), "{name}: shown in {text}");
    }
}

#[tokio::test]
async fn a_request_has_one_header_with_one_bearer_token() {
    let door = Door::jwks(&[]).await;
    let good = draft().signed();
    let cases = [
        (format!("bearer {good}"), 200),
        (format!("BEARER   {good}"), 200),
        (format!("Bearer{good}"), 401),
        ("Bearer".to_owned(), 401),
        ("Basic dXNlcjpwYXNz".to_owned(), 401),
        (good.clone(), 401),
    ];
    for (authorization, status) in &cases {
        let answer = door.see(authorization).await;
        assert_eq!(answer.status, *status, "{authorization}: {}", answer.text);
    }
    let good = bearer(&good);
    let twice = [
        ("authorization", good.as_str()),
        ("authorization", good.as_str()),
    ];
    let path = "/api/v1/maintenances";
    let answer = door.ask(Method::GET, path, &twice).await;
    assert!(answer.text.contains("more than one"), "{answer:?}");
    assert_eq!(answer.status, 401);
    let without = door.ask(Method::GET, path, &[]).await;
    assert!(without.text.contains("no token"), "{without:?}");
    assert_eq!(
        (without.status, &without.headers["www-authenticate"]),
        (401, &"Bearer".parse().unwrap())
    );
    // Only the platform reads this one, and there is none here.
    let other = [("x-serverless-authorization", good.as_str())];
    assert_eq!(door.ask(Method::GET, path, &other).await.status, 401);
}

#[tokio::test]
async fn who_is_not_let_in_is_told_before_a_byte_of_the_body_is_there() {
    let door = Door::jwks(&[]).await;
    let address: SocketAddr = door.service.url()["http://".len()..].parse().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = timeout(secs(5), stream.read_exact(&mut answer)).await;
    read.expect("the body isn't waited for").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

#[test]
fn any_text_is_read_or_refused() {
    let good = Draft::new(SENDER, AUDIENCE, Timestamp::UNIX_EPOCH).signed();
    let mut random = fastrand::Rng::with_seed(7);
    let mut readable = 0;
    for _ in 0..20_000 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(bytes.len() / 2..=bytes.len() * 2));
        let text = String::from_utf8_lossy(&bytes);
        readable += usize::from(drainwell_app::ingress::auth::read(&text).is_ok());
    }
    assert!(
        readable > 1000,
        "most are near enough to a token: {readable}"
    );
}
