//! Where the demo writes to: progress on stderr, the summary on stdout.
//! Colours appear on a terminal only, and not with `NO_COLOR`.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use drainwell_core::time::seconds_between;
use jiff::Timestamp;

use super::story::Story;
use super::summary;

/// Two places to write to.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<Inner>>);

struct Inner {
    progress: Box<dyn Write + Send>,
    results: Box<dyn Write + Send>,
    /// The notice that times are counted from.
    since: Option<Timestamp>,
}

/// What a line's first word looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Plain,
    Good,
    Warn,
    Bad,
    Act,
}

impl Colour {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warn => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Act => AnsiColor::Cyan.on_default(),
        }
    }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

impl Screen {
    /// The terminal.
    #[must_use]
    pub fn terminal() -> Self {
        Self::new(Box::new(anstream::stderr()), Box::new(anstream::stdout()))
    }

    /// Elsewhere; colours are written as they are.
    #[must_use]
    pub fn new(progress: Box<dyn Write + Send>, results: Box<dyn Write + Send>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            progress,
            results,
            since: None,
        })))
    }

    /// Nowhere.
    #[must_use]
    pub fn hidden() -> Self {
        Self::new(Box::new(io::sink()), Box::new(io::sink()))
    }

    fn with<T>(&self, write: impl FnOnce(&mut Inner) -> T) -> T {
        write(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says what is simulated and what is real.
    pub(super) fn open(&self, base: &str, speed: f64) -> io::Result<()> {
        self.with(|to| {
            writeln!(
                to.progress,
                "Simulated: a GKE cluster, its VMs, Compute Engine, Pub/Sub and Cloud Scheduler, \
                 {speed} times as fast as real time."
            )?;
            writeln!(
                to.progress,
                "Real: the Drainwell service, listening on {BOLD}{base}{BOLD:#} (maintenances as \
                 JSON at /api/v1/maintenances). Ctrl-C ends the demo."
            )
        })
    }

    /// Opens an act; times are counted from `since` from here on.
    pub(super) fn act(&self, title: &str, text: &str, since: Timestamp) -> io::Result<()> {
        self.with(|to| {
            to.since = Some(since);
            writeln!(to.progress, "\n{BOLD}{title}{BOLD:#}\n{text}\n")
        })
    }

    /// One thing that happened: when, what kind of thing, and what.
    pub(super) fn line(
        &self,
        at: Timestamp,
        colour: Colour,
        word: &str,
        text: &str,
    ) -> io::Result<()> {
        self.with(|to| {
            let time = to.since.map_or(String::new(), |since| offset(since, at));
            let style = colour.style();
            writeln!(
                to.progress,
                "{DIM}{time:>7}{DIM:#}  {style}{word:<9}{style:#}  {text}"
            )
        })
    }

    /// The result.
    pub(super) fn close(&self, story: &Story, stopped: bool) -> io::Result<()> {
        self.with(|to| {
            if stopped {
                return writeln!(to.progress, "\nStopped before its end.");
            }
            writeln!(to.results)?;
            for line in summary::lines(story) {
                writeln!(to.results, "{line}")?;
            }
            to.results.flush()
        })
    }
}

/// Minutes and seconds since the notice, such as `+12:34`.
pub(super) fn offset(since: Timestamp, at: Timestamp) -> String {
    let s = seconds_between(since, at);
    let sign = if s < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", s.abs() / 60, s.abs() % 60)
}
