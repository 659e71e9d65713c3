//! An experiment on disk: a directory with a SQLite database and one directory per try of a run.

use crate::result::RunResult;
use agentline_fs::private_file::create_dir_all;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the database's schema.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tries (
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    -- NULL while the try is in progress or if it was interrupted.
    ending TEXT,
    PRIMARY KEY (run, number)
);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    -- A result that was superseded by a later one is kept, with 1 here.
    superseded INTEGER NOT NULL DEFAULT 0,
    case_id TEXT NOT NULL,
    variant_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    class TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_result ON results (run) WHERE superseded = 0;
";

/// An error of the experiment's directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Another batch uses the directory.
    Locked(PathBuf),
    /// The directory was written by a newer version.
    Newer(PathBuf),
    /// There is no experiment in the directory.
    Missing(PathBuf),
    /// The run already has a result.
    Committed(String),
    /// The directory cannot be used.
    Io(PathBuf, std::io::Error),
    /// The database cannot be used.
    Database(rusqlite::Error),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locked(dir) => write!(f, "another batch is running in `{}`", dir.display()),
            Self::Newer(dir) => write!(f, "`{}` was written by a newer version of agentline", dir.display()),
            Self::Missing(dir) => write!(f, "there is no experiment in `{}`", dir.display()),
            Self::Committed(run) => write!(f, "the run `{run}` already has a result"),
            Self::Io(path, _) => write!(f, "`{}` cannot be used", path.display()),
            Self::Database(_) => f.write_str("the database of the experiment cannot be used"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// An experiment on disk.
#[derive(Debug)]
pub struct Experiment {
    dir: PathBuf,
    database: Connection,
    /// Held while a batch runs; the lock ends with the process.
    lock: Option<File>,
}

impl Experiment {
    /// Opens an experiment for a batch, and creates it if necessary.
    ///
    /// # Errors
    /// Fails if another batch uses the directory, or if it cannot be written.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let wrong = |error| StoreError::Io(dir.to_owned(), error);
        create_dir_all(dir).map_err(wrong)?;
        let lock =
            File::options().create(true).truncate(false).write(true).open(dir.join("lock")).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(StoreError::Locked(dir.to_owned())),
            Err(std::fs::TryLockError::Error(error)) => return Err(wrong(error)),
        }
        Self::with_database(dir, Some(lock))
    }

    /// Opens an experiment to read it, also while a batch runs.
    ///
    /// # Errors
    /// Fails if there is no experiment in the directory.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        if !database_path(dir).is_file() {
            return Err(StoreError::Missing(dir.to_owned()));
        }
        Self::with_database(dir, None)
    }

    fn with_database(dir: &Path, lock: Option<File>) -> Result<Self, StoreError> {
        let database = Connection::open(database_path(dir))?;
        database.busy_timeout(Duration::from_secs(30))?;
        let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version > VERSION {
            return Err(StoreError::Newer(dir.to_owned()));
        }
        if lock.is_some() {
            database.pragma_update(None, "journal_mode", "wal")?;
            // A result survives a killed batch. A power failure may lose the last ones, which are then run again.
            database.pragma_update(None, "synchronous", "normal")?;
            database.execute_batch(SCHEMA)?;
            database.pragma_update(None, "user_version", VERSION)?;
        }
        Ok(Self { dir: dir.to_owned(), database, lock })
    }

    /// Returns the directory of the experiment.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether this process holds the lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Stores a value about the whole experiment.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn set_meta(&self, name: &str, value: &str) -> Result<(), StoreError> {
        let mut statement =
            self.database.prepare("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
        statement.execute(params![name, value])?;
        Ok(())
    }

    /// Returns a value about the whole experiment.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut statement = self.database.prepare("SELECT value FROM meta WHERE name = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?)
    }

    /// Begins a try of a run, and returns its number, from 1, and its directory.
    ///
    /// # Errors
    /// Fails if the database or the directory cannot be written.
    pub fn begin_try(&self, run: &str, now_ms: u64) -> Result<(u32, PathBuf), StoreError> {
        let mut statement = self.database.prepare(
            "INSERT INTO tries (run, number, started_ms)
             VALUES (?1, (SELECT COALESCE(MAX(number), 0) + 1 FROM tries WHERE run = ?1), ?2) RETURNING number",
        )?;
        let number: u32 = statement.query_row(params![run, signed(now_ms)], |row| row.get(0))?;
        let dir = self.dir.join(try_dir(run, number));
        create_dir_all(&dir).map_err(|error| StoreError::Io(dir.clone(), error))?;
        Ok((number, dir))
    }

    /// Records how a try ended that is no result, such as one that is repeated after an infrastructure failure.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn end_try(&self, run: &str, number: u32, ending: &str, now_ms: u64) -> Result<(), StoreError> {
        let mut statement = self
            .database
            .prepare("UPDATE tries SET ended_ms = ?3, ending = ?4 WHERE run = ?1 AND number = ?2")?;
        statement.execute(params![run, number, signed(now_ms), ending])?;
        Ok(())
    }

    /// Commits the result of a run, exactly once.
    ///
    /// # Errors
    /// Fails if the run already has a result, or if the database cannot be written.
    pub fn commit(&self, result: &RunResult) -> Result<(), StoreError> {
        let json = serde_json::to_string(result).unwrap_or_default();
        let transaction = self.database.unchecked_transaction()?;
        let mut statement = transaction.prepare(
            "INSERT INTO results (run, case_id, variant_id, attempt, class, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let inserted = statement.execute(params![
            result.key,
            result.case,
            result.variant,
            result.attempt,
            result.class.name(),
            json
        ]);
        drop(statement);
        match inserted {
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == rusqlite::ErrorCode::ConstraintViolation =>
            {
                return Err(StoreError::Committed(result.key.clone()));
            }
            inserted => inserted?,
        };
        let mut statement = transaction
            .prepare("UPDATE tries SET ended_ms = ?3, ending = ?4 WHERE run = ?1 AND number = ?2")?;
        statement.execute(params![
            result.key,
            result.tries,
            signed(result.finished_ms),
            result.class.name()
        ])?;
        drop(statement);
        transaction.commit()?;
        Ok(())
    }

    /// Replaces the result of a run, as new checks decide it. The earlier result is kept.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn replace(&self, result: &RunResult) -> Result<(), StoreError> {
        self.supersede(&result.key)?;
        self.commit(result)
    }

    /// Marks the result of a run as superseded, so that the run is executed again. Nothing is deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn supersede(&self, run: &str) -> Result<(), StoreError> {
        self.database.execute("UPDATE results SET superseded = 1 WHERE run = ?1", [run])?;
        Ok(())
    }

    /// Returns the current results by the key of their run.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn results(&self) -> Result<HashMap<String, RunResult>, StoreError> {
        let mut statement =
            self.database.prepare("SELECT result FROM results WHERE superseded = 0 ORDER BY id")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let mut results = HashMap::new();
        for row in rows {
            // A row that a newer version wrote may have values that this one does not know. A directory elsewhere was
            // not written by a batch.
            if let Ok(result) = serde_json::from_str::<RunResult>(&row?)
                && result.key.bytes().all(|byte| byte.is_ascii_hexdigit())
                && result.dir == try_dir(&result.key, result.tries)
            {
                results.insert(result.key.clone(), result);
            }
        }
        Ok(results)
    }
}

fn database_path(dir: &Path) -> PathBuf {
    dir.join("experiment.sqlite")
}

/// Returns the directory of a try, relative to the experiment.
#[must_use]
pub fn try_dir(run: &str, number: u32) -> String {
    format!("runs/{}/{run}/{number}", run.get(..2).unwrap_or("00"))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
