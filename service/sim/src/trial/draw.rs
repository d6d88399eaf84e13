//! Draws a history from a seed.

use fastrand::Rng;

use super::scene::{APPS, FAR_NODES, MORE_TEMPLATES, NODES, TEMPLATES};
use super::step::{Fault, Forged, Mail, PodChange, Step, Touch, What};

/// How many instances of the service there are.
pub(super) const INSTANCES: usize = 2;

/// The steps of a seed, in the order of their time.
#[must_use]
pub fn draw(seed: u64, count: usize) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed ^ 0xd1ce);
    let length_ms = *rng
        .choice([400_000, 1_200_000, 4_500_000].iter())
        .unwrap_or(&1_200_000);
    // Most of what happens concerns few nodes, so that it meets.
    let mut nodes: Vec<&str> = NODES.to_vec();
    rng.shuffle(&mut nodes);
    nodes.truncate(rng.usize(1..=3));
    let mut steps: Vec<Step> = (0..count)
        .map(|index| Step {
            at_ms: rng.u64(0..length_ms),
            what: if index == 0 {
                begin(&mut rng, &nodes)
            } else {
                what(&mut rng, &nodes)
            },
        })
        .collect();
    if let Some(first) = steps.first_mut() {
        first.at_ms = rng.u64(1_000..60_000);
    }
    steps.extend((0..count / 3).map(|_| Step {
        at_ms: rng.u64(0..length_ms),
        what: rarer(&mut rng, &nodes),
    }));
    steps.sort_by_key(|step| step.at_ms);
    steps
}

fn one(rng: &mut Rng, nodes: &[&str]) -> String {
    rng.choice(nodes.iter())
        .map_or_else(String::new, ToString::to_string)
}

fn begin(rng: &mut Rng, nodes: &[&str]) -> What {
    let node = one(rng, nodes);
    let full_s = match &node[..3] {
        "gpu" => 3600,
        "tpu" => 300,
        _ => 60,
    };
    let notice_s = if rng.u32(0..4) == 0 {
        rng.u32(full_s / 4..=full_s)
    } else {
        full_s
    };
    What::Announce {
        node,
        in_s: if rng.bool() { 0 } else { rng.u32(10..900) },
        notice_s,
        repair_s: rng.u32(30..900),
        cleared_s: rng.u32(0..300),
    }
}

fn what(rng: &mut Rng, nodes: &[&str]) -> What {
    let node = one(rng, nodes);
    match rng.u32(0..100) {
        0..12 => begin(rng, nodes),
        12..15 => What::Move {
            node,
            in_s: rng.u32(0..900),
        },
        15..19 => What::Cancel(node),
        19..27 => What::Forge {
            node,
            entry: forged(rng),
            age_s: *rng.choice([0, 5, 30, 130, 600, 4000].iter()).unwrap_or(&0),
        },
        27..33 => What::Mail {
            how: mail(rng),
            for_s: rng.u32(20..900),
        },
        33..53 => What::Fault {
            instance: [None, Some(0), Some(1)][rng.usize(0..3)],
            kind: fault(rng),
            for_s: rng.u32(5..240),
        },
        53..61 => What::Crash {
            instance: rng.usize(0..INSTANCES),
            gently: rng.u32(0..4) == 0,
            down_s: rng.u32(1..300),
        },
        61..67 => What::Pod {
            node,
            template: rng.usize(0..TEMPLATES),
        },
        67..77 => What::Change {
            node,
            pick: rng.usize(0..16),
            how: [PodChange::Finish, PodChange::Delete, PodChange::Skip][rng.usize(0..3)],
        },
        77..83 => What::Budget {
            app: APPS[rng.usize(0..APPS.len())].0.to_owned(),
            min: rng.bool().then(|| rng.u32(1..6)),
        },
        83..97 => What::Touch {
            node,
            how: touch(rng),
        },
        _ => What::Rebuild {
            node,
            away_s: rng.u32(0..400),
        },
    }
}

/// What concerns few nodes, or another cluster.
fn rarer(rng: &mut Rng, nodes: &[&str]) -> What {
    let node = one(rng, nodes);
    match rng.u32(0..8) {
        0 => What::ByHand {
            node,
            window_s: rng.u32(60..3600),
        },
        1 => What::Undo(node),
        2 => begin(rng, &FAR_NODES),
        3 => What::Fault {
            instance: None,
            kind: [Fault::FarDead, Fault::FarSlow][rng.usize(0..2)],
            for_s: rng.u32(60..1800),
        },
        4 => What::Touch {
            node,
            how: [Touch::Cordon, Touch::Uncordon][rng.usize(0..2)],
        },
        _ => What::Pod {
            node,
            template: rng.usize(TEMPLATES..MORE_TEMPLATES),
        },
    }
}

fn forged(rng: &mut Rng) -> Forged {
    let all = [
        Forged::Scheduled,
        Forged::Ongoing,
        Forged::Ongoing,
        Forged::Completed,
        Forged::Terminated,
        Forged::Restarted,
    ];
    all[rng.usize(0..all.len())]
}

fn mail(rng: &mut Rng) -> Mail {
    match rng.u32(0..3) {
        0 => Mail::Lost,
        1 => Mail::Late(rng.u32(5..600)),
        _ => Mail::Twice,
    }
}

fn fault(rng: &mut Rng) -> Fault {
    let share = rng.u32(5..80);
    match rng.u32(0..10) {
        0 => Fault::Errors(share),
        1 => Fault::Throttled(share),
        2 => Fault::LostAnswers(share),
        3 => Fault::Slow(rng.u64(200..9_000)),
        4 => Fault::Conflicts(share),
        5 => Fault::Partition,
        6 => Fault::Deaths(rng.u32(1..10)),
        7 => Fault::DeafWatches,
        8 => Fault::ShortWatches,
        _ => Fault::OldCompute(rng.u32(5..60)),
    }
}

fn touch(rng: &mut Rng) -> Touch {
    let all = [
        Touch::StripLabel,
        Touch::StripTaint,
        Touch::StripTaint,
        Touch::Relabel,
        Touch::Taint,
        Touch::Taint,
        Touch::Untaint,
        Touch::TerminationTaint,
        Touch::Skip,
        Touch::Unskip,
        Touch::Unskip,
        Touch::Scramble,
    ];
    // A scrambled annotation ends all work on a node: seldom.
    let how = all[rng.usize(0..all.len())];
    if how == Touch::Scramble && rng.u32(0..4) > 0 {
        Touch::Unskip
    } else {
        how
    }
}
