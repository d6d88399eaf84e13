//! Stands in for what is between a viewer and the service on Cloud Run:
//! `gcloud run services proxy` adds the user's own token to each request, and
//! Cloud Run's front end checks it and takes its signature off.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::issuer::TAKEN;

/// What a test sends has at most this many bytes.
const BODY_MAX: usize = 1 << 20;

/// The front, while it lives.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Way {
    service: String,
    header: &'static str,
    token: String,
    http: reqwest::Client,
}

impl Front {
    /// Listens for requests to the service at this URL. `token` is added in
    /// `header`, which newer proxies have as `X-Serverless-Authorization` and
    /// older ones as `Authorization`; what a request has in there is replaced.
    pub async fn start(service: &str, header: &'static str, token: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let way = Way {
            service: service.into(),
            header,
            token: token.into(),
            http: reqwest::Client::builder().no_proxy().build()?,
        };
        let router = Router::new().fallback(pass).with_state(Arc::new(way));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // It serves until it is dropped with the set of tasks.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }

    /// Base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn pass(State(way): State<Arc<Way>>, request: Request) -> Response {
    match forward(&way, request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

async fn forward(way: &Way, request: Request) -> anyhow::Result<Response> {
    let (head, body) = request.into_parts();
    let (message, _signature) = way.token.rsplit_once('.').unwrap_or_default();
    let mut headers = head.headers;
    headers.remove("host");
    headers.insert(way.header, format!("Bearer {message}.{TAKEN}").parse()?);
    let answer = way
        .http
        .request(head.method, format!("{}{}", way.service, head.uri))
        .headers(headers)
        .body(to_bytes(body, BODY_MAX).await?)
        .send()
        .await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.body_mut() = Body::from(answer.bytes().await?);
    Ok(response)
}
