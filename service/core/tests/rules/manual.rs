//! Drains by hand: when one may begin, who evicts, and what undo takes off.

use drainwell_core::intent::{Intent, Mark, Stored};
use drainwell_core::manual::{self, Refusal, begin, undo};
use drainwell_core::notice::{Phase, Source};
use drainwell_core::observed::{Node, Observed};
use drainwell_core::plan::plan;
use drainwell_core::policy::Policy;
use drainwell_core::{edit, keys};

use super::worlds::{ID, at, intent, marked, node, patched, pod, world};

fn begun() -> Intent {
    Intent {
        source: Source::Manual,
        seen_ongoing: false,
        ..intent()
    }
}

fn starts(node: &Node, seconds: i64) -> Result<Intent, Refusal> {
    begin(node, &Policy::default(), 600, at(seconds))
}

#[test]
fn a_drain_by_hand_has_a_known_window_from_now_on() {
    let intent = starts(&node(), 7).unwrap();
    assert_eq!(intent.key, format!("{ID}/{}", at(7)));
    assert_eq!(
        (intent.phase, intent.source),
        (Phase::Ongoing, Source::Manual)
    );
    assert_eq!((intent.since, intent.deadline), (at(7), at(607)));
    assert_eq!((intent.noticed, intent.window_s), (at(7), 600));
    assert!(intent.deadline_known && intent.ours.is_empty());
    assert_eq!(intent.boot_id, node().boot_id);
}

#[test]
fn taken_up_again_it_is_the_same_drain_with_a_new_window() {
    let open = Intent {
        drained_at: Some(at(5)),
        reasserted: 4,
        ..begun()
    };
    let again = starts(&marked(&open), 7000).unwrap();
    assert_eq!((again.key, again.noticed), (open.key, open.noticed));
    assert_eq!((again.since, again.deadline), (at(7000), at(7600)));
    assert_eq!((again.drained_at, again.reasserted), (None, 0));
    // After a boot it is another one; the marks that are on are ours still.
    let booted = Node {
        boot_id: Some("boot-2".to_owned()),
        ..marked(&begun())
    };
    let another = starts(&booted, 7000).unwrap();
    assert_eq!(another.key, format!("{ID}/{}", at(7000)));
    assert_eq!(another.ours, [Mark::Label, Mark::Taint]);
    assert_eq!(another.boot_id, booted.boot_id);
}

#[test]
fn a_recorded_window_does_not_stand_in_its_way() {
    let recorded = Intent {
        phase: Phase::Scheduled,
        since: at(86_400),
        deadline: at(90_000),
        ours: vec![],
        reasons: vec!["MAINTENANCE_REASON_PLANNED_UPDATE".to_owned()],
        ..intent()
    };
    let begun = starts(&marked(&recorded), 7).unwrap();
    assert_eq!(
        (begun.phase, begun.source),
        (Phase::Ongoing, Source::Manual)
    );
    assert_eq!((begun.key, begun.reasons), (recorded.key, recorded.reasons));
    assert_eq!(begun.deadline, at(607));
}

#[test]
fn where_a_drain_by_hand_is_refused() {
    let mut skipped = node();
    let skip = (keys::SKIP_ANNOTATION.to_owned(), "true".to_owned());
    skipped.annotations.extend([skip]);
    assert_eq!(starts(&skipped, 7), Err(Refusal::Skipped));
    for phase in [Phase::Ongoing, Phase::Completed] {
        let theirs = Intent { phase, ..intent() };
        let deadline = theirs.deadline;
        assert_eq!(
            starts(&marked(&theirs), 7),
            Err(Refusal::UnderMaintenance { deadline })
        );
    }
    let mut garbled = marked(&begun());
    let text = "{".to_owned();
    garbled
        .annotations
        .insert(keys::INTENT_ANNOTATION.to_owned(), text);
    assert!(matches!(
        starts(&garbled, 7),
        Err(Refusal::Unreadable { .. })
    ));
}

#[test]
fn only_the_one_who_began_a_drain_evicts_for_it() {
    let now = at(5);
    let seen = |intent: &Intent| Observed {
        node: marked(intent),
        ..world(vec![pod("train")], now)
    };
    let policy = Policy::default();
    let told = |intent: &Intent| {
        let service = plan(&seen(intent), intent, &policy, now);
        let hand = manual::plan(&seen(intent), intent, &policy, now);
        // Both show the same, whoever acts.
        assert_eq!(service.tiers, hand.tiers);
        (service.actions.len(), hand.actions.len())
    };
    assert_eq!(told(&begun()), (0, 1));
    assert_eq!(told(&intent()), (1, 0));
}

#[test]
fn by_hand_no_other_maintenance_is_rewritten() {
    let mut seen = world(vec![], at(5));
    seen.node.boot_id = Some("boot-2".to_owned());
    seen.look.answer = None;
    seen.look.off = true;
    let policy = Policy::default();
    let by_hand = |intent: &Intent| manual::plan(&seen, intent, &policy, at(5)).edit;
    assert_eq!(by_hand(&intent()), None);
    assert!(by_hand(&begun()).is_some(), "a boot ends its own");
}

#[test]
fn undo_takes_off_what_is_ours_and_only_that() {
    let undone = |node: &Node, force| undo(node, &Policy::default(), force, at(9));
    assert_eq!(undone(&node(), false), Ok(None));
    let off = |before: &Node, force| {
        let (edit, stays) = undone(before, force).unwrap().unwrap();
        (patched(before, &edit), stays)
    };
    let bare = |node: &Node| {
        Stored::on(node) == Stored::Nothing
            && !node.labels.contains_key(keys::MANAGED_LABEL)
            && !node.labels.contains_key(keys::MAINTENANCE_LABEL)
            && node.termination_taint().is_none()
    };
    for ours in [begun(), intent()] {
        let (after, stays) = off(&marked(&ours), false);
        assert!(bare(&after) && stays.is_none());
    }
    // The label that is left of a lost annotation goes; nothing else is known.
    let mut lost = marked(&begun());
    lost.annotations.remove(keys::INTENT_ANNOTATION);
    let (after, _) = off(&lost, false);
    assert!(!after.labels.contains_key(keys::MANAGED_LABEL));
    assert!(after.termination_taint().is_some());
}

#[test]
fn an_unreadable_annotation_is_undone_by_force_alone() {
    let garbled = |text: &str| {
        let mut node = marked(&begun());
        node.annotations
            .insert(keys::INTENT_ANNOTATION.to_owned(), text.to_owned());
        node
    };
    let policy = Policy::default();
    // As much of it as can be read counts.
    let cases = [
        ("{", None, None),
        (r#"{"v":1,"ours":["taint"]}"#, Some("true"), None),
        (r#"{"label_value":"other"}"#, Some("true"), Some(0)),
    ];
    for (text, label, taint) in cases {
        let node = garbled(text);
        assert!(undo(&node, &policy, false, at(9)).is_err(), "{text}");
        let (edit, _): (edit::NodeEdit, _) = undo(&node, &policy, true, at(9)).unwrap().unwrap();
        let after = patched(&node, &edit);
        let left = after.labels.get(keys::MAINTENANCE_LABEL);
        assert_eq!(left.map(String::as_str), label, "{text}");
        assert_eq!(after.termination_taint(), taint, "{text}");
        assert_eq!(Stored::on(&after), Stored::Nothing, "{text}");
    }
}
