//! `drainwell`: evacuates GKE nodes before their host goes down.

mod commands;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    commands::Cli::parse().run()
}
