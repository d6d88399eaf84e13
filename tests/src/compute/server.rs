//! The HTTP side: routes, authentication, error bodies.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{Fault, Shared, TOKEN, Target};
use crate::control_plane::PROJECT;

const SERVICE_ACCOUNT: &str = "/computeMetadata/v1/instance/service-accounts/default";

pub(super) fn router(state: Shared) -> Router {
    let instances = "/compute/v1/projects/{project}/zones/{zone}/instances";
    let compute = Router::new()
        .route(&format!("{instances}/{{instance}}"), get(instance))
        .route(instances, get(zone_list))
        .route(
            "/compute/v1/projects/{project}/aggregated/instances",
            get(aggregated_list),
        )
        .layer(from_fn_with_state(state.clone(), require_token));
    let metadata = Router::new()
        .route("/", get(async || "computeMetadata/\n"))
        .route(&format!("{SERVICE_ACCOUNT}/token"), get(token))
        .route(&format!("{SERVICE_ACCOUNT}/email"), get(email))
        .route(
            "/computeMetadata/v1/universe/universe-domain",
            get(async || "googleapis.com"),
        )
        .route(
            "/computeMetadata/v1/project/project-id",
            get(async || PROJECT),
        )
        .layer(axum::middleware::from_fn(require_flavor));
    compute.merge(metadata).fallback(unknown).with_state(state)
}

async fn require_token(State(state): State<Shared>, request: Request, next: Next) -> Response {
    state.lock().requests.push(request.uri().to_string());
    let expected = format!("Bearer {TOKEN}");
    if request
        .headers()
        .get("authorization")
        .is_some_and(|sent| sent.as_bytes() == expected.as_bytes())
    {
        return next.run(request).await;
    }
    let message =
        "Request is missing required authentication credential. Expected OAuth 2 access token.";
    error(StatusCode::UNAUTHORIZED, "required", message)
}

/// The metadata server answers only those who say that they mean it, so that
/// a forged redirect can't fetch tokens.
async fn require_flavor(headers: HeaderMap, request: Request, next: Next) -> Response {
    if headers
        .get("metadata-flavor")
        .is_none_or(|flavor| flavor != "Google")
    {
        return (
            StatusCode::FORBIDDEN,
            "Missing Metadata-Flavor:Google header.",
        )
            .into_response();
    }
    let mut response = next.run(request).await;
    let google = axum::http::HeaderValue::from_static("Google");
    response.headers_mut().insert("metadata-flavor", google);
    response
}

async fn token(State(state): State<Shared>) -> Response {
    let answer = json!({ "access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer" });
    respond(state.note(&Target::Token), answer).await
}

async fn email() -> String {
    format!("drainwell@{PROJECT}.iam.gserviceaccount.com")
}

async fn instance(
    State(state): State<Shared>,
    Path((project, zone, instance)): Path<(String, String, String)>,
) -> Response {
    let vm = state.find(&project, &zone, &instance);
    let name = vm.as_ref().map_or(&instance, |vm| &vm.name);
    let fault = state.note(&Target::vm(name));
    match vm {
        Some(vm) => respond(fault, vm.resource()).await,
        None if fault.is_some() => respond(fault, Value::Null).await,
        None => {
            let resource = format!("projects/{project}/zones/{zone}/instances/{instance}");
            let message = format!("The resource '{resource}' was not found");
            error(StatusCode::NOT_FOUND, "notFound", &message)
        }
    }
}

async fn zone_list(
    State(state): State<Shared>,
    Path((project, zone)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    let fault = state.note(&Target::List);
    let (start, wanted) = page(&uri);
    let (instances, next) = state.page(&project, Some(&zone), start, wanted);
    let items: Vec<_> = instances
        .into_iter()
        .map(|(_, instance)| instance)
        .collect();
    let mut answer = json!({ "kind": "compute#instanceList", "items": items });
    set_next(&mut answer, next);
    respond(fault, answer).await
}

async fn aggregated_list(
    State(state): State<Shared>,
    Path(project): Path<String>,
    uri: Uri,
) -> Response {
    let fault = state.note(&Target::List);
    let (start, wanted) = page(&uri);
    let (instances, next) = state.page(&project, None, start, wanted);
    // A zone without instances is listed too, with a warning instead of them.
    let mut items = Map::new();
    items.insert(
        "zones/asia-east1-a".into(),
        json!({ "warning": {
            "code": "NO_RESULTS_ON_PAGE",
            "message": "There are no results for scope 'zones/asia-east1-a' on this page.",
            "data": [{ "key": "scope", "value": "zones/asia-east1-a" }],
        } }),
    );
    for (zone, instance) in instances {
        let scope = items
            .entry(format!("zones/{zone}"))
            .or_insert(json!({ "instances": [] }));
        if let Some(list) = scope["instances"].as_array_mut() {
            list.push(instance);
        }
    }
    let mut answer = json!({ "kind": "compute#instanceAggregatedList", "items": items });
    set_next(&mut answer, next);
    respond(fault, answer).await
}

/// Where the page starts, and how many instances it may hold: 500 at most, as
/// at Google.
fn page(uri: &Uri) -> (usize, usize) {
    let query = |name: &str| {
        let pairs = uri.query().unwrap_or_default().split('&');
        let mut values = pairs.filter_map(|pair| pair.split_once('='));
        values
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse().ok())
    };
    (
        query("pageToken").unwrap_or(0),
        query("maxResults").unwrap_or(500).min(500),
    )
}

fn set_next(answer: &mut Value, next: Option<usize>) {
    if let Some(next) = next {
        answer["nextPageToken"] = json!(next.to_string());
    }
}

async fn unknown(uri: Uri) -> Response {
    error(
        StatusCode::NOT_FOUND,
        "notFound",
        &format!("the stand-in has no {}", uri.path()),
    )
}

/// The answer, or what a fault makes of it.
async fn respond(fault: Option<Fault>, answer: Value) -> Response {
    match fault {
        None => {}
        Some(Fault::Slow(time)) => sleep(time).await,
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Garbage) => return "<html>502 Server Error".into_response(),
        Some(Fault::Status(code)) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let reason = match code {
                403 => "forbidden",
                429 => "rateLimitExceeded",
                503 => "backendError",
                _ => "internalError",
            };
            return error(status, reason, "the test asked for this");
        }
    }
    axum::Json(answer).into_response()
}

/// An error in the form of Google's JSON APIs.
fn error(status: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({ "error": {
        "code": status.as_u16(),
        "message": message,
        "errors": [{ "message": message, "domain": "global", "reason": reason }],
    } });
    (status, axum::Json(body)).into_response()
}
