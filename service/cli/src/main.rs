//! `drainwell`: evacuates GKE nodes before their host goes down.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::Cli::read().run()
}
