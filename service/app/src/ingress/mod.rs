//! HTTP in: routes, limits, and the answers that Pub/Sub acts on.
//!
//! Must not know what is evicted: it turns a request into a notice, hands it
//! to [`Reception`], which wakes the loop.

pub mod auth;
mod notices;
mod problem;
mod pubsub;
mod tick;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use self::auth::Auth;
use self::problem::Problem;
use crate::clock::Clock;
use crate::driver::wake::Wake;
use crate::reception::Reception;
use crate::telemetry::metrics::{MEDIA_TYPE, Metrics};
use crate::troubles::Troubles;

/// What the routes work with.
pub struct Ingress {
    /// Where notices are taken in.
    pub reception: Arc<Reception>,
    /// What keeps the service from being ready.
    pub troubles: Troubles,
    /// The driver's loop.
    pub wake: Wake,
    /// The clock.
    pub clock: Clock,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Who checks senders.
    pub auth: Auth,
    /// How long one tick may keep working.
    pub tick_hold: Duration,
}

/// The router with all routes.
pub fn router(ingress: Ingress) -> Router {
    let auth = ingress.auth;
    let state = Arc::new(ingress);
    let guarded = Router::new()
        .route("/", post(notices::post))
        .route("/events", post(notices::post))
        .route("/tick", post(tick::post))
        .route("/api/v1/maintenances", get(maintenances))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn(move |request, next| {
            auth::check(auth, request, next)
        }));
    Router::new()
        .merge(guarded)
        .route("/health/live", get(|| async { StatusCode::OK }))
        .route("/health/ready", get(ready))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "not found", "no such path") })
        .method_not_allowed_fallback(|| async {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method not allowed",
                "use another method",
            )
        })
        .layer(CatchPanicLayer::custom(
            |_: Box<dyn std::any::Any + Send>| {
                let what = "a fault in the service; the next request is served";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", what)
                    .into_response()
            },
        ))
        .with_state(state)
}

async fn maintenances(State(ingress): State<Arc<Ingress>>) -> Response {
    let reports = ingress.wake.reports();
    let all: Vec<_> = reports
        .values()
        .flat_map(|report| &report.maintenances)
        .collect();
    Json(json!({"maintenances": all})).into_response()
}

async fn metrics(State(ingress): State<Arc<Ingress>>) -> Response {
    let text = ingress.wake.measure(&ingress.metrics);
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response()
}

/// Ready once a first pass over every cluster has run: an earlier instance's
/// work is known then, or the cluster is down. And only while notices get in.
async fn ready(State(ingress): State<Arc<Ingress>>) -> Response {
    if let Some(why) = ingress.troubles.told() {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not ready", why).into_response();
    }
    if ingress.wake.all_seen() {
        StatusCode::OK.into_response()
    } else {
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}
