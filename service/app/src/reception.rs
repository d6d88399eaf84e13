//! What an entry needs on whichever way it comes: to be told of, counted, taken
//! in within a bound if it is a notice, and a wake for the loops that go on with
//! it. Push and pull share it.

use std::time::Duration;

use drainwell_core::confirm::Ignored;
use drainwell_core::notice::{Notice, Reading, Source};

use crate::driver::wake::Wake;
use crate::intake::{Ack, Intake, Later, Told};
use crate::telemetry::log::{self, Event, Subject};

/// For Compute, the Node and its write, each bounded by itself to five seconds,
/// and a second write if somebody else was faster.
const TAKE_TIMEOUT: Duration = Duration::from_secs(25);

/// Where notices are taken in.
pub struct Reception {
    intake: Intake,
    wake: Wake,
}

/// An entry that has come.
pub struct Arrival<'a> {
    /// What it says.
    pub reading: &'a Reading,
    /// How it has come.
    pub source: Source,
    /// The message or event that it was in.
    pub id: Option<&'a str>,
    /// What could not be used of what was around it.
    pub doubts: &'a [String],
}

/// A notice whose effect is durable, or that needs none.
pub struct Taken {
    /// What became of it.
    pub ack: Ack,
    /// The number of the pass that was asked for, if one goes on with it.
    pub pass: Option<u64>,
}

impl Reception {
    /// A reception that hands notices to `intake` and wakes the loops.
    #[must_use]
    pub fn new(intake: Intake, wake: Wake) -> Self {
        Self { intake, wake }
    }

    /// Does what an entry asks for.
    ///
    /// # Errors
    /// When it can't be decided now: the entry has to come again.
    pub async fn receive(&self, arrival: &Arrival<'_>) -> Result<Taken, Later> {
        let reason = match arrival.reading {
            Reading::Notice(notice) => {
                tell_receipt(arrival, notice);
                return self.take(notice).await;
            }
            Reading::LiveMigration => Ignored::LiveMigration,
            Reading::NotMaintenance => Ignored::NotMaintenance,
            Reading::WakeUp(vm) => {
                // Nobody waits for this pass: the look is all that is wanted.
                let _serial = self.wake.request_look(&vm.key());
                Ignored::NotMaintenance
            }
        };
        let ack = Ack::ignored(reason);
        self.count(arrival.source.name(), ack.outcome.name());
        Ok(Taken { ack, pass: None })
    }

    /// Counts what holds no entry that can be read.
    pub fn count_malformed(&self, source: Option<Source>) {
        self.count(source.map_or("unknown", Source::name), "malformed");
    }

    fn count(&self, source: &'static str, outcome: &'static str) {
        self.intake.metrics().notice(source, "none", outcome);
    }

    /// Takes a notice in and wakes the loops.
    ///
    /// # Errors
    /// When it can't be decided now: the notice has to come again.
    async fn take(&self, notice: &Notice) -> Result<Taken, Later> {
        let node = notice.vm.key();
        let taken = tokio::time::timeout(TAKE_TIMEOUT, self.intake.take(notice)).await;
        let why = match taken {
            Ok(Ok(ack)) => {
                let pass = self.wake_for(&ack, &node);
                return Ok(Taken { ack, pass });
            }
            Ok(Err(later)) => later.0,
            Err(_) => format!("it took over {} s", TAKE_TIMEOUT.as_secs()),
        };
        // A write whose answer was lost may have marked the node all the same.
        let _serial = self.wake.request();
        Err(Later(why))
    }

    fn wake_for(&self, ack: &Ack, node: &str) -> Option<u64> {
        match ack.outcome {
            Told::Ignored => None,
            // Also when nothing has changed: the write may have been that of a
            // request whose answer, and whose step, were lost.
            Told::Marked | Told::Unchanged => Some(self.wake.request()),
            Told::Updated | Told::Scheduled | Told::Completed => Some(self.wake.request_look(node)),
        }
    }
}

/// Tells that a notice has come.
fn tell_receipt(arrival: &Arrival<'_>, notice: &Notice) {
    let id = arrival.id.unwrap_or("without an id");
    let Notice { vm, phase, at, .. } = notice;
    let age = if notice.undated {
        "that tells no time".to_owned()
    } else {
        format!("of {at}")
    };
    let mut what = format!("Message {id}: maintenance of {vm} is {phase:?}, by an entry {age}.");
    for doubt in arrival.doubts.iter().chain(&notice.doubts) {
        what = format!("{what} In doubt: {doubt}.");
    }
    let subject = Subject {
        node: &vm.key(),
        ..Subject::default()
    };
    log::event(Event::NoticeReceived, &subject, &what);
}
