//! Being asked to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Listens for SIGTERM and SIGINT from now on; the future returns at the first.
///
/// # Errors
/// When the process can't listen for signals.
pub(crate) fn stop() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
