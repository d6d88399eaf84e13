//! The mail: audit log entries on their way to the service, as Pub/Sub
//! carries them: late, lost, twice, and again until they are acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drainwell_app::intake::{Ack, Told};
use drainwell_core::confirm::Ignored;
use drainwell_core::notice::{self, Phase, Reading, Received, Source};
use drainwell_core::time::{seconds_between, shift};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::task::JoinSet;

use super::bench::Bench;
use super::instance::Door;
use super::scene;
use super::step::{Forged, Mail};
use crate::demo::audit::{self, Subject};
use crate::journal::What;
use crate::script;
use crate::seed::Seed;

/// From an entry's timestamp to its first push.
const SINK_S: i64 = 2;
const BACKOFF_MIN_S: i64 = 10;
const BACKOFF_MAX_S: i64 = 120;
/// As the service bounds its own work on a notice.
const TAKE_TIMEOUT: Duration = Duration::from_secs(25);
/// After this long a message goes to the dead letters.
const KEPT_S: i64 = 3600;

/// The doors of the instances that are up.
pub(super) type Doors = Arc<Mutex<Vec<Option<Door>>>>;

/// What became of each message that was sent.
pub(super) type Answers = Arc<Mutex<Vec<(Subject, String, String)>>>;

/// All messages under way.
pub(super) struct Post {
    bench: Arc<Bench>,
    doors: Doors,
    under_way: JoinSet<()>,
    /// How much of the world's journal has been mailed.
    read: [usize; 2],
    /// What becomes of entries, until when.
    rules: Vec<(Mail, Timestamp)>,
    pub(super) answers: Answers,
}

impl Post {
    pub(super) fn new(bench: &Arc<Bench>, doors: &Doors) -> Self {
        Self {
            bench: Arc::clone(bench),
            doors: Arc::clone(doors),
            under_way: JoinSet::new(),
            read: [0; 2],
            rules: Vec::new(),
            answers: Answers::default(),
        }
    }

    /// Entries are treated like this for a while.
    pub(super) fn rule(&mut self, how: Mail, for_s: u32) {
        let until = shift(self.bench.now(), i64::from(for_s));
        self.rules.push((how, until));
    }

    /// From now on all entries arrive.
    pub(super) fn calm(&mut self) {
        self.rules.clear();
    }

    /// Sends what Compute has written since the last time.
    pub(super) fn collect(&mut self) {
        let bench = Arc::clone(&self.bench);
        let mut new = Vec::new();
        for (world, read) in [&bench.world, &bench.far].iter().zip(&mut self.read) {
            let entries = world.journal_since(*read);
            *read += entries.len();
            new.extend(entries);
        }
        for entry in &new {
            let What::Node { node, change } = &entry.what else {
                continue;
            };
            let Some(subject) = Subject::of(change) else {
                continue;
            };
            self.send(node, subject, entry.at);
        }
        while self.under_way.try_join_next().is_some() {}
    }

    /// Sends an entry that nothing has caused.
    pub(super) fn forge(&mut self, node: &str, entry: Forged, age_s: u32) {
        let subject = match entry {
            Forged::Scheduled => Subject::Scheduled,
            Forged::Ongoing => Subject::Ongoing,
            Forged::Completed => Subject::Completed,
            Forged::Terminated => Subject::Terminated,
            Forged::Restarted => Subject::Restarted,
        };
        self.send(node, subject, shift(self.bench.now(), -i64::from(age_s)));
    }

    pub(super) fn send(&mut self, node: &str, subject: Subject, at: Timestamp) {
        let bench = &self.bench;
        let now = bench.now();
        let Some((vm, instance)) = bench.world_of(node).find_vm(node) else {
            return;
        };
        let shown = instance.maintenance.as_ref();
        let entry = audit::entry(Seed(bench.seed), subject, &vm, shown, at);
        let (mut copies, mut delay_s) = (1, SINK_S);
        self.rules.retain(|(_, until)| *until > now);
        for (how, _) in &self.rules {
            match how {
                Mail::Lost => copies = 0,
                Mail::Twice => copies *= 2,
                Mail::Late(by_s) => delay_s += i64::from(bench.dice("late").u32(*by_s / 2..=*by_s)),
            }
        }
        let mut answers = locked(&self.answers);
        for copy in 0..copies.min(4) {
            let (bench, doors) = (Arc::clone(bench), Arc::clone(&self.doors));
            let first = shift(now, delay_s + 7 * copy);
            answers.push((subject, node.to_owned(), script::UNANSWERED.to_owned()));
            let (answers, number) = (Arc::clone(&self.answers), answers.len() - 1);
            let (node, entry) = (node.to_owned(), entry.clone());
            let dice = bench.dice("door");
            self.under_way.spawn(async move {
                let ack = deliver(&bench, &doors, dice, &node, &entry, first).await;
                let answer = serde_json::to_value(ack).unwrap_or_default();
                locked(&answers)[number].2 = script::outcome(&answer);
            });
        }
    }
}

