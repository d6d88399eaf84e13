//! Shrinks a failing history: the fewest steps found that still fail, by
//! delta debugging.

use super::Trial;

/// Plays that shrinking may take.
const PLAYS_MAX: usize = 400;

/// The shortest failing trial that is found, and why it fails.
///
/// # Errors
/// When a trial can't be played.
pub fn shrink(failing: &Trial) -> anyhow::Result<(Trial, Vec<String>)> {
    let mut best = failing.clone();
    let mut why = best.play(false)?.breaches;
    let mut plays = 0;
    let mut parts = 2;
    while !best.steps.is_empty() && plays < PLAYS_MAX {
        let size = best.steps.len().div_ceil(parts);
        let mut smaller = None;
        for from in (0..best.steps.len()).step_by(size) {
            let mut steps = best.steps.clone();
            steps.drain(from..(from + size).min(steps.len()));
            let trial = Trial {
                seed: best.seed,
                steps,
            };
            let breaches = trial.play(false)?.breaches;
            plays += 1;
            if same_sort(&breaches, &why) {
                smaller = Some((trial, breaches));
                break;
            }
        }
        match smaller {
            Some((trial, breaches)) => {
                (best, why) = (trial, breaches);
                parts = parts.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(best.steps.len()),
        }
    }
    Ok((best, why))
}

/// Whether two trials break the same rule first.
fn same_sort(a: &[String], b: &[String]) -> bool {
    let sort = |breaches: &[String]| {
        let first = breaches.first()?;
        let (_, what) = first.split_once(": ")?;
        Some(what.chars().take(20).collect::<String>())
    };
    sort(a).is_some() && sort(a) == sort(b)
}
