//! Which lines are written: `RUST_LOG`.

use anyhow::bail;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// The filters that the environment asks for, else `usual`.
///
/// # Errors
/// When they are none. A misspelt level would be taken for the name of a target
/// and silence everything else: a target has to come with its level.
pub fn from_environment(usual: &str) -> anyhow::Result<EnvFilter> {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    // An empty variable is none.
    if asked.is_empty() {
        return Ok(EnvFilter::new(usual));
    }
    let level = |text: &str| text.parse::<LevelFilter>().is_ok();
    let all_named = asked
        .split(',')
        .all(|one| one.is_empty() || one.contains(['=', '[', '{', '}', ']']) || level(one));
    match EnvFilter::try_new(&asked) {
        Ok(filter) if all_named => Ok(filter),
        _ => bail!("RUST_LOG {asked}: give a level (warn, info, debug, trace) or TARGET=LEVEL,…"),
    }
}
