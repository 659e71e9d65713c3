//! The saved sessions of this user's agents: everything in the crate `agentline-sessions`.

mod transplant;

pub use agentline_core::{Loss, LossKind};
pub use agentline_sessions::*;
pub use transplant::Transplanted;

use crate::{Agentline, Error};
use agentline_core::PriceTable;

impl Agentline {
    /// Returns the saved sessions of this user's agents, with an index in the cache directory and secrets redacted.
    #[must_use]
    pub fn sessions(&self) -> SessionStore {
        let inner = self.inner();
        SessionStore::new(
            inner.registry.all().iter().cloned(),
            inner.host_env.env.clone(),
            inner.host_env.home.clone(),
        )
        .prices(PriceTable::clone(&inner.prices))
        .index(&inner.host_env.cache)
        .redact(self.redactor())
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Usage(problems) => Self::Usage(problems),
            SessionError::NoSession(problem) => Self::NoSession(problem),
            SessionError::Io { operation, path, source } => Self::Io { operation, path, source },
        }
    }
}
