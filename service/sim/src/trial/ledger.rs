//! The ledger of a trial: every call in order, and every breach of a rule.

use std::collections::BTreeMap;

use drainwell_app::intake::Verify;
use drainwell_core::time::{seconds_between, shift};
use jiff::Timestamp;

use super::model::Model;
use super::scene::{Setup, verify};

/// More calls of one instance within a simulated minute are a hot loop.
const CALLS_A_MINUTE: u32 = 3000;
/// The world is not calm before this long after a fault: an instance that
/// knows nothing of an intent looks once a minute, backoffs last 20 s.
const AFTERMATH_S: i64 = 80;
/// More breaches than this say nothing new.
const BREACHES_MAX: usize = 20;

/// Calls and breaches.
pub(super) struct Ledger {
    begin: Timestamp,
    trace: Option<Vec<String>>,
    /// Of the other cluster: in one moment, either may come first.
    far_trace: Option<Vec<String>>,
    breaches: Vec<String>,
    /// By instance and minute.
    calls: BTreeMap<(usize, i64), u32>,
    /// Until when nothing can be said of how prompt the service is.
    stirred_until: Timestamp,
    pub(super) setup: Setup,
    pub(super) verify: Verify,
    pub(super) model: Model,
}

impl Ledger {
    pub(super) fn new(begin: Timestamp, seed: u64, keep_trace: bool) -> Self {
        Self {
            begin,
            trace: keep_trace.then(Vec::new),
            far_trace: keep_trace.then(Vec::new),
            breaches: Vec::new(),
            calls: BTreeMap::new(),
            stirred_until: begin,
            setup: Setup::of(seed),
            verify: verify(seed),
            model: Model::default(),
        }
    }

    /// Writes a line of the trace, if it is kept.
    pub(super) fn note(&mut self, far: bool, now: Timestamp, line: impl FnOnce() -> String) {
        let traces = if far {
            &mut self.far_trace
        } else {
            &mut self.trace
        };
        if let Some(trace) = traces {
            let millis = now.as_millisecond() - self.begin.as_millisecond();
            let (seconds, millis) = (millis / 1000, millis % 1000);
            trace.push(format!("{seconds:>6}.{millis:03} {}", line()));
        }
    }

    /// A rule is broken.
    pub(super) fn breach(&mut self, now: Timestamp, what: String) {
        self.note(false, now, || format!("BREACH {what}"));
        if self.breaches.len() < BREACHES_MAX {
            let at = seconds_between(self.begin, now);
            self.breaches.push(format!("at {at} s: {what}"));
        }
    }

    /// Counts a call; says whether it is one too many.
    pub(super) fn count(&mut self, instance: usize, now: Timestamp) -> bool {
        let minute = seconds_between(self.begin, now) / 60;
        let calls = self.calls.entry((instance, minute)).or_default();
        *calls += 1;
        let too_many = *calls > CALLS_A_MINUTE;
        if *calls == CALLS_A_MINUTE + 1 {
            self.breach(
                now,
                format!(
                    "hot loop: instance {instance} made {CALLS_A_MINUTE} calls within a minute"
                ),
            );
        }
        too_many
    }

    /// How many calls an instance made in the minute before `now`.
    pub(super) fn calls_in_last_minute(&self, instance: usize, now: Timestamp) -> u32 {
        let minute = seconds_between(self.begin, now) / 60 - 1;
        self.calls
            .get(&(instance, minute))
            .copied()
            .unwrap_or_default()
    }

    /// All calls.
    pub(super) fn calls(&self) -> u64 {
        self.calls.values().map(|n| u64::from(*n)).sum()
    }

    /// Faults are in force until then.
    pub(super) fn disturbed(&mut self, until: Timestamp) {
        self.stirred_until = self.stirred_until.max(shift(until, AFTERMATH_S));
    }

    /// Since when there has been no fault that could excuse a delay.
    pub(super) fn calm_since(&self, now: Timestamp) -> Option<Timestamp> {
        (self.stirred_until <= now).then_some(self.stirred_until)
    }

    pub(super) fn has_breaches(&self) -> bool {
        !self.breaches.is_empty()
    }

    /// Breaches and trace.
    pub(super) fn take_parts(&mut self) -> (Vec<String>, Vec<String>) {
        let mut trace = self.trace.take().unwrap_or_default();
        trace.extend(self.far_trace.take().unwrap_or_default());
        (std::mem::take(&mut self.breaches), trace)
    }
}
