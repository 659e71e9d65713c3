//! Reads one file as it grows, or again when it was rewritten.

use crate::{
    database,
    error::SessionError,
    lines::NOT_UTF8,
    load::{HEAD, fold_bytes},
    location::{SessionLocation, SessionPart},
    sqlite::Database,
    stamp::SessionStamp,
};
use agentline_core::{Agent, RawJson, ReadError, SavedSession, SessionFormat, SessionReader};
use agentline_fs::regular_file::open_regular;
use std::{
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

/// A file of a session.
pub(super) struct FollowedFile {
    agent: Arc<dyn Agent>,
    path: PathBuf,
    /// `None` until the form is detected from the beginning of the file.
    form: Option<SessionFormat>,
    stamp: Option<SessionStamp>,
    state: State,
    /// The database rows, for a session in a database.
    rows: Option<Rows>,
}

struct Rows {
    database: Database,
    session: String,
    /// The stamp of the database when it was last read.
    stamp: Option<u64>,
}

#[derive(Default)]
struct State {
    /// The number of bytes read.
    position: u64,
    /// Bytes of an incomplete last line.
    rest: Vec<u8>,
    lines: u64,
    fold: Option<Box<dyn SessionReader>>,
    damage: Vec<ReadError>,
    /// The session, for forms that are read as a whole.
    whole: SavedSession,
}

impl FollowedFile {
    pub(super) fn open(agent: &Arc<dyn Agent>, part: &SessionPart) -> Result<Self, SessionError> {
        let path = part.location.path();
        let rows = match &part.location {
            SessionLocation::File(path) => {
                open_regular(path, u64::MAX).map_err(SessionError::io("read", path))?;
                None
            }
            SessionLocation::Row { database, session } => Some(Rows {
                database: database::open(&**agent, database)?,
                session: session.clone(),
                stamp: None,
            }),
        };
        let path = path.to_owned();
        let agent = Arc::clone(agent);
        Ok(Self { agent, path, form: part.form, stamp: None, state: State::default(), rows })
    }

    /// Reads new content and returns whether there was any.
    pub(super) fn poll(&mut self) -> bool {
        if let Some(rows) = &mut self.rows {
            let stamp = rows.database.stamp();
            // A failed read is repeated at the next call.
            if rows.stamp != Some(stamp)
                && let Ok(Some(session)) = rows.database.load(&rows.session)
            {
                rows.stamp = Some(stamp);
                self.state.whole = session;
                return true;
            }
            return false;
        }
        let stamp = SessionStamp::at(&self.path);
        let settled = stamp.is_some_and(|stamp| stamp.is_settled(SystemTime::now()));
        if stamp.is_none() || (stamp == self.stamp && settled) {
            return false;
        }
        let other_file = self.stamp.zip(stamp).is_some_and(|(old, new)| old.inode != new.inode);
        let was_cut = stamp.is_some_and(|stamp| stamp.size < self.state.position);
        self.stamp = stamp;
        if other_file || was_cut {
            self.state = State::default();
        }
        // A failed read is repeated at the next call.
        self.read().unwrap_or(false)
    }

    fn read(&mut self) -> std::io::Result<bool> {
        let mut file = open_regular(&self.path, u64::MAX)?;
        if self.form.is_none() {
            let mut head = Vec::new();
            file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
            self.form = self.agent.sessions().format(&head);
        }
        match self.form {
            Some(SessionFormat::Lines) => {
                file.seek(SeekFrom::Start(self.state.position))?;
                let read = file.read_to_end(&mut self.state.rest)?;
                self.state.position += read as u64;
                self.take_lines();
                Ok(read > 0)
            }
            Some(form) => {
                let mut bytes = Vec::new();
                file.seek(SeekFrom::Start(0))?;
                file.read_to_end(&mut bytes)?;
                let session = fold_bytes(&*self.agent, Some(form), bytes);
                // A file that is being rewritten may be incomplete; keep the previous state until the next call.
                let half = session.entries.is_empty() && !session.damage.is_empty();
                if !half || self.state.whole.entries.is_empty() {
                    self.state.whole = session;
                }
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn take_lines(&mut self) {
        let Some(end) = memchr::memrchr(b'\n', &self.state.rest) else { return };
        let rest = self.state.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.state.rest, rest);
        self.state.rest.shrink_to(1 << 20);
        for line in lines[..end].split(|byte| *byte == b'\n') {
            self.take(line);
        }
    }

    fn take(&mut self, line: &[u8]) {
        let state = &mut self.state;
        if state.fold.is_none() {
            state.fold = self.agent.sessions().reader(SessionFormat::Lines);
        }
        state.lines += 1;
        let line =
            if state.lines == 1 { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) } else { line };
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        if matches!(text, std::borrow::Cow::Owned(_)) {
            state.damage.push(ReadError::new(Some(state.lines), NOT_UTF8));
        }
        if let Some(fold) = &mut state.fold {
            fold.take(RawJson::new(text));
        }
    }

    /// Returns the session as read so far.
    pub(super) fn session(&self) -> &SavedSession {
        self.state.fold.as_ref().map_or(&self.state.whole, |fold| fold.session())
    }

    /// Reads the remaining content, including an incomplete last line, and returns the session.
    pub(super) fn finish(&mut self) -> SavedSession {
        self.poll();
        let rest = std::mem::take(&mut self.state.rest);
        if !rest.is_empty() {
            self.take(&rest);
        }
        let state = std::mem::take(&mut self.state);
        let mut session = state.fold.map_or(state.whole, SessionReader::finish);
        session.damage.extend(state.damage);
        session
    }
}
