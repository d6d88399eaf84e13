//! Who may knock. Every route but health passes through here.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;

/// Who checks a sender's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// Nobody: only for a listener on loopback.
    None,
}

/// The middleware that lets a request through, or answers it.
pub async fn check(auth: Auth, request: Request, next: Next) -> Response {
    match auth {
        Auth::None => next.run(request).await,
    }
}
