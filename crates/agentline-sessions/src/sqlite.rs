//! Reads OpenCode's session database while the agent may be writing to it. The database and its directory are never
//! modified.

mod opening;
mod records;
mod table;

use crate::error::SessionError;
use agentline_core::{
    Agent as _, Millis, RawJson, ReadError, SavedSession, SessionFormat, SessionInfo, Tokens,
    agents::opencode,
};
use agentline_fs::regular_file::open_regular;
use opening::OpenDatabase;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The maximum number of reads when the database changes during a read.
const ATTEMPTS: usize = 5;

/// A database of sessions. Threads that share one wait for each other; each may open its own instead.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    opened: Mutex<OpenDatabase>,
}

/// The metadata of a session, available without reading its messages.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionRow {
    /// The metadata of the session.
    pub info: SessionInfo,
    /// The sum of all tokens, where this version of the agent stores it.
    pub tokens: Option<Tokens>,
    /// The number of messages.
    pub messages: u64,
    /// The number of message parts.
    pub parts: u64,
    /// The size of messages and parts in bytes.
    pub size: u64,
    /// The time of the last write to any of its rows. Together with the counts, it changes whenever the session does.
    pub changed: Millis,
}

/// A value together with the damage found while reading it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Readable<T> {
    /// The readable part.
    pub value: T,
    /// The damage: what could not be read.
    pub damage: Vec<ReadError>,
}

impl Database {
    /// Opens a database. Reads report damage in its content.
    ///
    /// # Errors
    /// Fails if the file does not exist, cannot be read, or is not a database.
    pub fn open(path: &Path) -> Result<Self, SessionError> {
        let path = std::fs::canonicalize(path).map_err(SessionError::io("read", path))?;
        // SQLite would block on a pipe.
        open_regular(&path, u64::MAX).map_err(SessionError::io("read", &path))?;
        let opened = OpenDatabase::new(&path)?;
        Ok(Self { path, opened: Mutex::new(opened) })
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
        opening::DatabaseFiles::look(&self.path).stamp()
    }

    /// Returns every session, in no particular order.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn sessions(&self) -> Result<Readable<Vec<SessionRow>>, SessionError> {
        self.read(records::sessions)
    }

    /// Reads a complete session, or returns `None` if there is no session with this id.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn load(&self, id: &str) -> Result<Option<SavedSession>, SessionError> {
        let told = self.records(id)?;
        let fold = opencode::OpenCode.sessions().reader(SessionFormat::Database);
        let Some(mut fold) = fold.filter(|_| !told.value.is_empty()) else { return Ok(None) };
        for record in told.value {
            fold.take(record);
        }
        let mut session = fold.finish();
        if session.info.id.is_empty() {
            id.clone_into(&mut session.info.id);
        }
        session.damage.extend(told.damage);
        Ok(Some(session))
    }

    /// Returns the records of a session in the order that OpenCode's reader expects: the session, then each
    /// message with its parts.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn records(&self, id: &str) -> Result<Readable<Vec<RawJson>>, SessionError> {
        self.read(|opened| records::of_session(opened, id))
    }

    /// Returns the sessions with a message or part whose JSON bytes pass a test. After a session has passed, its other
    /// parts are skipped.
    ///
    /// # Errors
    /// Fails if the database can no longer be opened.
    pub fn holding(
        &self,
        mut test: impl FnMut(&[u8]) -> bool,
    ) -> Result<Readable<BTreeSet<String>>, SessionError> {
        self.read(|opened| records::holding(opened, &mut test))
    }

    /// Reads, and retries if the files changed in a way that could make the result inconsistent.
    fn read<T>(&self, mut work: impl FnMut(&OpenDatabase) -> T) -> Result<T, SessionError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 1.. {
            if opened.is_outdated(&self.path) {
                *opened = OpenDatabase::new(&self.path)?;
            }
            let read = opened.as_of_one_moment(&mut work);
            if attempt == ATTEMPTS || !opened.was_changed(&self.path) {
                return Ok(read);
            }
        }
        unreachable!("the last attempt returns")
    }
}

type ById<T> = BTreeMap<String, T>;

#[cfg(test)]
mod tests;
