//! With `--auth iam`: a platform in front has checked the token and taken its
//! signature off.

use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use drainwell_tests::front::Front;
use drainwell_tests::issuer::{Key, TAKEN};
use jiff::Timestamp;
use reqwest::Method;

use super::{AUDIENCE, Door, SENDER, VIEWER, ask, bearer, draft, of_user};

const SERVERLESS: &str = "x-serverless-authorization";
const SEEN: &str = "/api/v1/maintenances";

#[tokio::test]
async fn the_platforms_word_is_taken_for_the_signature_and_nothing_else() {
    let door = Door::start(&["--auth", "iam"]).await;
    let taken = |draft: drainwell_tests::issuer::Draft| draft.with_signature(TAKEN);
    let past = Timestamp::now().as_second() - 90;
    let other = "https://other.example.com";
    let cases = [
        ("taken", taken(draft()), 200),
        ("any audience", taken(draft().claim("aud", other)), 200),
        ("expired", taken(draft().claim("exp", past)), 401),
        ("other issuer", taken(draft().claim("iss", other)), 401),
        (
            "other sender",
            taken(draft().claim("email", "x@example.com")),
            403,
        ),
        (
            "unverified",
            taken(draft().claim("email_verified", false)),
            403,
        ),
        (
            "nearly taken",
            draft().with_signature("SIGNATURE_REMOVED_BY_GOOGLE_"),
            401,
        ),
        ("no signature", draft().with_signature(""), 401),
    ];
    for (name, token, status) in &cases[..6] {
        assert_eq!(door.status_of(token).await, *status, "{name}");
    }
    assert!(door.keys.asked().is_empty(), "no key was needed");
    for (name, token, status) in &cases[6..] {
        assert_eq!(door.status_of(token).await, *status, "{name}");
    }
    // What arrives intact is checked all the same.
    assert_eq!(door.status_of(&draft().signed()).await, 200);
    let forged = draft().signed_by(&Key::next(), &RSA_PKCS1_SHA256);
    assert_eq!(door.status_of(&forged).await, 401);
}

#[tokio::test]
async fn an_audience_that_is_given_binds_senders_and_not_viewers() {
    let settings = ["--auth", "iam", "--audience", AUDIENCE, "--viewer", VIEWER];
    let door = Door::start(&settings).await;
    let other = draft().claim("aud", "https://other.example.com");
    assert_eq!(door.status_of(&draft().with_signature(TAKEN)).await, 200);
    assert_eq!(door.status_of(&other.with_signature(TAKEN)).await, 403);
    let viewer = of_user(VIEWER).with_signature(TAKEN);
    assert_eq!(door.status_of(&viewer).await, 200);
    assert_eq!(door.post(&bearer(&viewer)).await.status, 403);
}

#[tokio::test]
async fn viewers_come_through_the_proxy_of_gcloud() {
    let door = Door::start(&["--auth", "iam", "--audience", AUDIENCE, "--viewer", VIEWER]).await;
    let user = of_user(VIEWER).signed();
    // Newer proxies leave the Authorization header to the user, older don't.
    for header in [SERVERLESS, "authorization"] {
        let front = Front::start(&door.service.url(), header, &user)
            .await
            .unwrap();
        let seen = ask(&front.url(), Method::GET, SEEN, &[]).await;
        assert_eq!(seen.status, 200, "{header}: {seen:?}");
        let posted = ask(&front.url(), Method::POST, "/", &[]).await;
        assert_eq!(posted.status, 403, "{header}: {posted:?}");
    }
    let stranger = of_user("x@example.com").signed();
    let front = Front::start(&door.service.url(), SERVERLESS, &stranger)
        .await
        .unwrap();
    assert_eq!(ask(&front.url(), Method::GET, SEEN, &[]).await.status, 403);
}

/// Cloud Run checks one of the two headers and passes the other on as it is:
/// whoever may call the service at all could claim to be its sender there.
#[tokio::test]
async fn a_header_that_the_platform_did_not_check_is_not_believed() {
    let door = Door::start(&["--auth", "iam", "--viewer", VIEWER]).await;
    let user = of_user(VIEWER).signed();
    let front = Front::start(&door.service.url(), SERVERLESS, &user)
        .await
        .unwrap();
    let forged = bearer(&draft().with_signature(TAKEN));
    let headers = [("authorization", forged.as_str())];
    let posted = ask(&front.url(), Method::POST, "/", &headers).await;
    assert_eq!(posted.status, 403, "{posted:?}");
    assert!(posted.text.contains(VIEWER), "{posted:?}");
    let twice = [(SERVERLESS, forged.as_str()), (SERVERLESS, forged.as_str())];
    assert_eq!(door.ask(Method::GET, SEEN, &twice).await.status, 401);
    // Alone it is what the platform has checked.
    let direct = door.post(&forged).await;
    assert_eq!(direct.status, 200, "{SENDER} may post: {direct:?}");
}
