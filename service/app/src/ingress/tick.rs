//! `POST /tick`: keeps working while work is left, so that a platform that
//! gives CPU to requests only gives it to the drains.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::Ingress;
use super::problem::Problem;
use crate::driver::wake::Reports;

/// The first pass is waited for even when the hold is short: one that is under
/// way, and one after it.
const FIRST_PASS: Duration = Duration::from_secs(30);

/// What a tick with this hold may take in all. It ends by itself before that.
pub(super) fn time(hold: Duration) -> Duration {
    hold + FIRST_PASS + Duration::from_secs(5)
}

pub(super) async fn post(State(ingress): State<Arc<Ingress>>) -> Response {
    let until = Instant::now() + ingress.tick_hold;
    let mut news = ingress.wake.watcher();
    let mut counted = Reports::new();
    let mut actions = 0;
    let first = ingress.wake.passes_over_all(ingress.wake.request());
    if tokio::time::timeout_at(until + FIRST_PASS, first)
        .await
        .is_err()
    {
        return Problem::later("a pass is still under way").into_response();
    }
    loop {
        let reports = news.borrow_and_update().clone();
        actions += new_actions(&reports, &mut counted);
        let next = reports.values().filter_map(|report| report.next).min();
        // A moment that has passed is due now.
        let due_in = next.map(|at| Duration::try_from(at.duration_since(ingress.clock.now())));
        let due = due_in.map(|due_in| Instant::now() + due_in.unwrap_or_default());
        let more = due.is_some_and(|due| due <= until);
        let news = tokio::time::timeout_at(until, news.changed());
        if !more || !matches!(news.await, Ok(Ok(()))) {
            return summary(&reports, actions, next);
        }
    }
}

/// Actions of the reports that have not been counted yet.
fn new_actions(reports: &Reports, counted: &mut Reports) -> usize {
    let mut actions = 0;
    for (path, report) in reports {
        let known = counted.insert(path.clone(), Arc::clone(report));
        if known.is_none_or(|known| !Arc::ptr_eq(&known, report)) {
            actions += report.actions;
        }
    }
    actions
}

fn summary(reports: &Reports, actions: usize, next: Option<Timestamp>) -> Response {
    let maintenances = reports.values().flat_map(|report| &report.maintenances);
    let clusters = reports
        .iter()
        .map(|(path, report)| (path.as_str(), report.status.as_str()));
    let summary = json!({
        "maintenances": maintenances.filter(|m| m.ended.is_none()).count(),
        "actions": actions,
        "waiting": reports.values().map(|report| report.waiting).sum::<usize>(),
        "next": next,
        "clusters": clusters.collect::<BTreeMap<_, _>>(),
    });
    Json(summary).into_response()
}
