//! What stands in for pulling where it is not built in.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::bail;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::settings::PullConfig;
use crate::clock::Clock;
use crate::reception::Reception;
use crate::troubles::Troubles;

/// There is none.
pub struct Puller(Infallible);

impl Puller {
    /// Nothing, if nothing is asked for.
    ///
    /// # Errors
    /// When there is something to pull from.
    #[expect(
        clippy::unused_async,
        reason = "the real one has to look up the project"
    )]
    pub async fn new(config: &PullConfig) -> anyhow::Result<Option<Self>> {
        match config.first() {
            Some(name) => bail!("--pull {name}: this binary was built without the feature `pull`"),
            None => Ok(None),
        }
    }

    /// Never called.
    pub fn start(
        self,
        _tasks: &mut JoinSet<anyhow::Result<()>>,
        _reception: &Arc<Reception>,
        _troubles: &Troubles,
        _clock: Clock,
        _stop: &watch::Receiver<bool>,
    ) {
        match self.0 {}
    }
}
