//! A plain-HTTP proxy in front of the API server, for the service's kubeconfig.
//! It passes everything on, watches included, and goes wrong on demand.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
};
use axum::http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

mod fault;

pub use fault::{Fault, On, Seen};

/// The API server's own limit for a request.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

#[derive(Debug)]
struct Rule {
    on: On,
    left: Option<u32>,
    fault: Fault,
}

/// The proxy, while it lives.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    gone: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    rules: VecDeque<Rule>,
    seen: Vec<Seen>,
    rewrite: Option<Rewrite>,
}

/// What becomes of each pod in a list.
#[derive(Clone)]
struct Rewrite(Arc<dyn Fn(&mut Value) + Send + Sync>);

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rewrite")
    }
}

impl Proxy {
    /// Listens in front of `server`, which is trusted by the certificate `ca`.
    pub async fn start(server: &str, ca: PathBuf) -> anyhow::Result<Self> {
        let mut config = Config::new(server.parse()?);
        config.root_cert_file = Some(ca);
        config.default_retry = false;
        let upstream = Client::try_from(config)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            gone: watch::Sender::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, upstream, shared.clone()));
        Ok(Self {
            address,
            shared,
            _tasks: tasks,
        })
    }

    /// Base URL, for a kubeconfig.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets requests go wrong until `heal`. The fault that was set first wins.
    pub fn fail(&self, on: On, fault: Fault) {
        self.shared.lock().rules.push_back(Rule {
            on,
            left: None,
            fault,
        });
    }

    /// Lets the next `n` of these requests go wrong.
    pub fn fail_times(&self, n: u32, on: On, fault: Fault) {
        self.shared.lock().rules.push_back(Rule {
            on,
            left: Some(n),
            fault,
        });
    }

    /// Rewrites each pod in a list that the API server answers with.
    pub(crate) fn rewrite_pods(&self, rewrite: impl Fn(&mut Value) + Send + Sync + 'static) {
        self.shared.lock().rewrite = Some(Rewrite(Arc::new(rewrite)));
    }

    /// Cuts every connection, and every new one at once, until `heal`.
    pub fn go_away(&self) {
        self.shared.gone.send_replace(true);
    }

    /// Ends all faults. Requests that hang go on hanging.
    pub fn heal(&self) {
        self.shared.lock().rules.clear();
        self.shared.gone.send_replace(false);
    }

    /// All requests so far, in order, those that went wrong too.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// How many requests of this kind there were, those that went wrong too.
    pub fn count(&self, on: &On) -> usize {
        self.shared
            .lock()
            .seen
            .iter()
            .filter(|seen| on.matches(seen))
            .count()
    }

    /// The most requests of this kind that were under way at the same time,
    /// among those that came since `from`.
    pub fn most_at_once(&self, on: &On, from: Instant) -> usize {
        let seen = self.requests();
        let seen: Vec<_> = seen
            .iter()
            .filter(|seen| on.matches(seen) && seen.at >= from)
            .collect();
        let under_way = |at: Instant| {
            let there = |seen: &&&Seen| seen.at <= at && seen.over.is_none_or(|over| over > at);
            seen.iter().filter(there).count()
        };
        seen.iter()
            .map(|seen| under_way(seen.at))
            .max()
            .unwrap_or(0)
    }
}

/// A request under way. However it ends, that is noted.
struct UnderWay<'a> {
    shared: &'a Shared,
    index: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.shared.lock().seen[self.index].over = Some(Instant::now());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request, and gives the fault that applies to it.
    fn note(&self, request: Seen) -> (UnderWay<'_>, Option<Fault>) {
        let mut state = self.lock();
        let rule = state
            .rules
            .iter_mut()
            .find(|rule| rule.left != Some(0) && rule.on.matches(&request));
        let fault = rule.map(|rule| {
            rule.left = rule.left.map(|left| left - 1);
            rule.fault.clone()
        });
        state.seen.push(request);
        let index = state.seen.len() - 1;
        drop(state);
        let shared = self;
        (UnderWay { shared, index }, fault)
    }
}

/// An error of the handler makes hyper end the connection without an answer.
#[derive(Debug)]
struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is cut on purpose")
    }
}

impl std::error::Error for Cut {}

async fn accept(listener: TcpListener, upstream: Client, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        // Finished connections are let go here, so that the set stays small.
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        if !*shared.gone.borrow() {
            connections.spawn(serve(stream, upstream.clone(), shared.clone()));
        }
    }
}

async fn serve(stream: TcpStream, upstream: Client, shared: Arc<Shared>) {
    let mut gone = shared.gone.subscribe();
    let handler = service_fn(|request: Request<hyper::body::Incoming>| {
        let (upstream, shared) = (upstream.clone(), shared.clone());
        async move { handle(request.map(Body::new), &upstream, &shared).await }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), handler);
    tokio::select! {
        // An error is a connection that ended, which needs no answer.
        ended = connection => drop(ended),
        cut = gone.wait_for(|gone| *gone) => drop(cut),
    }
}

async fn handle(
    request: Request<Body>,
    upstream: &Client,
    shared: &Shared,
) -> Result<Response<Body>, Cut> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let method = request.method().clone();
    let lists_pods = path.starts_with("/api/v1/pods?") && !path.contains("watch=");
    let rewrite = shared.lock().rewrite.clone().filter(|_| lists_pods);
    let (at, over) = (Instant::now(), None);
    let (_under_way, mut fault) = shared.note(Seen {
        method,
        path,
        at,
        over,
    });
    while let Some(Fault::Late(time, inner)) = fault {
        sleep(time).await;
        fault = Some(*inner);
    }
    match fault {
        Some(Fault::Answer(code, body)) => Ok(answer(code, &body)),
        Some(Fault::Hang) => match std::future::pending::<Infallible>().await {},
        Some(Fault::Drop) => Err(Cut),
        Some(Fault::Delay(time)) => {
            sleep(time).await;
            forward(request, upstream).await
        }
        Some(Fault::AnswerLost) => forward(request, upstream).await.and(Err(Cut)),
        Some(Fault::Late(..)) | None => match rewrite {
            Some(rewrite) => rewritten(forward(request, upstream).await?, &rewrite).await,
            None => forward(request, upstream).await,
        },
    }
}

async fn rewritten(response: Response<Body>, rewrite: &Rewrite) -> Result<Response<Body>, Cut> {
    let (mut parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, BODY_LIMIT)
        .await
        .map_err(|_| Cut)?;
    let mut list: Value = serde_json::from_slice(&body).map_err(|_| Cut)?;
    if let Some(pods) = list["items"].as_array_mut() {
        pods.iter_mut().for_each(|pod| rewrite.0(pod));
    }
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(list.to_string())))
}

async fn forward(request: Request<Body>, upstream: &Client) -> Result<Response<Body>, Cut> {
    let (mut parts, body) = request.into_parts();
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let body = axum::body::to_bytes(body, BODY_LIMIT)
        .await
        .map_err(|_| Cut)?;
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let response = upstream.send(request).await.map_err(|_| Cut)?;
    let (mut parts, body) = response.into_parts();
    for header in [CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    parts.version = Version::HTTP_11;
    Ok(Response::from_parts(parts, Body::new(body)))
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = body
        .pointer("/details/retryAfterSeconds")
        .and_then(Value::as_u64)
    {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}
