//! Opens a database without writing to it or to its directory.

use super::table::Tables;
use crate::error::SessionError;
use agentline_core::{ReadError, TableRow, TableSource};
use agentline_fs::{private_file::create_file, regular_file::open_regular};
use rusqlite::{Connection, OpenFlags};
use std::{
    fs::{self, Metadata},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// The maximum time to wait for a lock that the agent holds.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much a read may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadEffort {
    /// It waits for locks, and copies a database that cannot be read in place.
    Complete,
    /// It fails instead. A later read will succeed.
    Immediate,
}

/// The maximum number of copies when the files change while they are copied.
const COPIES: usize = 5;

/// The way in which a database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenMode {
    /// Without locks: there is no write-ahead log, so the file alone is complete.
    Immutable,
    /// With shared locks: the log and its index are read and not written.
    Shared,
    /// On a copy: there is a log without its index, or an interrupted transaction, and recovering either writes files.
    Copied,
}

/// The size, modification time and inode of a file.
type FileState = Option<(u64, Option<SystemTime>, u64)>;

/// The current state of a database's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatabaseFiles {
    database: FileState,
    log: FileState,
    index: FileState,
    journal: FileState,
}

/// An open database, or a copy of it.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    connection: Connection,
    tables: Tables,
    /// The known damage to the file.
    pub(super) damage: Option<ReadError>,
    mode: OpenMode,
    files: DatabaseFiles,
    /// The directory of the copy, removed on drop after the connection is closed.
    _copy: Option<TempDir>,
}

impl DatabaseFiles {
    pub(super) fn inspect(path: &Path) -> Self {
        let state = |ending: &str| {
            let metadata = fs::metadata(with_suffix(path, ending)).ok().filter(Metadata::is_file)?;
            Some((metadata.len(), metadata.modified().ok(), identity(&metadata)))
        };
        Self { database: state(""), log: state("-wal"), index: state("-shm"), journal: state("-journal") }
    }

    /// Returns a number that changes when the content may have changed. The index of the log has no content of its own.
    pub(super) fn stamp(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.database, self.log, self.journal).hash(&mut hasher);
        hasher.finish()
    }

    fn mode(&self) -> OpenMode {
        let filled = |state: FileState| state.is_some_and(|(size, ..)| size > 0);
        match (filled(self.journal), filled(self.log), self.index.is_some()) {
            (true, ..) | (_, true, false) => OpenMode::Copied,
            (_, false, _) => OpenMode::Immutable,
            (_, true, true) => OpenMode::Shared,
        }
    }

    /// Returns whether these are the same files, regardless of their content.
    fn are_same_as(&self, other: &Self) -> bool {
        let identity = |state: FileState| state.map(|(_, _, identity)| identity);
        self.mode() == other.mode()
            && identity(self.database) == identity(other.database)
            && identity(self.log) == identity(other.log)
    }
}

impl OpenDatabase {
    /// Opens a database from which these tables are read.
    pub(super) fn new(path: &Path, names: &[&str], effort: ReadEffort) -> Result<Self, SessionError> {
        let files = DatabaseFiles::inspect(path);
        let mode = files.mode();
        let opened = match mode {
            OpenMode::Copied => Err(rusqlite::Error::InvalidQuery),
            _ => {
                connect(path, mode, effort).and_then(|c| Tables::inspect(&c, names).map(|tables| (c, tables)))
            }
        };
        let (connection, tables, mode, copy) = match opened {
            Ok((connection, tables)) => (connection, tables, mode, None),
            // The index may be invalid or unreadable for this user.
            Err(_) if mode != OpenMode::Immutable && effort == ReadEffort::Complete => {
                let folder = copy(path)?;
                let (connection, tables) = open_copy(&folder, names).map_err(|e| unreadable(path, &e))?;
                (connection, tables, OpenMode::Copied, Some(folder))
            }
            Err(error) => return Err(unreadable(path, &error)),
        };
        let damage = (mode == OpenMode::Immutable).then(|| cut(path)).flatten();
        Ok(Self { connection, tables, damage, mode, files, _copy: copy })
    }

    /// Returns whether the database must be reopened to see its current content.
    pub(super) fn is_outdated(&self, path: &Path) -> bool {
        let now = DatabaseFiles::inspect(path);
        match self.mode {
            OpenMode::Shared => !now.are_same_as(&self.files),
            OpenMode::Immutable | OpenMode::Copied => now.stamp() != self.files.stamp(),
        }
    }

    /// Returns whether the last read may be inconsistent, which is possible only without locks.
    pub(super) fn was_changed(&self, path: &Path) -> bool {
        self.mode == OpenMode::Immutable && DatabaseFiles::inspect(path).stamp() != self.files.stamp()
    }

