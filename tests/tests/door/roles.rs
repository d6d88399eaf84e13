//! Who may do what: senders post and see, viewers see, health is for all.

use reqwest::Method;
use serde_json::Value;

use super::{AUDIENCE, Door, SENDER, VIEWER, bearer, of_user};
use drainwell_tests::issuer::Draft;
use jiff::Timestamp;

fn token(email: &str) -> String {
    let draft = Draft::new(email, AUDIENCE, Timestamp::now());
    draft.claim("hd", "example.org").signed()
}

#[tokio::test]
async fn senders_post_and_see_and_viewers_only_see() {
    let viewers = ["--viewer", VIEWER, "--viewer", "domain:example.org"];
    let door = Door::jwks(&viewers).await;
    let people = [
        token(SENDER),
        token(VIEWER),
        token("any@example.org"),
        token("x@example.com"),
    ];
    // What the sender, a viewer by address, one by domain and a stranger get.
    let routes = [
        (Method::POST, "/", [200, 403, 403, 403]),
        (Method::POST, "/events", [200, 403, 403, 403]),
        (Method::POST, "/tick", [200, 403, 403, 403]),
        (Method::GET, "/api/v1/maintenances", [200, 200, 200, 403]),
        (Method::HEAD, "/api/v1/maintenances", [200, 200, 200, 403]),
        (Method::DELETE, "/api/v1/maintenances", [405, 403, 403, 403]),
        (Method::GET, "/metrics", [200, 200, 200, 403]),
        (Method::GET, "/", [405, 405, 405, 403]),
        (Method::GET, "/nowhere", [404, 404, 404, 403]),
        (Method::POST, "/nowhere", [404, 403, 403, 403]),
    ];
    for (method, path, expected) in routes {
        for (token, status) in people.iter().zip(expected) {
            let headers = [("authorization", &*bearer(token))];
            let answer = door.ask(method.clone(), path, &headers).await;
            assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        }
        let nobody = door.ask(method.clone(), path, &[]).await;
        assert_eq!(nobody.status, 401, "{method} {path}");
    }
    let viewer = door.post(&bearer(&people[1])).await;
    assert!(viewer.text.contains("may see but not post"), "{viewer:?}");
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(door.ask(Method::GET, path, &[]).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_domain_is_that_of_accounts_which_somebody_manages() {
    let service_accounts = "domain:proj.iam.gserviceaccount.com";
    let viewers = [
        "--viewer",
        "domain:Example.org",
        "--viewer",
        service_accounts,
    ];
    let door = Door::jwks(&viewers).await;
    let token = |email: &str| Draft::new(email, AUDIENCE, Timestamp::now());
    let managed = |email: &str| token(email).claim("hd", "example.org");
    let cases = [
        (managed("a@example.org"), 200),
        (managed("a@EXAMPLE.ORG"), 200),
        (managed("a@sub.example.org"), 403),
        (managed("a@notexample.org"), 403),
        (managed("a@example.org@example.com"), 403),
        (managed("example.org"), 403),
        (managed("a@example.org").claim("email_verified", false), 403),
        (token("a@example.org"), 403),
        (token("a@example.org").claim("hd", ""), 403),
        (token("any@proj.iam.gserviceaccount.com"), 200),
        (token("any@other.iam.gserviceaccount.com"), 403),
        (of_user("a@example.org").claim("hd", "example.org"), 403),
    ];
    for (draft, status) in cases {
        let answer = door.see(&bearer(&draft.signed())).await;
        assert_eq!(answer.status, status, "{draft:?}: {answer:?}");
    }
    let private = door.see(&bearer(&token("a@example.org").signed())).await;
    assert!(private.text.contains("`hd`"), "{private:?}");
    let log: Vec<String> = door.service.log().iter().map(Value::to_string).collect();
    assert!(
        log.iter()
            .any(|line| line.contains("(pubsub-push@proj.iam.gserviceaccount.com, example.org"))
    );
}
