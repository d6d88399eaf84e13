//! `drainwell-sim run`: one seed with its trace, or many of which the failing
//! ones are shrunk and shown.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use super::{STEPS, Trial, script, shrink};

/// Trials of Drainwell's service in a simulated world.
#[derive(Debug, Parser)]
#[command(name = "drainwell-sim", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays trials; exit code 1 when one fails
    Run(Run),
    /// Plays a script and prints what happens; exit code 1 when something
    /// that it expects doesn't come true
    Script {
        /// The script
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// Play this seed and print its trace
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Play this many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Steps in each history
    #[arg(long, default_value_t = STEPS)]
    steps: usize,
    /// End after this many failures
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Show failing seeds as they are
    #[arg(long)]
    no_shrink: bool,
    /// Print less
    #[arg(long)]
    quiet: bool,
}

impl Cli {
    /// Runs it; says whether all trials have passed.
    ///
    /// # Errors
    /// When a trial can't be played, or nothing can be written.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<bool> {
        match self.command {
            Command::Run(run) => match run.seed {
                Some(seed) => run.one(seed, out),
                None => run.many(out),
            },
            Command::Script { file } => {
                let text = std::fs::read_to_string(&file)
                    .with_context(|| format!("{} can't be read", file.display()))?;
                let (told, good) = script::play(&text)?;
                out.write_all(told.as_bytes())?;
                Ok(good)
            }
        }
    }
}

impl Run {
    fn one(&self, seed: u64, out: &mut impl Write) -> anyhow::Result<bool> {
        let mut trial = Trial::of(seed, self.steps);
        let mut verdict = trial.play(!self.quiet)?;
        let passed = verdict.breaches.is_empty();
        if !passed && !self.no_shrink {
            (trial, _) = shrink(&trial)?;
            verdict = trial.play(!self.quiet)?;
        }
        for line in &verdict.trace {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "seed {seed}, {} steps:", trial.steps.len())?;
        for step in &trial.steps {
            writeln!(out, "  {step}")?;
        }
        for breach in &verdict.breaches {
            writeln!(out, "FAILED {breach}")?;
        }
        let (calls, simulated_s) = (verdict.calls, verdict.simulated_s);
        writeln!(out, "{calls} calls in {simulated_s} simulated seconds")?;
        Ok(passed)
    }

    fn many(&self, out: &mut impl Write) -> anyhow::Result<bool> {
        let begun = Instant::now();
        let mut failed = Vec::new();
        let (mut played, mut simulated_s) = (0_u64, 0);
        for seed in self.from..self.from.saturating_add(self.seeds) {
            let verdict = Trial::of(seed, self.steps).play(false)?;
            played += 1;
            simulated_s += verdict.simulated_s;
            if let Some(first) = verdict.breaches.first() {
                writeln!(out, "seed {seed} FAILED {first}")?;
                out.flush()?;
                failed.push(seed);
            }
            if failed.len() >= self.failures {
                break;
            }
        }
        let (took_s, hours) = (begun.elapsed().as_secs_f64(), simulated_s / 3600);
        writeln!(
            out,
            "{played} seeds, {hours} simulated hours in {took_s:.1} s, failed: {failed:?}"
        )?;
        for seed in failed.iter().filter(|_| !self.no_shrink && !self.quiet) {
            let (trial, breaches) = shrink(&Trial::of(*seed, self.steps))?;
            writeln!(out, "seed {seed} shrunk to {} steps:", trial.steps.len())?;
            for step in &trial.steps {
                writeln!(out, "  {step}")?;
            }
            for breach in breaches.iter().take(3) {
                writeln!(out, "  FAILED {breach}")?;
            }
        }
        Ok(failed.is_empty())
    }
}
