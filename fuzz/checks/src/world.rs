//! A world out of any bytes. Lines of letters, so that people can write one and
//! a fuzzer can cut and join them: first the intent, then Node and VM, then the
//! policy, then a pod a line. One letter a field, in the order of the code
//! below; `.`, or nothing, is the first choice of each.

mod host;
mod pods;

use drainwell_core::intent::{Intent, Mark, VERSION};
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Kind, Observed};
use drainwell_core::policy::{Force, Gangs, Match, PerKind, Policy, Tier};
use drainwell_core::time::{seconds_between, shift};
use jiff::Timestamp;

use crate::node::{ID, t0};

pub(crate) use self::pods::pod;

/// A node may have 110 pods; fewer show all that many would.
const PODS_MAX: usize = 40;

/// Seconds from [`t0`], by the digits and letters that stand for them: around
/// every limit of a plan, and the ends of time.
const OFFSETS_S: [i64; 36] = [
    0,
    1,
    -1,
    5,
    9,
    10,
    11,
    15,
    29,
    30, // 0-9
    31,
    60,
    -60,
    120,
    150,
    151,
    300,
    -300,
    600,
    900, // a-j
    1800,
    3539,
    3540,
    3570,
    3599,
    3600,
    3601,
    3661,
    7200,
    10_800, // k-t
    14_400,
    -3600,
    -86_400,
    86_400, // u-x
    i64::MAX,
    i64::MIN, // y-z
];

/// All that a plan is made of.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) seen: Observed,
    pub(crate) intent: Intent,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

/// One line, letter by letter.
struct Letters<'a>(std::slice::Iter<'a, u8>);

impl Letters<'_> {
    /// Where the next letter stands among digits and letters; none for a `.`.
    fn next(&mut self) -> Option<usize> {
        match *self.0.next()? {
            b'.' => None,
            digit @ b'0'..=b'9' => Some(usize::from(digit - b'0')),
            letter @ b'a'..=b'z' => Some(usize::from(letter - b'a') + 10),
            other => Some(usize::from(other)),
        }
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.next().unwrap_or_default() % choices.len()].clone()
    }

    /// No, unless the letter is an odd one.
    fn yes(&mut self) -> bool {
        self.one_of(&[false, true])
    }

    fn time(&mut self) -> Option<Timestamp> {
        let index = self.next()? % OFFSETS_S.len();
        Some(shift(t0(), OFFSETS_S[index]))
    }

    fn text(&mut self, choices: &[&str]) -> Option<String> {
        let text = self.one_of(choices);
        (!text.is_empty()).then(|| text.to_owned())
    }
}

impl World {
    pub(crate) fn read(data: &[u8]) -> Self {
        let mut lines = data.split(|b| *b == b'\n').map(|line| Letters(line.iter()));
        let mut line = || lines.next().unwrap_or(Letters([].iter()));
        let (now, intent) = read_intent(&mut line());
        let seen = host::read(&mut line(), &intent);
        let policy = read_policy(&mut line());
        let mut world = Self {
            seen,
            intent,
            policy,
            now,
        };
        for mut letters in lines.take(PODS_MAX) {
            let pod = pods::read(&mut letters);
            if world.seen.pods.iter().any(|p| p.id == pod.id) {
                continue;
            }
            if let Some(attempt) = pods::read_attempt(&mut letters) {
                world.seen.attempts.insert(pod.id.uid.clone(), attempt);
            }
            world.seen.pods.push(pod);
        }
        world
    }
}

fn read_intent(from: &mut Letters<'_>) -> (Timestamp, Intent) {
    let now = from.time().unwrap_or(t0());
    let phase = from.one_of(&[Phase::Ongoing, Phase::Scheduled, Phase::Completed]);
    let since = from.time().unwrap_or(t0());
    let deadline = from.time().unwrap_or(shift(t0(), 3600));
    let intent = Intent {
        v: VERSION,
        key: format!("{}/{since}", from.one_of(&[ID, 0, 7])),
        phase,
        noticed: from.time().unwrap_or(t0()),
        since,
        deadline,
        window_s: seconds_between(since, deadline),
        kind: from.one_of(&[Kind::Gpu, Kind::Tpu, Kind::Other]),
        source: from.one_of(&[Source::Pubsub, Source::Manual, Source::Slice, Source::Sweep]),
        reasons: vec![],
        deadline_known: !from.yes(),
        stopping: from.yes(),
        boot_id: from.text(&["boot-1", "boot-0", ""]),
        seen_ongoing: from.yes(),
        seen_down: from.yes(),
        absent_since: from.time(),
        drained_at: from.time(),
        completed_at: from.time(),
        slice_marked: from.yes(),
        reasserted: from.one_of(&[0, 1, 2, 3, 4, u32::MAX]),
        reasserted_at: from.time(),
        ours: from.one_of(&[
            vec![Mark::Label, Mark::Taint],
            vec![],
            vec![Mark::Label],
            vec![Mark::Taint],
        ]),
        label_value: "true".to_owned(),
        unknown: [("colour".to_owned(), "green".into())]
            .into_iter()
            .collect(),
    };
    (now, intent)
}

fn read_policy(from: &mut Letters<'_>) -> Policy {
    let default = Policy::default();
    let all = |s: i64| PerKind {
        gpu: s,
        tpu: s,
        other: s,
    };
    let tier = |name: &str, default, owner: &str| Tier {
        name: name.to_owned(),
        default,
        matches: vec![Match {
            owner: Some(owner.to_owned()),
            ..Match::default()
        }],
    };
    let tiers = [
        default.tiers.clone(),
        vec![tier("all", true, "Nobody")],
        vec![
            tier("first", false, "Job"),
            tier("rest", true, "Job"),
            tier("daemon", false, "DaemonSet"),
        ],
    ];
    Policy {
        force: from.one_of(&[Force::LatestStart, Force::Deadline, Force::Never]),
        gangs: from.one_of(&[Gangs::Slice, Gangs::Node]),
        patience: from.one_of(&[default.patience, all(0), all(86_400)]),
        windows: from.one_of(&[default.windows, all(1), all(86_400)]),
        reserve_s: from.one_of(&[default.reserve_s, 0, 86_400]),
        tiers: from.one_of(&tiers),
        ..default
    }
}
