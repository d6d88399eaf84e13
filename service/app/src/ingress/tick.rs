//! `POST /tick`: keeps working while work is left, so that a platform that
//! gives CPU to requests only gives it to the drains.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::time::Instant;

use super::Ingress;
use super::problem::Problem;

/// The first pass is waited for even when the hold is short: one under way
/// (an eviction may take 15 s) and one after it.
const FIRST_PASS: Duration = Duration::from_secs(30);

pub(super) async fn post(State(ingress): State<Arc<Ingress>>) -> Response {
    let until = Instant::now() + ingress.tick_hold;
    let serial = ingress.wake.request(false);
    let first = ingress.wake.pass_after(serial);
    let Ok(first) = tokio::time::timeout_at(until + FIRST_PASS, first).await else {
        return Problem::later("a pass is still under way").into_response();
    };
    let Some(mut report) = first else {
        return Problem::later("the service is stopping").into_response();
    };
    let mut actions = report.actions;
    while let Some(next) = report.next {
        // A moment that has passed is due now.
        let due_in = Duration::try_from(next.duration_since(ingress.clock.now()));
        if Instant::now() + due_in.unwrap_or_default() > until {
            break;
        }
        match tokio::time::timeout_at(until, ingress.wake.next_report(&report)).await {
            Ok(Some(newer)) => report = newer,
            Ok(None) | Err(_) => break,
        }
        actions += report.actions;
    }
    let summary = json!({
        "maintenances": report.maintenances.iter().filter(|m| m.ended.is_none()).count(),
        "actions": actions,
        "waiting": report.waiting,
        "next": report.next,
        "clusters": report.clusters,
    });
    Json(summary).into_response()
}
