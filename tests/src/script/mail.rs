//! Audit log entries on their way to the service: late, lost, twice, and again
//! until they are acknowledged, as the simulator's own mail has it.

use drainwell_core::time::shift;
use drainwell_sim::script::{Entry, Mail, UNANSWERED, outcome};
use jiff::Timestamp;
use serde_json::Value;

use crate::compute::Vm;
use crate::fixture::{automatic_restart, completed, ongoing, pending, terminate};
use crate::service::Service;

/// From an entry's timestamp to its first push.
const SINK_S: i64 = 2;
const BACKOFF_MIN_S: i64 = 10;
const BACKOFF_MAX_S: i64 = 120;

/// All messages under way, and what became of each.
#[derive(Debug, Default)]
pub(super) struct Post {
    under_way: Vec<Message>,
    /// What becomes of entries, until when.
    rules: Vec<(Mail, Timestamp)>,
    pub(super) answers: Vec<(Entry, String, String)>,
    pushes: usize,
}

#[derive(Debug)]
struct Message {
    /// Index of its answer.
    number: usize,
    body: Value,
    due: Timestamp,
    backoff_s: i64,
}

impl Post {
    /// Entries are treated like this for a while.
    pub(super) fn rule(&mut self, how: Mail, until: Timestamp) {
        self.rules.push((how, until));
    }

    /// Sends the entry that Compute writes at `at` about this VM, whose window
    /// begins at `start`.
    pub(super) fn send(
        &mut self,
        entry: Entry,
        vm: &Vm,
        at: Timestamp,
        start: Timestamp,
        now: Timestamp,
    ) {
        let body = match entry {
            Entry::Scheduled => pending(vm, at, start),
            Entry::Ongoing => ongoing(vm, at),
            Entry::Completed => completed(vm, at),
            Entry::Terminated => terminate(vm, at),
            Entry::Restarted => automatic_restart(vm, at),
        };
        let (mut copies, mut delay_s) = (1, SINK_S);
        self.rules.retain(|(_, until)| *until > now);
        for (how, _) in &self.rules {
            match how {
                Mail::Lost => copies = 0,
                Mail::Twice => copies *= 2,
                Mail::Late(by_s) => delay_s += i64::from(*by_s),
            }
        }
        for copy in 0..copies {
            let number = self.answers.len();
            let unanswered = UNANSWERED.to_owned();
            self.answers.push((entry, vm.name.clone(), unanswered));
            self.under_way.push(Message {
                number,
                body: body.clone(),
                due: shift(now, delay_s + 7 * copy),
                backoff_s: BACKOFF_MIN_S,
            });
        }
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.under_way.iter().map(|message| message.due).min()
    }

    /// Pushes what is due, to the instances that are up in turn; says whether
    /// anything was.
    pub(super) async fn deliver(&mut self, up: &[&Service], now: Timestamp) -> bool {
        let due = self.under_way.extract_if(.., |message| message.due <= now);
        let mut due: Vec<Message> = due.collect();
        due.sort_by_key(|message| (message.due, message.number));
        let any = !due.is_empty();
        for mut message in due {
            self.pushes += 1;
            let answer = match up.get(self.pushes % up.len().max(1)) {
                Some(service) => service.push_wrapped(&message.body).await.ok(),
                None => None,
            };
            if let Some(answer) = answer.filter(|answer| answer.status == 200) {
                self.answers[message.number].2 = outcome(&answer.body);
            } else {
                message.due = shift(now, message.backoff_s);
                message.backoff_s = (2 * message.backoff_s).min(BACKOFF_MAX_S);
                self.under_way.push(message);
            }
        }
        any
    }
}