    /// Runs several reads in one transaction.
    pub(super) fn as_of_one_moment<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        let began = self.connection.execute_batch("BEGIN").is_ok();
        let read = work(self);
        if began {
            // The transaction only reads, so a failure to end it loses nothing.
            self.connection
                .execute_batch("COMMIT")
                .or_else(|_| self.connection.execute_batch("ROLLBACK"))
                .ok();
        }
        read
    }
}

impl TableSource for OpenDatabase {
    fn all(
        &self,
        table: &'static str,
        columns: &[&str],
        each: &mut dyn FnMut(&dyn TableRow),
    ) -> Vec<ReadError> {
        self.tables.all(&self.connection, table, columns, each)
    }

    fn all_with(
        &self,
        table: &'static str,
        columns: &[&str],
        key: (&str, &str),
        each: &mut dyn FnMut(&dyn TableRow),
    ) -> Vec<ReadError> {
        self.tables.matching(&self.connection, table, columns, key, each)
    }
}

fn connect(path: &Path, mode: OpenMode, effort: ReadEffort) -> rusqlite::Result<Connection> {
    let options = match mode {
        OpenMode::Immutable => "immutable=1",
        // The index is mapped read-only and never created.
        OpenMode::Shared => "mode=ro&readonly_shm=1",
        OpenMode::Copied => "mode=rw",
    };
    let flags = match mode {
        OpenMode::Copied => OpenFlags::SQLITE_OPEN_READ_WRITE,
        _ => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("{}?{options}", uri(path)), flags)?;
    connection.busy_timeout(if effort == ReadEffort::Complete { PATIENCE } else { Duration::ZERO })?;
    // With `writable_schema`, SQLite reads a truncated file as far as possible.
    connection.execute_batch("PRAGMA query_only=1; PRAGMA writable_schema=1; PRAGMA cache_size=-16000;")?;
    Ok(connection)
}

fn open_copy(folder: &TempDir, names: &[&str]) -> rusqlite::Result<(Connection, Tables)> {
    let connection = connect(&folder.path().join(COPY), OpenMode::Copied, ReadEffort::Complete)?;
    let tables = Tables::inspect(&connection, names)?;
    Ok((connection, tables))
}

const COPY: &str = "copy.db";

/// Copies the database and its log to a temporary directory, and retries if they change meanwhile.
fn copy(path: &Path) -> Result<TempDir, SessionError> {
    let folder = TempDir::new().map_err(SessionError::io("create a directory for a copy of", path))?;
    for _ in 0..COPIES {
        let before = DatabaseFiles::inspect(path);
        for ending in ["", "-wal", "-journal"] {
            let from = with_suffix(path, ending);
            let to = with_suffix(&folder.path().join(COPY), ending);
            match copy_content(&from, &to) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && !ending.is_empty() => {
                    fs::remove_file(&to).ok()
                }
                other => Some(other.map_err(SessionError::io("copy", from))?),
            };
        }
        if DatabaseFiles::inspect(path).stamp() == before.stamp() {
            break;
        }
    }
    Ok(folder)
}

/// Copies the content only, so that the copy of a read-only file is writable.
fn copy_content(from: &Path, to: &Path) -> io::Result<()> {
    io::copy(&mut open_regular(from, u64::MAX)?, &mut create_file(to)?).map(drop)
}

/// Returns the damage to a file that is shorter than its header says.
fn cut(path: &Path) -> Option<ReadError> {
    let mut head = [0; 100];
    let mut file = open_regular(path, u64::MAX).ok()?;
    let size = file.metadata().ok()?.len();
    file.read_exact(&mut head).ok()?;
    let word =
        |at: usize| u64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let page = match u64::from(u16::from_be_bytes([head[16], head[17]])) {
        1 => 65_536,
        page => page,
    };
    // The page count is valid only if it was written with the last change.
    let expected = if word(24) == word(92) { word(28).saturating_mul(page) } else { 0 };
    (size < expected)
        .then(|| ReadError::new(None, format!("the database is truncated: {size} of {expected} bytes")))
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> SessionError {
    SessionError::io("read", path)(io::Error::other(error.to_string()))
}

fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Returns a path as an SQLite URI.
fn uri(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = text.strip_prefix(r"\\?\").unwrap_or(&text).replace('\\', "/");
    let mut uri = String::from(if text.starts_with('/') { "file:" } else { "file:/" });
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b':' => {
                uri.push(char::from(byte))
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    metadata.ino()
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> u64 {
    0
}
