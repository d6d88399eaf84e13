//! What a request may take: the size of its head, its time, and one of the
//! places of its kind. Kinds have places of their own, so that ticks, which
//! last for minutes, and page views take none from the notices. Health needs
//! no place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Semaphore;

use super::problem::Problem;

/// Pub/Sub, Eventarc and the front ends between send a few kilobytes, with a
/// token of one or two. Names and values, and four bytes a line.
pub(super) const HEAD_MAX: usize = 16 << 10;
/// No URL of ours has over a hundred bytes; front ends pass such long ones.
pub(super) const URL_MAX: usize = 8 << 10;
/// Views of reports that are there already: what needs longer is stuck.
const VIEW_TIME: Duration = Duration::from_secs(10);

/// How much is done at once.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open connections. Half of the 1,024 file descriptors that a process has
    /// where nobody says otherwise: the rest is for our own calls. More than
    /// the places below, so that there is always one to close for a new one.
    pub connections: usize,
    /// How long a connection may take for the head of a request, and stay open
    /// without one. Senders keep theirs for a minute or so; nobody is kept out
    /// by them, since idle ones are closed when room is needed.
    pub head_time: Duration,
    /// Notices. More than the 80 requests that Cloud Run gives an instance by
    /// default; with the largest bodies 128 MiB, a quarter of its memory.
    pub notices: usize,
    /// Ticks: one scheduler calls, and calls again when it has lost an answer.
    pub ticks: usize,
    /// Views of reports.
    pub views: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            head_time: Duration::from_secs(60),
            notices: 128,
            ticks: 8,
            views: 32,
        }
    }
}

/// The places of one kind of requests.
#[derive(Debug, Clone)]
pub(super) struct Places {
    kind: &'static str,
    free: Arc<Semaphore>,
    number: usize,
    time: Duration,
    /// Whether it was told that they are all taken.
    told: Arc<AtomicBool>,
}

impl Places {
    pub(super) fn new(kind: &'static str, number: usize, time: Duration) -> Self {
        Self {
            kind,
            free: Arc::new(Semaphore::new(number)),
            number,
            time,
            told: Arc::default(),
        }
    }

    pub(super) fn of_views(limits: &Limits) -> Self {
        Self::new("views", limits.views, VIEW_TIME)
    }

    /// Once each time that they fill up.
    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let Self { kind, number, .. } = self;
            tracing::warn!("The service is full: {number} {kind} at once; more are put off.");
        }
    }
}

/// The middleware that gives a request a place and its time, or puts it off.
pub(super) async fn place(State(places): State<Places>, request: Request, next: Next) -> Response {
    let Ok(_place) = places.free.try_acquire() else {
        places.tell();
        let what = format!("the service is full: {} {}", places.number, places.kind);
        return Problem::later(what).into_response();
    };
    if places.free.available_permits() > places.number / 2 {
        places.told.store(false, Ordering::Relaxed);
    }
    match tokio::time::timeout(places.time, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            Problem::later(format!("it took over {} s", places.time.as_secs())).into_response()
        }
    }
}

/// The middleware that refuses heads over the limits.
pub(super) async fn head(request: Request, next: Next) -> Response {
    let url = request.uri().path_and_query();
    if url.is_some_and(|url| url.as_str().len() > URL_MAX) {
        let what = format!("the URL has over {URL_MAX} bytes");
        return Problem::new(StatusCode::URI_TOO_LONG, "too large", what).into_response();
    }
    let lines = request.headers().iter();
    let length: usize = lines.map(|(n, v)| n.as_str().len() + v.len() + 4).sum();
    if length > HEAD_MAX {
        let what = format!("the headers have over {HEAD_MAX} bytes");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Problem::new(status, "too large", what).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_connection_to_close_for_a_new_one() {
        let Limits {
            connections,
            notices,
            ticks,
            views,
            ..
        } = Limits::default();
        assert!(notices + ticks + views < connections);
    }
}
