//! The connections that read from the database, each lent to one read at a time.

use super::database::EventDatabase;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The connections that no read uses.
#[derive(Debug)]
pub(super) struct ReaderPool {
    idle: Mutex<Vec<EventDatabase>>,
    permits: Arc<Semaphore>,
}

/// A connection that returns to its pool when it is dropped, also if the read panics or its caller is gone.
#[derive(Debug)]
pub(super) struct LentReader {
    pool: Arc<ReaderPool>,
    /// `None` only while it is dropped.
    database: Option<EventDatabase>,
    /// Released after the connection has returned.
    _permit: OwnedSemaphorePermit,
}

impl ReaderPool {
    pub(super) fn new(readers: Vec<EventDatabase>) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(readers.len()));
        Arc::new(Self { idle: Mutex::new(readers), permits })
    }

    /// Waits for a connection. `None` only if there is none at all.
    pub(super) async fn lend(self: &Arc<Self>) -> Option<LentReader> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        let database = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(LentReader { pool: Arc::clone(self), database: Some(database), _permit: permit })
    }
}

impl LentReader {
    /// Returns the connection.
    pub(super) fn database(&self) -> Option<&EventDatabase> {
        self.database.as_ref()
    }
}

impl Drop for LentReader {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.extend(self.database.take());
    }
}
