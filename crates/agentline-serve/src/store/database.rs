//! The SQLite database of runs and events.

use crate::messages::{RunQuery, ServedRun, ServedRunState};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use std::{path::Path, time::Duration};

const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    -- The run as JSON, without the columns below.
    info TEXT NOT NULL,
    owner TEXT NOT NULL,
    conversation TEXT,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    first INTEGER NOT NULL DEFAULT 0,
    last INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL,
    outcome TEXT
);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER NOT NULL,
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (number, id)
) WITHOUT ROWID;
";

const COLUMNS: &str = "info, first, last, ended_ms";

/// A connection to the database.
#[derive(Debug)]
pub(super) struct EventDatabase {
    pub(super) connection: Connection,
}

impl EventDatabase {
    /// Opens the database for the writer, and creates it if necessary.
    pub(super) fn create(path: &Path) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A commit survives the death of the process. A power failure may lose the last events.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        Ok(Self { connection })
    }

    /// Opens the database for reading.
    pub(super) fn open(path: &Path) -> Result<Self, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        // One client reads little at once, and there may be many.
        connection.pragma_update(None, "cache_size", -512)?;
        Ok(Self { connection })
    }

    /// Returns the runs without an outcome, oldest first.
    pub(super) fn unfinished(&self) -> Result<Vec<ServedRun>, rusqlite::Error> {
        let sql = format!("SELECT {COLUMNS} FROM runs WHERE ended_ms IS NULL ORDER BY number");
        let mut statement = self.connection.prepare(&sql)?;
        statement.query_map([], served)?.collect()
    }

    pub(super) fn run(&self, run: &str) -> Result<Option<ServedRun>, rusqlite::Error> {
        let sql = format!("SELECT {COLUMNS} FROM runs WHERE run = ?1");
        self.connection.prepare_cached(&sql)?.query_row([run], served).optional()
    }

    pub(super) fn runs(
        &self,
        query: &RunQuery,
        owner: Option<&str>,
    ) -> Result<Vec<ServedRun>, rusqlite::Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM runs
             WHERE (?1 IS NULL OR number < (SELECT number FROM runs WHERE run = ?1))
               AND (?2 IS NULL OR conversation = ?2) AND (?3 IS NULL OR owner = ?3)
               AND (?4 IS NULL OR (ended_ms IS NOT NULL) = ?4)
             ORDER BY number DESC LIMIT ?5"
        );
        let ended = query.state.map(|state| state == ServedRunState::Ended);
        let limit = query.limit.unwrap_or(50).min(500) as i64;
        let mut statement = self.connection.prepare_cached(&sql)?;
        let rows =
            statement.query_map(params![query.before, query.conversation, owner, ended, limit], served)?;
        rows.collect()
    }

    pub(super) fn outcome(&self, run: &str) -> Result<Option<String>, rusqlite::Error> {
        let mut statement = self.connection.prepare_cached("SELECT outcome FROM runs WHERE run = ?1")?;
        Ok(statement.query_row([run], |row| row.get(0)).optional()?.flatten())
    }

    /// Returns the data of all events of one type.
    pub(super) fn data_of(&self, run: &str, kind: &str) -> Result<Vec<String>, rusqlite::Error> {
        let sql = "SELECT data FROM events
                   WHERE number = (SELECT number FROM runs WHERE run = ?1) AND kind = ?2 ORDER BY id";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_map([run, kind], |row| row.get(0))?.collect()
    }

    /// Returns the data of the last event of one type.
    pub(super) fn last_data_of(&self, run: &str, kind: &str) -> Result<Option<String>, rusqlite::Error> {
        let sql = "SELECT data FROM events
                   WHERE number = (SELECT number FROM runs WHERE run = ?1) AND kind = ?2
                   ORDER BY id DESC LIMIT 1";
        self.connection.prepare_cached(sql)?.query_row([run, kind], |row| row.get(0)).optional()
    }

    /// Returns what the ended runs of a token have cost.
    pub(super) fn spent(&self, owner: &str, since_ms: u64) -> Result<f64, rusqlite::Error> {
        let sql = "SELECT COALESCE(SUM(cost_usd), 0.0) FROM runs
                   WHERE owner = ?1 AND started_ms >= ?2 AND ended_ms IS NOT NULL";
        self.connection.prepare_cached(sql)?.query_row(params![owner, signed(since_ms)], |row| row.get(0))
    }

    pub(super) fn events(
        &self,
        run: &str,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<(u64, String, String)>, rusqlite::Error> {
        let sql = "SELECT id, kind, data FROM events
                   WHERE number = (SELECT number FROM runs WHERE run = ?1) AND id > ?2 ORDER BY id LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![run, signed(after), limit as i64])?;
        let (mut events, mut size) = (Vec::new(), 0);
        while size < bytes
            && let Some(row) = rows.next()?
        {
            let data: String = row.get(2)?;
            size += data.len();
            events.push((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?, data));
        }
        Ok(events)
    }
}

fn served(row: &Row<'_>) -> Result<ServedRun, rusqlite::Error> {
    let info: String = row.get(0)?;
    let mut run: ServedRun = serde_json::from_str(&info).unwrap_or_default();
    run.first_event = row.get::<_, i64>(1)?.unsigned_abs();
    run.last_event = row.get::<_, i64>(2)?.unsigned_abs();
    if let Some(ended) = row.get::<_, Option<i64>>(3)? {
        (run.state, run.ended_at_ms) = (ServedRunState::Ended, Some(ended.unsigned_abs()));
        run.pending_permissions = 0;
    }
    Ok(run)
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
