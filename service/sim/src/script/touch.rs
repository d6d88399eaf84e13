//! What people and other components do to a Node.

use drainwell_core::keys;
use drainwell_core::observed::{Node, Taint};

/// The taint of a cordoned node, which goes with `spec.unschedulable`.
pub const CORDON: &str = "node.kubernetes.io/unschedulable";
/// A taint of somebody else.
const FOREIGN: &str = "example.com/burn-in";

/// How a Node is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// `kubectl cordon`.
    Cordon,
    /// `kubectl uncordon`.
    Uncordon,
    /// Another component's taint comes.
    Taint,
    /// It goes.
    Untaint,
    /// Another component takes the maintenance label over.
    Relabel,
    /// Somebody takes the termination taint away.
    StripTaint,
    /// `drainwell.dev/skip=true`.
    Skip,
    /// The same, taken off.
    Unskip,
}

impl Touch {
    /// By the word for it in a script.
    #[must_use]
    pub fn by_word(word: &str) -> Option<Self> {
        Some(match word {
            "cordon" => Self::Cordon,
            "uncordon" => Self::Uncordon,
            "taint" => Self::Taint,
            "untaint" => Self::Untaint,
            "relabel" => Self::Relabel,
            "strip-taint" => Self::StripTaint,
            "skip" => Self::Skip,
            "unskip" => Self::Unskip,
            _ => return None,
        })
    }

    /// Rewrites a Node.
    pub fn apply(self, node: &mut Node) {
        // In front, so that every index after it moves.
        let put = |node: &mut Node, key: &str| {
            let taint = Taint {
                key: key.to_owned(),
                value: String::new(),
                effect: keys::NO_SCHEDULE.to_owned(),
            };
            node.taints.insert(0, taint);
        };
        match self {
            Self::Cordon => put(node, CORDON),
            Self::Uncordon => node.taints.retain(|t| t.key != CORDON),
            Self::Taint => put(node, FOREIGN),
            Self::Untaint => node.taints.retain(|t| t.key != FOREIGN),
            Self::Relabel => {
                let (key, value) = (keys::MAINTENANCE_LABEL, "other-component");
                node.labels.insert(key.to_owned(), value.to_owned());
            }
            Self::StripTaint => node.taints.retain(|t| t.key != keys::TERMINATION_TAINT),
            Self::Skip => {
                let (key, value) = (keys::SKIP_ANNOTATION, "true");
                node.annotations.insert(key.to_owned(), value.to_owned());
            }
            Self::Unskip => {
                node.annotations.remove(keys::SKIP_ANNOTATION);
            }
        }
    }
}
