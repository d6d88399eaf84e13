//! The commands. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

mod demo;
mod drain;
mod serve;
mod signals;

use std::future::Future;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Evacuates GKE nodes before their host goes down for maintenance
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service
    Serve(Box<drainwell_app::config::ServeArgs>),
    /// Watch a maintenance play out on a simulated cloud; needs nothing else
    Demo(demo::DemoArgs),
    /// Drain one node by hand, in the order and with the graces of the service
    Drain(drain::DrainArgs),
}

/// How a command ended, when not well.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The usage or the configuration is wrong.
    Usage(anyhow::Error),
    /// Anything else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl Cli {
    /// Reads the command line and the environment. Ends the process when they
    /// ask for help, or are wrong.
    pub(crate) fn read() -> Self {
        let matches = without_empty(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Serve(args) => block_on(serve::run(*args)),
            Command::Demo(args) => block_on(demo::run(args)),
            Command::Drain(args) => block_on(drain::run(args)),
        };
        let (code, error) = match result {
            Ok(code) => return code,
            Err(Failed::Usage(error)) => (2, error),
            Err(Failed::Other(error)) => (1, error),
        };
        // When stderr is gone, the exit code is all that is left to say.
        drop(writeln!(anstream::stderr(), "drainwell: {error:#}"));
        ExitCode::from(code)
    }
}

/// Takes empty environment variables for unset: Cloud Run and Terraform set a
/// variable to nothing where a user means to leave it out.
fn without_empty(command: clap::Command) -> clap::Command {
    let of_arg = |arg: clap::Arg| {
        let value = arg.get_env().and_then(std::env::var_os);
        if value.is_some_and(|value| value.is_empty()) {
            arg.env(None)
        } else {
            arg
        }
    };
    command.mut_args(of_arg).mut_subcommands(without_empty)
}

fn block_on(command: impl Future<Output = Result<ExitCode, Failed>>) -> Result<ExitCode, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| Failed::Other(e.into()))?;
    let result = runtime.block_on(command);
    // What still blocks a thread (a name being looked up) isn't waited for.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
