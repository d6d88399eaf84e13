//! Stands in for the place where Google publishes its keys.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::issuer::Key;

/// What goes wrong with an answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status.
    Status(u16),
    /// The right answer, but only after this time.
    Slow(Duration),
    /// No answer, ever.
    Hang,
    /// This body.
    Body(String),
}

/// The stand-in, while it lives.
#[derive(Debug)]
pub struct KeyServer {
    address: SocketAddr,
    state: Shared,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Published>>);

#[derive(Debug, Default)]
struct Published {
    keys: Vec<Value>,
    cache_control: String,
    fault: Option<Fault>,
    asked: Vec<Instant>,
}

impl KeyServer {
    /// Listens, and publishes the current key.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Shared::default();
        let router = Router::new()
            .route("/oauth2/v3/certs", get(answer))
            .with_state(state.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // It serves until it is dropped with the set of tasks.
            drop(axum::serve(listener, router).await);
        });
        let server = Self {
            address,
            state,
            _tasks: tasks,
        };
        server.publish(&[&Key::current()]);
        server.cache_control("public, max-age=22491, must-revalidate, no-transform");
        Ok(server)
    }

    /// For `--jwks-url`.
    pub fn url(&self) -> String {
        format!("http://{}/oauth2/v3/certs", self.address)
    }

    /// Publishes these keys and no others.
    pub fn publish(&self, keys: &[&Key]) {
        self.publish_json(keys.iter().map(|key| key.jwk()).collect());
    }

    /// Publishes these and no others, whatever they are.
    pub fn publish_json(&self, keys: Vec<Value>) {
        self.state.lock().keys = keys;
    }

    /// Sets the header of that name.
    pub fn cache_control(&self, value: &str) {
        self.state.lock().cache_control = value.into();
    }

    /// Lets answers go wrong until `heal`.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// Ends the fault. A request that hangs goes on hanging.
    pub fn heal(&self) {
        self.state.lock().fault = None;
    }

    /// When it was asked, each time.
    pub fn asked(&self) -> Vec<Instant> {
        self.state.lock().asked.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Published> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(state): State<Shared>) -> Response {
    let (fault, cache_control, body) = {
        let mut published = state.lock();
        published.asked.push(Instant::now());
        let body = json!({ "keys": published.keys }).to_string();
        (
            published.fault.clone(),
            published.cache_control.clone(),
            body,
        )
    };
    let good = ([(CACHE_CONTROL, cache_control)], body).into_response();
    match fault {
        None => good,
        Some(Fault::Status(code)) => StatusCode::from_u16(code)
            .unwrap_or_default()
            .into_response(),
        Some(Fault::Slow(time)) => {
            tokio::time::sleep(time).await;
            good
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Body(body)) => body.into_response(),
    }
}