/// Pushes one message until it is acknowledged.
async fn deliver(
    bench: &Arc<Bench>,
    doors: &Doors,
    mut dice: Rng,
    node: &str,
    entry: &Value,
    first: Timestamp,
) -> Option<Ack> {
    bench.clock.sleep_until(first).await;
    let mut backoff_s = BACKOFF_MIN_S;
    while seconds_between(first, bench.now()) < KEPT_S {
        let door = {
            let doors = locked(doors);
            let up: Vec<Door> = doors.iter().flatten().cloned().collect();
            dice.choice(up.iter()).cloned()
        };
        if let Some(door) = door
            && let Some(ack) = push(bench, door, node, entry, first).await
        {
            return Some(ack);
        }
        // Each at a moment of its own: those that an instance took along when it
        // died are woken in no known order.
        let next =
            shift(bench.now(), backoff_s) + SignedDuration::from_micros(dice.i64(0..1_000_000));
        bench.clock.sleep_until(next).await;
        backoff_s = (2 * backoff_s).min(BACKOFF_MAX_S);
    }
    None
}

/// One push; gives the acknowledgement, if there is one.
async fn push(
    bench: &Bench,
    mut door: Door,
    node: &str,
    entry: &Value,
    first: Timestamp,
) -> Option<Ack> {
    let received = Received {
        source: Source::Pubsub,
        published: Some(first),
        now: door.clock.now(),
    };
    let notice = match notice::read(entry, &received) {
        Ok(Reading::Notice(notice)) => notice,
        Ok(Reading::WakeUp(vm)) => {
            let _serial = door.wake.request_look(&vm.key());
            return Some(Ack::ignored(Ignored::NotMaintenance));
        }
        Ok(Reading::LiveMigration) => return Some(Ack::ignored(Ignored::LiveMigration)),
        Ok(Reading::NotMaintenance) => return Some(Ack::ignored(Ignored::NotMaintenance)),
        Err(fault) => {
            bench
                .ledger()
                .breach(bench.now(), format!("an entry can't be read: {fault}"));
            return None;
        }
    };
    let begun = bench.now();
    let take = tokio::time::timeout(TAKE_TIMEOUT, door.intake.take(&notice));
    let answer = tokio::select! {
        biased;
        _ = door.dead.wait_for(|dead| *dead) => return None,
        answer = take => answer,
    };
    let now = bench.now();
    let said = || format!("notice {:?} for {node} -> {answer:?}", notice.phase);
    let far = scene::FAR_NODES.contains(&node);
    bench.ledger().note(far, now, said);
    if let Ok(Ok(ack)) = &answer {
        check_ack(bench, node, notice.phase, ack, begun);
    }
    let Ok(Ok(ack)) = answer else {
        let _serial = door.wake.request();
        return None;
    };
    match ack.outcome {
        Told::Ignored => {}
        Told::Marked | Told::Unchanged => drop(door.wake.request()),
        Told::Updated | Told::Scheduled | Told::Completed => drop(door.wake.request_look(node)),
    }
    Some(ack)
}

/// A notice is acknowledged only once its effect is on the Node.
fn check_ack(bench: &Bench, node: &str, phase: Phase, ack: &Ack, begun: Timestamp) {
    let (mut ledger, now) = (bench.ledger(), bench.now());
    let Some(facts) = ledger.model.nodes.get(node) else {
        return;
    };
    let marked = facts.ongoing(begun).next().is_some();
    if matches!(ack.outcome, Told::Marked | Told::Updated) && phase == Phase::Ongoing && !marked {
        ledger.breach(
            now,
            format!(
                "acknowledged as {:?}, and {node} is not marked",
                ack.outcome
            ),
        );
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
