//! `drainwell drain`.

use std::io::Write as _;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::Args;
use drainwell_app::cluster::kubeconfig;
use drainwell_app::config;
use drainwell_app::manual::{self, End, Hand, Undone, progress};

use super::{Failed, signals};

/// Flags of `drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Straight against the cluster of the kubeconfig, with the marks that the service \
uses; the service shows such a drain, and evicts nothing for it. The marks stay \
on until the node boots or --undo takes them off.

Exit codes: 0 drained (or undone), 1 the window is over first or the node is \
refused, 2 wrong usage, 130 stopped by Ctrl-C.")]
pub(crate) struct DrainArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: Option<String>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, env = "DRAINWELL_CONTEXT")]
    context: Option<String>,

    /// How long it may take; graces are cut so that they end with it
    #[arg(
        long,
        env = "DRAINWELL_WINDOW",
        value_name = "TIME",
        default_value = "10m"
    )]
    #[arg(value_parser = manual::window_s)]
    window: i64,

    /// File with the policy; `DRAINWELL_POLICY` may hold the YAML itself
    #[arg(long, env = "DRAINWELL_POLICY_FILE")]
    policy_file: Option<PathBuf>,

    /// The policy itself, as YAML
    #[arg(long, env = "DRAINWELL_POLICY", hide = true, value_name = "YAML")]
    policy: Option<String>,

    /// Take off the marks of ours (and nothing else) instead of draining
    #[arg(long, env = "DRAINWELL_UNDO")]
    undo: bool,

    /// With --undo: every node with marks of ours, for an uninstall
    #[arg(long, env = "DRAINWELL_ALL")]
    all: bool,

    /// With --undo: also where the annotation can't be read
    #[arg(long, env = "DRAINWELL_FORCE")]
    force: bool,
}

/// What is asked for.
enum Task {
    Drain { node: String, window_s: i64 },
    Undo { node: String },
    UndoAll,
}

pub(crate) async fn run(args: DrainArgs) -> Result<ExitCode, Failed> {
    let task = task(&args).map_err(Failed::Usage)?;
    let policies = config::read_policies(args.policy_file, args.policy).map_err(Failed::Usage)?;
    let cluster = kubeconfig::cluster(args.context.as_deref())
        .await
        .map_err(Failed::Usage)?;
    progress::start().map_err(Failed::Usage)?;
    let (first, second) = signals::stop_twice().context("no signals")?;
    let mut first = pin!(first);
    let hand = tokio::select! {
        hand = Hand::on(cluster, policies) => hand.context("the cluster does not answer")?,
        () = first.as_mut() => {
            tell("Stopped; nothing was done.");
            return Ok(ExitCode::from(signals::INTERRUPTED));
        }
    };
    let work = async {
        match task {
            Task::Drain { node, window_s } => {
                let context = args.context.as_deref();
                drain(&hand, &node, window_s, context, first).await
            }
            Task::Undo { node } => tokio::select! {
                undone = hand.undo(&node, args.force) => Ok(tell_undone(&node, undone)),
                () = first => Ok(ExitCode::from(signals::INTERRUPTED)),
            },
            Task::UndoAll => tokio::select! {
                ended = undo_all(&hand, args.force) => ended,
                () = first => Ok(ExitCode::from(signals::INTERRUPTED)),
            },
        }
    };
    tokio::select! {
        ended = work => ended,
        () = second => Ok(ExitCode::from(signals::INTERRUPTED)),
    }
}

/// Which of the flags go together.
fn task(args: &DrainArgs) -> anyhow::Result<Task> {
    let node = args.node.clone().filter(|node| !node.is_empty());
    match (node, args.undo, args.all) {
        (Some(_), _, true) => Err(anyhow!("give either a node or --all, not both")),
        (None, true, true) => Ok(Task::UndoAll),
        (None, false, true) => Err(anyhow!(
            "--all goes with --undo only: drain one node at a time"
        )),
        (None, _, false) => Err(anyhow!("give a node, as in `drainwell drain NODE`")),
        (Some(node), true, false) => Ok(Task::Undo { node }),
        (Some(_), false, false) if args.force => Err(anyhow!(
            "--force goes with --undo only: the policy says when a budget stops counting"
        )),
        (Some(node), false, false) => Ok(Task::Drain {
            node,
            window_s: args.window,
        }),
    }
}

async fn drain(
    hand: &Hand,
    node: &str,
    window_s: i64,
    context: Option<&str>,
    stop: impl Future<Output = ()>,
) -> Result<ExitCode, Failed> {
    let intent = hand.mark(node, window_s).await?;
    let stop = async {
        stop.await;
        tell("Stopping: no further pod is told to stop. Calls under way are waited for.");
    };
    let end = hand.drain(node, &intent, stop).await;
    let context = context.map_or(String::new(), |c| format!(" --context {c}"));
    let undo =
        format!("The marks stay on; to take them off: drainwell drain{context} --undo {node}");
    let code = match end {
        End::Drained { gone, left_alone } => {
            result(&format!(
                "Node {node} is drained: {gone} gone, {left_alone} left alone."
            ));
            tell(&undo);
            ExitCode::SUCCESS
        }
        End::WindowOver { left } => {
            result(&format!(
                "Node {node} is not drained: the window is over, and {} left.",
                pods(left.len())
            ));
            for pod in left {
                result(&format!("{}: {}", pod.pod, pod.why));
            }
            tell(&undo);
            ExitCode::FAILURE
        }
        End::Stopped => {
            result(&format!("Node {node} is not drained: stopped."));
            tell(&undo);
            ExitCode::from(signals::INTERRUPTED)
        }
        End::MarksGone => {
            result(&format!(
                "Node {node} is not drained: its marks were taken off meanwhile."
            ));
            ExitCode::FAILURE
        }
        End::Booted => {
            result(&format!(
                "Node {node} is not drained: it has booted meanwhile, and its marks go when it is \
                 Ready."
            ));
            ExitCode::FAILURE
        }
    };
    Ok(code)
}

async fn undo_all(hand: &Hand, force: bool) -> Result<ExitCode, Failed> {
    let all = hand.undo_all(force).await?;
    if all.is_empty() {
        result("No node has marks of ours.");
    }
    let mut code = ExitCode::SUCCESS;
    for (node, undone) in all {
        if tell_undone(&node, undone) == ExitCode::FAILURE {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn tell_undone(node: &str, undone: anyhow::Result<Undone>) -> ExitCode {
    match undone {
        Ok(Undone::Off { stays }) => {
            result(&format!("Node {node}: what was ours is off."));
            if let Some(stays) = stays {
                tell(&format!("Node {node}: {stays}."));
            }
            ExitCode::SUCCESS
        }
        Ok(Undone::Nothing) => {
            result(&format!("Node {node}: nothing on it is ours."));
            ExitCode::SUCCESS
        }
        Err(error) => {
            tell(&format!("drainwell: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn pods(count: usize) -> String {
    if count == 1 {
        "1 pod is".to_owned()
    } else {
        format!("{count} pods are")
    }
}

/// A line of the result. When nobody reads it, the exit code says it too.
fn result(line: &str) {
    drop(writeln!(anstream::stdout(), "{line}"));
}

/// A line for people.
fn tell(line: &str) {
    drop(writeln!(anstream::stderr(), "{line}"));
}
