//! The summary: a table for each node, of what became of its pods.

use super::story::{End, Fate, NodeStory, PodStory, Story};

const HEAD: [&str; 6] = [
    "pod",
    "tier",
    "what happened",
    "grace asked",
    "grace got",
    "how it ended",
];

/// The lines of the summary.
pub(super) fn lines(story: &Story) -> Vec<String> {
    let mut lines = Vec::new();
    for act in &story.acts {
        lines.push(act.title.clone());
        for node in &act.nodes {
            lines.push(String::new());
            lines.push(node_line(node));
            lines.extend(table(&node.pods));
        }
        lines.push(String::new());
    }
    let faults = story.faults();
    if faults.is_empty() {
        lines.push(
            "All nodes are as they were before, all pods of other nodes were left alone."
                .to_owned(),
        );
    } else {
        lines.push("Not as it should be:".to_owned());
        lines.extend(faults.iter().map(|fault| format!("- {fault}")));
    }
    lines
}

fn node_line(node: &NodeStory) -> String {
    let state = if node.left_behind.is_empty() {
        "clean, as it was before the notice".to_owned()
    } else {
        format!("NOT CLEAN: {}", node.left_behind.join("; "))
    };
    format!(
        "{}: {state}; taints now: {}",
        node.name,
        node.taints.join(", ")
    )
}

fn table(pods: &[PodStory]) -> Vec<String> {
    let head = HEAD.map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(pods.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].len())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(pod: &PodStory) -> [String; 6] {
    let after = pod.told_after_min.filter(|min| *min > 0);
    let after = after.map_or(String::new(), |min| {
        format!(", about {min} min after the notice")
    });
    let what = match &pod.fate {
        Fate::Evicted => format!("evicted{after}"),
        Fate::Forced => format!("forced{after}"),
        Fate::Deleted => format!("deleted by the cluster{after}"),
        Fate::LeftAlone(why) => format!("left alone: {why}"),
        Fate::Disturbed(why) => format!("told to stop, wrongly: {why}"),
        Fate::Forgotten => "never told to stop".to_owned(),
    };
    let end = match pod.end {
        End::Stopped { after_s } => format!("stopped after {after_s} s"),
        End::Killed { after_s } => format!("killed after {after_s} s"),
        End::WithHost => "stopped with the host".to_owned(),
        End::Finished => "finished before".to_owned(),
        End::Runs => "still runs".to_owned(),
    };
    let got = pod
        .grace_got_s
        .map_or_else(|| "-".to_owned(), |s| format!("{s} s"));
    [
        pod.name.clone(),
        pod.tier.clone(),
        what,
        format!("{} s", pod.grace_asked_s),
        got,
        end,
    ]
}
