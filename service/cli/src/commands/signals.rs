//! Being asked to stop.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Exit code of a program that Ctrl-C has ended, by convention.
pub(crate) const INTERRUPTED: u8 = 130;

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

/// The same for who asks again: the second future returns when we are asked to
/// stop once more after the first one has returned.
///
/// # Errors
/// When the process can't listen for signals.
pub(crate) fn stop_twice() -> std::io::Result<(
    impl Future<Output = ()> + Send + 'static,
    impl Future<Output = ()> + Send + 'static,
)> {
    let first = stop()?;
    let (told, tell) = oneshot::channel();
    let first = async move {
        first.await;
        // It fails only when nobody listens for the second any more.
        told.send(()).unwrap_or_default();
    };
    let second = async move {
        // An error means that the first was given up.
        if tell.await.is_ok()
            && let Ok(stop) = stop()
        {
            stop.await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    Ok((first, second))
}
