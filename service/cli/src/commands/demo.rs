//! `drainwell demo`.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use drainwell_sim::demo::{self, DemoOptions};

use super::{Failed, signals};

/// Flags of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Address of the service [default: 127.0.0.1:8080, or the next free port]
    #[arg(long, env = "DRAINWELL_LISTEN")]
    listen: Option<SocketAddr>,

    /// How many times faster than real time it runs
    #[arg(long, env = "DRAINWELL_SPEED", default_value_t = 60.0)]
    speed: f64,

    /// Seed of everything random in the simulated world
    #[arg(long, env = "DRAINWELL_SEED", default_value_t = 1)]
    seed: u64,
}

pub(crate) async fn run(args: DemoArgs) -> Result<ExitCode, Failed> {
    let DemoArgs {
        listen,
        speed,
        seed,
    } = args;
    if !(1.0..=300.0).contains(&speed) {
        return Err(Failed::Usage(anyhow::anyhow!(
            "--speed {speed}: give a number from 1 to 300"
        )));
    }
    let stop = signals::stop().map_err(|e| Failed::Other(e.into()))?;
    let options = DemoOptions {
        listen,
        speed,
        seed,
    };
    let result = demo::run(options, stop).await?;
    Ok(if result.stopped {
        ExitCode::from(signals::INTERRUPTED)
    } else if result.succeeded() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
