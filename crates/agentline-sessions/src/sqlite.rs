//! Reads a session database while its agent may be writing to it. The database and its directory are never modified.

mod follow;
mod opening;
mod table;

use crate::error::SessionError;
use agentline_core::{RawJson, SavedSession};
pub use agentline_core::{Readable, SessionDatabase, SessionRow};
use agentline_fs::regular_file::open_regular;
pub use follow::AnswerFollower;
use opening::{OpenDatabase, ReadEffort};
use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The maximum number of reads when the database changes during a read.
const ATTEMPTS: usize = 5;

/// A database of sessions. Threads that share a database wait for each other; each thread may open its own instead.
pub struct Database {
    path: PathBuf,
    schema: &'static dyn SessionDatabase,
    effort: ReadEffort,
    opened: Mutex<OpenDatabase>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens a database of an agent that stores its sessions in this way. Reads report damage in its content.
    ///
    /// # Errors
    /// Fails if the file does not exist, cannot be read, or is not a database.
    pub fn open(path: &Path, schema: &'static dyn SessionDatabase) -> Result<Self, SessionError> {
        Self::open_with(path, schema, ReadEffort::Complete)
    }

    fn open_with(
        path: &Path,
        schema: &'static dyn SessionDatabase,
        effort: ReadEffort,
    ) -> Result<Self, SessionError> {
        let path = agentline_fs::disk_fs::canonicalize(path).map_err(SessionError::io("read", path))?;
        // SQLite would block on a pipe.
        open_regular(&path, u64::MAX).map_err(SessionError::io("read", &path))?;
        let opened = OpenDatabase::new(&path, schema.tables(), effort)?;
        Ok(Self { path, schema, effort, opened: Mutex::new(opened) })
    }

    /// Returns the path of the database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a number, computed from the sizes and times of the files, that changes when the database may have
    /// changed.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        opening::DatabaseFiles::inspect(&self.path).stamp()
    }

    /// Returns every session, in no particular order.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn sessions(&self) -> Result<Readable<Vec<SessionRow>>, SessionError> {
        self.read(|opened| self.schema.sessions(opened))
    }

    /// Reads a complete session, or returns `None` if there is no session with this id.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn load(&self, id: &str) -> Result<Option<SavedSession>, SessionError> {
        let records = self.records(id)?;
        if records.value.is_empty() {
            return Ok(None);
        }
        let mut fold = self.schema.reader();
        for record in records.value {
            fold.take(record);
        }
        let mut session = fold.finish();
        if session.info.id.is_empty() {
            id.clone_into(&mut session.info.id);
        }
        session.damage.extend(records.damage);
        Ok(Some(session))
    }

    /// Returns the records of a session in the order that the agent's reader expects.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn records(&self, id: &str) -> Result<Readable<Vec<RawJson>>, SessionError> {
        self.read(|opened| self.schema.records(opened, id))
    }

    /// Returns a record for each answer with tokens in a session and in the sessions of its sub-agents.
    fn answers(&self, id: &str) -> Result<Readable<Vec<RawJson>>, SessionError> {
        self.read(|opened| self.schema.answers(opened, id))
    }

    /// Returns the sessions with a row whose bytes pass a test. After a session has passed, its other rows are skipped.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn holding(
        &self,
        mut test: impl FnMut(&[u8]) -> bool,
    ) -> Result<Readable<BTreeSet<String>>, SessionError> {
        self.read(|opened| self.schema.matching(opened, &mut test))
    }

    /// Reads, and retries if the files changed in a way that could make the result inconsistent.
    fn read<T>(
        &self,
        mut work: impl FnMut(&OpenDatabase) -> Readable<T>,
    ) -> Result<Readable<T>, SessionError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 1.. {
            if opened.is_outdated(&self.path) {
                *opened = OpenDatabase::new(&self.path, self.schema.tables(), self.effort)?;
            }
            let mut read = opened.as_of_one_moment(&mut work);
            if attempt == ATTEMPTS || !opened.was_changed(&self.path) {
                read.damage.splice(0..0, opened.damage.clone());
                return Ok(read);
            }
        }
        unreachable!("the last attempt returns")
    }
}

#[cfg(test)]
mod tests;
