//! Trials of the service in a simulated world, from the command line.

use std::process::ExitCode;

use clap::Parser as _;
use drainwell_sim::trial::command::Cli;

fn main() -> anyhow::Result<ExitCode> {
    let passed = Cli::parse().run(&mut std::io::stdout().lock())?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
