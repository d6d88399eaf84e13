//! The world as the service's port to Compute Engine.

use async_trait::async_trait;
use drainwell_app::driver::ports::{CallError, Cloud};
use drainwell_core::notice::Vm;
use drainwell_core::observed::Instance;

use super::World;

#[async_trait]
impl Cloud for World {
    async fn instance(&self, vm: &Vm) -> Result<Option<Instance>, CallError> {
        self.wait_for_call().await;
        Ok(self.instance_now(vm))
    }
}
