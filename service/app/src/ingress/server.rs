//! Connections: how many, how long they may say nothing, and how they end.
//!
//! HTTP/1.1 alone: that is what Cloud Run speaks to a container unless it is
//! told otherwise (its documentation: "Using HTTP/2").

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::Service as _;

use super::connections::{Connection, Connections};
use super::limits::{HEAD_MAX, Limits, URL_MAX};
use crate::telemetry::log::Event;

/// What hyper reads of a request's head before it gives up, with an answer
/// that has no body: room for what `limits` refuses in words.
const READ_MAX: usize = HEAD_MAX + URL_MAX + (8 << 10);
/// The same for its lines: unwrapped push makes one of each attribute, and a
/// message has a hundred at most (quotas of Pub/Sub), besides what front ends add.
const HEADERS_MAX: usize = 512;
/// Out of file descriptors or memory, the next try comes after this; a
/// connection that is closed meanwhile makes room.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At the end, a connection that is neither worked for nor gone after this
/// has a sender who is in no hurry.
const END_PAUSE: Duration = Duration::from_secs(1);

/// Serves until `stop` shows true, and then the requests under way.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    mut stop: watch::Receiver<bool>,
) {
    let door = Door::new(listener, limits);
    let mut tasks = JoinSet::new();
    let ended = stop.clone();
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            // An error means that the sender is gone: stop as well.
            _ = stop.wait_for(|stop| *stop) => break,
            entered = door.next() => entered,
        };
        while tasks.try_join_next().is_some() {}
        let (connection, router) = (Arc::new(door.connections.open()), router.clone());
        let (head_time, ended) = (limits.head_time, ended.clone());
        tasks.spawn(async move {
            converse(stream, connection, router, head_time, ended).await;
            drop(slot);
        });
    }
    let connections = door.close();
    let all_ended = async |tasks: &mut JoinSet<()>| while tasks.join_next().await.is_some() {};
    while tokio::time::timeout(END_PAUSE, all_ended(&mut tasks))
        .await
        .is_err()
    {
        connections.close_idle();
    }
}

/// Where connections come in, so many at a time.
struct Door {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    connections: Connections,
}

impl Door {
    fn new(listener: TcpListener, limits: &Limits) -> Self {
        Self {
            listener,
            slots: Arc::new(Semaphore::new(limits.connections)),
            connections: Connections::default(),
        }
    }

    /// The next connection. When all slots are taken, the longest idle
    /// connection goes for it; there is one, since fewer requests are worked on.
    async fn next(&self) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let stream = self.accept().await;
            if self.slots.available_permits() == 0 {
                self.connections.close_oldest();
            }
            // It is never closed.
            if let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await {
                return (stream, slot);
            }
        }
    }

    async fn accept(&self) -> TcpStream {
        let mut told = false;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    if !told {
                        tracing::warn!("No connection can be accepted now: {error}");
                        told = true;
                    }
                    self.connections.close_oldest();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Lets nobody in any more.
    fn close(self) -> Connections {
        self.connections
    }
}

/// Errors of the connection that was to be accepted; the next one may do.
fn is_of_the_peer(error: &io::Error) -> bool {
    [
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionAborted,
        ErrorKind::ConnectionReset,
    ]
    .contains(&error.kind())
}

/// Serves one connection to its end, or until it has to make room.
async fn converse(
    stream: TcpStream,
    connection: Arc<Connection>,
    router: Router,
    head_time: Duration,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are written in one piece. Without it they are only slower.
    stream.set_nodelay(true).unwrap_or_default();
    let of_requests = Arc::clone(&connection);
    let service = service_fn(move |request| answer(&router, &of_requests, request));
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_time)
            .max_buf_size(READ_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service)
    );
    // How it ends, and why, is the peer's business: nothing is lost that was
    // answered, and what was not comes again.
    tokio::select! {
        biased;
        () = connection.told_to_close() => return,
        ended = serving.as_mut() => return tell_unreadable(&ended),
        _ = stop.wait_for(|stop| *stop) => {}
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        () = connection.told_to_close() => {}
        ended = serving => tell_unreadable(&ended),
    }
}

/// One request to the router. Its connection isn't closed for another one
/// meanwhile, also while nobody knows yet who has sent it: keys may have to be
/// fetched first, which takes seconds at the most.
fn answer(
    router: &Router,
    connection: &Arc<Connection>,
    request: hyper::Request<Incoming>,
) -> impl Future<Output = Result<Response, Infallible>> + use<> {
    let busy = Arc::clone(connection).busy();
    let answered = router.clone().call(request.map(Body::new));
    async move {
        let answer = answered.await;
        drop(busy);
        answer
    }
}

/// What never reached the router is told as well: hyper answers it itself, with
/// 431 or 400 and no body.
fn tell_unreadable(ended: &hyper::Result<()>) {
    let Err(error) = ended else { return };
    if error.is_parse() || error.is_parse_too_large() {
        let event = Event::NoticeRejected.name();
        tracing::warn!(event, "A request's head can't be read: {error}.");
    }
}
