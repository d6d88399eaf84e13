//! The service's door: who is let in to which route, and who is told what. The
//! service is its own binary, or runs in this process where a test chooses the
//! time. Nothing here needs a cluster: who isn't let in never gets that far.

#![expect(clippy::unwrap_used, reason = "a test reports what is wrong by ending")]

mod keys;
mod keys_in_time;
mod listeners;
mod platform;
mod roles;
mod settings;
mod tokens;

use std::sync::LazyLock;

use drainwell_tests::fixture::wrap;
use drainwell_tests::issuer::Draft;
use drainwell_tests::key_server::KeyServer;
use drainwell_tests::service::{Service, Setup};
use jiff::Timestamp;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

const AUDIENCE: &str = "https://drainwell-abcdef-uc.a.run.app";
const SENDER: &str = "pubsub-push@proj.iam.gserviceaccount.com";
const VIEWER: &str = "ops@example.com";

/// A service that checks tokens, and the keys to them.
struct Door {
    service: Service,
    keys: KeyServer,
}

impl Door {
    /// With these settings besides audience, sender and keys.
    async fn jwks(arguments: &[&str]) -> Self {
        let mut all = vec!["--auth", "jwks", "--audience", AUDIENCE];
        all.extend(arguments);
        Self::start(&all).await
    }

    async fn start(arguments: &[&str]) -> Self {
        let keys = KeyServer::start().await.unwrap();
        let url = keys.url();
        let mut auth = vec!["--sender", SENDER, "--jwks-url", &url];
        auth.extend(arguments);
        let setup = Setup::alone().unwrap().auth(&auth);
        // All that the service can ever be made to log.
        let setup = setup.arguments(&["--tick-hold", "0"]);
        let setup = setup.environment("RUST_LOG", "trace");
        let service = setup.start().await.unwrap();
        Self { service, keys }
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        ask(&self.service.url(), method, path, headers).await
    }

    /// Shows the maintenances, if the bearer of this may see them.
    async fn see(&self, authorization: &str) -> Answer {
        let headers = [("authorization", authorization)];
        self.ask(Method::GET, "/api/v1/maintenances", &headers)
            .await
    }

    /// The status of the same for a token.
    async fn status_of(&self, token: &str) -> u16 {
        self.see(&format!("Bearer {token}")).await.status
    }

    /// Posts a notice, if the bearer of this may.
    async fn post(&self, authorization: &str) -> Answer {
        let headers = [("authorization", authorization)];
        self.ask(Method::POST, "/", &headers).await
    }
}

/// An answer: of a problem its detail, else the whole body.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

/// One for all tests, since it takes long to make; it keeps no connections,
/// since each test has a runtime of its own.
static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
    let builder = reqwest::Client::builder().no_proxy();
    builder.pool_max_idle_per_host(0).build().unwrap()
});

/// A request, with a notice that is about nothing if it posts.
async fn ask(base: &str, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = CLIENT.request(method.clone(), format!("{base}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if method == Method::POST {
        request = request.body(wrap(&other_entry()).to_string());
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    let detail: Value = serde_json::from_str(&text).unwrap_or_default();
    let detail = detail["detail"].as_str().map(str::to_owned);
    Answer {
        status,
        headers,
        text: detail.unwrap_or(text),
    }
}

/// An audit log entry that has nothing to do with maintenance.
fn other_entry() -> Value {
    json!({
        "insertId": "1",
        "timestamp": Timestamp::now().to_string(),
        "protoPayload": {"methodName": "v1.compute.instances.delete"},
        "resource": {"type": "gce_instance", "labels": {}},
    })
}

/// A token of the sender, as it should be but for its signature.
fn draft() -> Draft {
    Draft::new(SENDER, AUDIENCE, Timestamp::now())
}

/// A token of a user, as gcloud has it made: for gcloud itself.
fn of_user(email: &str) -> Draft {
    let gcloud = "32555940559.apps.googleusercontent.com";
    Draft::new(email, gcloud, Timestamp::now())
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
