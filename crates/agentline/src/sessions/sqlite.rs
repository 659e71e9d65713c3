//! OpenCode's database of sessions, read while the agent may be writing it, and never changed by us: not a byte of it, no
//! file beside it.

mod opening;
mod records;
mod table;

use crate::{Error, regular_file::open_regular};
use agentline_core::{
    Agent as _, Damage, Millis, RawJson, SavedForm, SavedSession, SessionInfo, Tokens, agents::opencode,
};
use opening::Opened;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// How often something is read again that was changed while it was read.
const ATTEMPTS: usize = 5;

/// A database of sessions. It may be shared by threads, which then take turns; each may as well open its own.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    opened: Mutex<Opened>,
}

/// What the database tells about a session without reading what was said.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionRow {
    /// Whose it is and when it was.
    pub info: SessionInfo,
    /// All tokens, where this version of the agent keeps their sum.
    pub tokens: Option<Tokens>,
    /// How many messages it has.
    pub messages: u64,
    /// How many parts they have.
    pub parts: u64,
    /// How many bytes they are.
    pub size: u64,
    /// When any of its rows was last written. Together with the counts it is another whenever the session is.
    pub changed: Millis,
}

/// Something read, and what of it could not be.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Readable<T> {
    /// What could be read.
    pub value: T,
    /// What could not.
    pub damage: Vec<Damage>,
}

impl Database {
    /// Opens a database. What of it is damaged is told by what is read of it.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is no database.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let path = std::fs::canonicalize(path).map_err(Error::io("read", path))?;
        // SQLite would wait for the other end of a pipe.
        open_regular(&path, u64::MAX).map_err(Error::io("read", &path))?;
        let opened = Opened::new(&path)?;
        Ok(Self { path, opened: Mutex::new(opened) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another when the database may be: from the sizes and times of its files.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        opening::Files::look(&self.path).stamp()
    }

    /// Every session, in no order.
    ///
    /// # Errors
    /// It cannot be opened any more.
    pub fn sessions(&self) -> Result<Readable<Vec<SessionRow>>, Error> {
        self.read(records::sessions)
    }

    /// Reads a session whole; `None` when nothing is there of this id.
    ///
    /// # Errors
    /// The database cannot be opened any more.
    pub fn load(&self, id: &str) -> Result<Option<SavedSession>, Error> {
        let told = self.records(id)?;
        let fold = opencode::OpenCode.session_fold(SavedForm::Database);
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

    /// The records of a session, as OpenCode's fold takes them: the session itself, then each message with its parts.
    ///
    /// # Errors
    /// The database cannot be opened any more.
    pub fn records(&self, id: &str) -> Result<Readable<Vec<RawJson>>, Error> {
        self.read(|opened| records::of_session(opened, id))
    }

    /// The sessions of which a message or part passes a test, which gets the bytes of its JSON. Once a session has passed,
    /// its other parts are not looked at.
    ///
    /// # Errors
    /// The database cannot be opened any more.
    pub fn holding(&self, mut test: impl FnMut(&[u8]) -> bool) -> Result<Readable<BTreeSet<String>>, Error> {
        self.read(|opened| records::holding(opened, &mut test))
    }

    /// Reads, and again when the files were changed in a way that what was read may not belong together.
    fn read<T>(&self, mut work: impl FnMut(&Opened) -> T) -> Result<T, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 1.. {
            if opened.is_outdated(&self.path) {
                *opened = Opened::new(&self.path)?;
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
