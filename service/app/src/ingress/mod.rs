//! HTTP in: routes, limits, and the answers that Pub/Sub acts on.
//!
//! Must not know what is evicted: it turns a request into a notice, hands it
//! to [`Reception`], which wakes the loop.

pub mod auth;
mod connections;
pub mod envelope;
mod limits;
mod notices;
mod outcome;
mod problem;
mod server;
mod tick;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use self::auth::Guard;
pub use self::limits::Limits;
use self::limits::Places;
use self::problem::Problem;
pub(crate) use self::server::serve;
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
    /// Who lets senders in.
    pub guard: Guard,
    /// How long one tick may keep working.
    pub tick_hold: Duration,
    /// How much is done at once.
    pub limits: Limits,
}

/// The router with all routes. What isn't health is behind the guard, also
/// what isn't there.
pub fn router(ingress: Ingress) -> Router {
    let limits = &ingress.limits;
    let notices = Places::new("notices", limits.notices, notices::TIME);
    let ticks = Places::new("ticks", limits.ticks, tick::time(ingress.tick_hold));
    let views = Places::of_views(limits);
    let state = Arc::new(ingress);
    // Within the authentication: who is nobody takes no place.
    let in_place = |places| middleware::from_fn_with_state(places, limits::place);
    let notices = post(notices::post).route_layer(in_place(notices));
    let view = |of: MethodRouter<_>| of.route_layer(in_place(views.clone()));
    let guarded = Router::new()
        .route("/", notices.clone())
        .route("/events", notices)
        .route("/tick", post(tick::post).route_layer(in_place(ticks)))
        .route("/api/v1/maintenances", view(get(maintenances)))
        .route("/metrics", view(get(metrics)))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(state.clone(), auth::check));
    let health = Router::new()
        .route("/health/live", get(|| async { StatusCode::OK }))
        .route("/health/ready", get(ready))
        .method_not_allowed_fallback(method_not_allowed);
    Router::new()
        .merge(guarded)
        .merge(health)
        .layer(middleware::from_fn(limits::head))
        .layer(CatchPanicLayer::custom(
            |_: Box<dyn std::any::Any + Send>| {
                let what = "a fault in the service; the next request is served";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", what)
                    .into_response()
            },
        ))
        // Outside of all others: whoever answers, it is told.
        .layer(middleware::from_fn(outcome::tell))
        .with_state(state)
}

/// The metrics alone, for a scraper beside the service. Nobody else reaches the
/// listener, so that nobody is asked who they are.
pub(crate) fn scrape_router(wake: &Wake, metrics: &Metrics, limits: &Limits) -> Router {
    let (wake, metrics) = (wake.clone(), metrics.clone());
    let text = get(async move || {
        let text = wake.measure(&metrics);
        ([(header::CONTENT_TYPE, MEDIA_TYPE)], text)
    });
    let places = middleware::from_fn_with_state(Places::of_views(limits), limits::place);
    Router::new()
        .route("/metrics", text.route_layer(places))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(limits::head))
}

async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not found", "no such path")
}

async fn method_not_allowed() -> Problem {
    let what = "use another method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed", what)
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
/// work is known then, or the cluster is down. And only while what is pulled
/// from lets us. Whether the keys of tokens can be fetched is no part of it:
/// without them no notice is pushed, but what is under way must go on.
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
