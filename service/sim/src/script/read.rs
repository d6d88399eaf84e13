//! Reads one line of a script.

use anyhow::{Context as _, bail};
use drainwell_core::keys;

use super::{Entry, Line, Mail, State, Step, Touch, stage};
use crate::spec::{BudgetSpec, MaintenanceSpec, Owner, PodSpec};

/// The words after the time.
struct Words<'a>(Vec<&'a str>);

pub(super) fn line(line: &str) -> anyhow::Result<Line> {
    let mut words = line.split_whitespace();
    let (Some("at"), Some(at)) = (words.next(), words.next()) else {
        bail!("it does not begin with `at SECONDS`");
    };
    let at_s = at.parse().with_context(|| format!("`{at}` is no number"))?;
    let words = Words(words.collect());
    Ok(Line {
        text: words.0.join(" "),
        at_s,
        step: words.step()?,
    })
}

impl Words<'_> {
    /// The number after a word, or the default.
    fn number(&self, word: &str, default: u32) -> anyhow::Result<u32> {
        let Some(index) = self.0.iter().position(|w| *w == word) else {
            return Ok(default);
        };
        let text = self.0.get(index + 1).copied().unwrap_or_default();
        text.parse()
            .with_context(|| format!("no number after `{word}`"))
    }

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self.0[..] {
            ["pod", on, kind, name, ..] => Step::Pod {
                node: node(on)?,
                pod: self.pod(on, kind, name)?,
            },
            ["budget", app, min] => Step::Budget(BudgetSpec {
                namespace: "default".to_owned(),
                name: app.to_owned(),
                selector: [("app".to_owned(), app.to_owned())].into(),
                min_available: min.parse().context("no number of pods")?,
            }),
            ["free", app] => Step::Free(app.to_owned()),
            ["begin", on, ..] => Step::Begin {
                node: node(on)?,
                in_s: self.number("in", 0)?,
                how: MaintenanceSpec {
                    notice_s: self.number("notice", 60)?,
                    repair_s: self.number("repair", 300)?,
                    cleared_s: self.number("cleared", 60)?,
                    reasons: vec!["PLANNED_UPDATE".to_owned()],
                },
            },
            ["move", on, ..] => Step::Move {
                node: node(on)?,
                in_s: self.number("in", 0)?,
            },
            ["cancel", on] => Step::Cancel(node(on)?),
            ["notice", what, on, ..] => Step::Notice {
                node: node(on)?,
                entry: entry(what)?,
                age_s: self.number("age", 0)?,
            },
            ["mail", how, ..] => Step::Mail {
                how: self.mail(how)?,
                for_s: self.number("for", 60)?,
            },
            ["crash", instance, ..] => Step::Crash {
                instance: match instance {
                    "0" => 0,
                    "1" => 1,
                    _ => bail!("the instances are 0 and 1"),
                },
                gently: self.0.contains(&"gently"),
                down_s: self.number("down", 30)?,
            },
            ["partition", ..] => Step::Partition(self.number("for", 60)?),
            ["remove", on] => Step::Remove(node(on)?),
            ["rebuild", on] => Step::Rebuild(node(on)?),
            ["expect", what, object] => Step::Expect {
                what: state(what)?,
                object: object.to_owned(),
            },
            [touch, on] => Step::Touch {
                node: node(on)?,
                how: Touch::by_word(touch).context("no such step")?,
            },
            _ => bail!("no such step"),
        })
    }

    fn mail(&self, how: &str) -> anyhow::Result<Mail> {
        Ok(match how {
            "lost" => Mail::Lost,
            "twice" => Mail::Twice,
            "late" => Mail::Late(self.number("by", 60)?),
            _ => bail!("mail is lost, twice or late"),
        })
    }

    fn pod(&self, node: &str, kind: &str, name: &str) -> anyhow::Result<PodSpec> {
        let (namespace, owner) = match kind {
            "alone" => ("default", Owner::Nobody),
            "job" => ("default", Owner::Job),
            "replica" => ("default", Owner::ReplicaSet),
            "daemon" => ("default", Owner::DaemonSet),
            "static" => ("kube-system", Owner::Static),
            "system" => ("kube-system", Owner::Nobody),
            _ => bail!("a pod is alone, job, replica, daemon, static or system"),
        };
        let grace_s = self.number("grace", 30)?;
        let mut pod = PodSpec::new(namespace, name, owner)
            .stops(grace_s, self.number("takes", 2)?)
            .label("app", name)
            // A successor waits for the same node.
            .needs(0, &[node]);
        if owner == Owner::Job {
            pod = pod
                .label("batch.kubernetes.io/job-name", name)
                .annotation("batch.kubernetes.io/job-completion-index", "0");
        }
        if self.0.contains(&"tolerates") {
            pod = pod.tolerates("");
        }
        if self.0.contains(&"skip") {
            pod = pod.annotation(keys::SKIP_ANNOTATION, "true");
        }
        Ok(pod)
    }
}

fn node(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(
        stage::NODES.contains(&name),
        "the nodes are {}",
        stage::NODES.join(", ")
    );
    Ok(name.to_owned())
}

fn entry(word: &str) -> anyhow::Result<Entry> {
    use Entry::{Completed, Ongoing, Restarted, Scheduled, Terminated};
    let all = [Scheduled, Ongoing, Completed, Terminated, Restarted];
    let found = all.into_iter().find(|entry| entry.word() == word);
    found.context("a notice is scheduled, ongoing, completed, terminated or restarted")
}

fn state(word: &str) -> anyhow::Result<State> {
    Ok(match word {
        "marked" => State::Marked,
        "clean" => State::Clean,
        "ready" => State::Ready,
        "gone" => State::Gone,
        "there" => State::There,
        "stopping" => State::Stopping,
        _ => bail!("expect marked, clean, ready, gone, there or stopping"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Script;

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let cases = [
            ("begin gpu-1", "at SECONDS"),
            ("at x begin gpu-1", "`x` is no number"),
            ("at 5 begin gpu-7", "the nodes are"),
            ("at 5 begin gpu-1 notice soon", "no number after `notice`"),
            ("at 5 fly gpu-1", "no such step"),
            ("at 5 pod gpu-1 bean web", "a pod is"),
            ("at 5 skip gpu-1\nat 4 skip gpu-1", "order of time"),
        ];
        for (text, why) in cases {
            let error = format!("{:#}", Script::read(text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(Script::read("# nothing\n\n").unwrap().lines.len(), 0);
    }

    #[test]
    fn a_pod_is_known_by_the_longest_name_that_fits() {
        let text = "at 0 pod gpu-1 job web\nat 0 pod gpu-1 job web-db";
        let script = Script::read(text).unwrap();
        let cases = [("web-0-x2", "web"), ("web-db-0-y", "web-db"), ("z", "z")];
        for (pod, app) in cases {
            assert_eq!(script.app_of(pod), app);
        }
    }
}
