//! What keeps the service from being ready although it runs, told by those who
//! see it and shown by `/health/ready`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Troubles that last, by what they are about. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<String, String>>>);

impl Troubles {
    /// There is trouble with `about`, until [`Troubles::over`]. Returns whether
    /// that is new.
    pub fn begin(&self, about: &str, why: String) -> bool {
        let before = self.lock().insert(about.to_owned(), why.clone());
        before.as_ref() != Some(&why)
    }

    /// The trouble with `about`, if there was one, is over. Returns whether.
    pub fn over(&self, about: &str) -> bool {
        self.lock().remove(about).is_some()
    }

    /// All of them in one text, if there are any.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let all = self.lock();
        let whys: Vec<_> = all.values().map(String::as_str).collect();
        (!whys.is_empty()).then(|| whys.join(" "))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
