//! Where keys come from, and what goes wrong with that.

use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use drainwell_tests::issuer::Key;
use drainwell_tests::key_server::Fault;
use drainwell_tests::wait::{millis, secs};
use futures::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use super::{Door, bearer, draft};

/// A token that is signed by the next key.
fn by_the_next() -> String {
    let draft = draft().header("kid", Key::next().id);
    draft.signed_by(&Key::next(), &RSA_PKCS1_SHA256)
}

#[tokio::test]
async fn fifty_requests_at_once_have_the_keys_fetched_once() {
    let door = Door::jwks(&[]).await;
    door.keys.fail(Fault::Slow(millis(500)));
    let token = draft().signed();
    let all = join_all((0..50).map(|_| door.status_of(&token))).await;
    assert_eq!(all, vec![200; 50]);
    assert_eq!(door.keys.asked().len(), 1);
}

#[tokio::test]
async fn keys_of_other_kinds_are_passed_over_and_each_token_finds_its_own() {
    let door = Door::jwks(&[]).await;
    // As the next key but for one field, and named after what is wrong.
    let odd = [
        ("use", json!("enc")),
        ("alg", json!("RS512")),
        ("kty", json!("EC")),
        ("n", json!("AQAB")),
        ("n", json!("not base64!")),
        ("n", json!(7)),
        ("e", json!("")),
    ];
    let mut published = vec![json!("no key"), json!({"kty": "RSA"}), Key::current().jwk()];
    let mut plain = Key::next().jwk();
    let fields = plain.as_object_mut().unwrap();
    fields.retain(|name, _| !["use", "alg"].contains(&&**name));
    published.push(plain);
    for (number, (name, value)) in odd.iter().enumerate() {
        let mut jwk = Key::next().jwk();
        jwk["kid"] = json!(format!("odd-{number}"));
        jwk[name] = value.clone();
        published.push(jwk);
    }
    door.keys.publish_json(published);
    assert_eq!(door.status_of(&draft().signed()).await, 200);
    assert_eq!(door.status_of(&by_the_next()).await, 200);
    for (number, case) in odd.iter().enumerate() {
        let draft = draft().header("kid", format!("odd-{number}"));
        let token = draft.signed_by(&Key::next(), &RSA_PKCS1_SHA256);
        let answer = door.see(&bearer(&token)).await;
        assert_eq!(answer.status, 401, "{case:?}: {answer:?}");
        assert!(answer.text.contains("is none that"), "{case:?}: {answer:?}");
    }
    assert_eq!(door.keys.asked().len(), 1);
}

#[tokio::test]
async fn a_sender_that_goes_away_stops_no_fetch() {
    let door = Door::jwks(&[]).await;
    door.keys.fail(Fault::Slow(secs(3)));
    let token = draft().signed();
    // Those who leave before the keys are there, one after another.
    for _ in 0..3 {
        let left = timeout(millis(100), door.status_of(&token)).await;
        assert!(left.is_err(), "the keys are slow");
    }
    assert_eq!(door.status_of(&token).await, 200);
    assert_eq!(door.keys.asked().len(), 1);
}
