//! `drainwell serve`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use drainwell_app::config::{LogForm, ServeArgs};
use drainwell_app::serve::{self, Parts};
use drainwell_app::telemetry::{project, stackdriver};
use tokio::net::TcpListener;

use super::{Failed, signals};

pub(crate) async fn run(args: ServeArgs) -> Result<ExitCode, Failed> {
    let json = match args.log {
        Some(form) => form == LogForm::Json,
        None => !std::io::stdout().is_terminal(),
    };
    let _flush = stackdriver::start(json).map_err(Failed::Usage)?;
    let config = args.check().map_err(Failed::Usage)?;
    if json {
        project::learn().await;
    }
    let parts = Parts::from_config(&config).await.map_err(Failed::Usage)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("--listen {}: can't be listened on", config.listen))
        .map_err(Failed::Usage)?;
    let (first, second) = signals::stop_twice().context("no signals")?;
    let service = serve::run(parts, listener, first);
    tokio::select! {
        ended = service => ended?,
        // The state is on the Nodes: another instance goes on with it.
        () = second => return Ok(ExitCode::FAILURE),
    }
    Ok(ExitCode::SUCCESS)
}
