//! The service as `drainwell serve` runs it, but for its clock, which a test
//! leads: see `drainwell_tests::hand`.

use anyhow::Context as _;
use clap::Parser;
use drainwell_app::clock::Clock;
use drainwell_app::config::ServeArgs;
use drainwell_app::serve::{self, Parts};
use drainwell_app::telemetry::stackdriver;
use drainwell_tests::hand;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
enum Cli {
    Serve(Box<ServeArgs>),
}

fn main() -> anyhow::Result<()> {
    let Cli::Serve(args) = Cli::parse();
    // Lines that wait are written when it is dropped.
    let _flush = stackdriver::start(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(*args))
}

async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let config = args.check()?;
    let leader = std::env::var(hand::LEADER).context(hand::LEADER)?;
    let (hand, following) = hand::follow(&leader).await?;
    let mut parts = Parts::from_config(&config).await?;
    parts.clock = Clock::led(hand);
    let listener = TcpListener::bind(config.listen).await?;
    let mut term = signal(SignalKind::terminate())?;
    let stop = async move {
        term.recv().await;
    };
    tokio::select! {
        ended = serve::run(parts, listener, stop) => ended,
        // Without a leader its time stands still for ever.
        ended = following => ended,
    }
}
