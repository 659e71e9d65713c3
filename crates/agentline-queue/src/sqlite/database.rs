//! The file: its schema and its connection.

use crate::QueueError;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a request waits for the transactions of other processes.
const BUSY: Duration = Duration::from_secs(20);

/// The version of the schema.
const VERSION: i64 = 1;

/// Says that a database is a queue: "agnq".
const APPLICATION: i64 = 0x6167_6e71;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- Counters never go back, so a token or a revision is never used twice.
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    experiment TEXT NOT NULL,
    name TEXT NOT NULL,
    route TEXT NOT NULL,
    -- 0: waiting, 1: claimed, 2: finished
    state INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 0,
    -- The token of the current claim; 0 if there is none.
    token INTEGER NOT NULL DEFAULT 0,
    -- When the lease ends, in milliseconds of the clock of the machine.
    ends_ms INTEGER NOT NULL DEFAULT 0,
    payload BLOB NOT NULL,
    UNIQUE (experiment, name)
);
CREATE INDEX IF NOT EXISTS waiting ON jobs (experiment, route, id) WHERE state = 0;
CREATE INDEX IF NOT EXISTS claimed ON jobs (ends_ms) WHERE state = 1;
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL UNIQUE,
    experiment TEXT NOT NULL,
    name TEXT NOT NULL,
    token INTEGER NOT NULL,
    result BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS committed ON results (experiment, id);
CREATE TABLE IF NOT EXISTS records (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    revision INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS artifacts (
    experiment TEXT NOT NULL,
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (experiment, name)
);
INSERT OR IGNORE INTO counters VALUES ('token', 0), ('revision', 0);
";

/// Opens the file. If the machine has started since it was last opened, all leases have ended.
pub(super) fn open(path: &Path, boot: &str, now: i64) -> Result<Connection, QueueError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        return Err(invalid(path, &format!("there is no directory `{}`", parent.display())));
    }
    create(path).map_err(|error| invalid(path, &error.to_string()))?;
    let connection = connect(path)?;
    connection.set_prepared_statement_cache_capacity(64);
    retry_while_busy(|| prepare(&connection, path, boot, now))?;
    Ok(connection)
}

/// Calls a function on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    function: impl FnOnce() -> Result<T, QueueError> + Send + 'static,
) -> Result<T, QueueError> {
    let result = tokio::task::spawn_blocking(function).await;
    result.map_err(|error| QueueError::Unavailable(error.to_string()))?
}

/// Opens a connection.
pub(super) fn connect(path: &Path) -> Result<Connection, QueueError> {
    let connection = Connection::open(path).map_err(|error| invalid(path, &error.to_string()))?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Returns the next value of a counter.
pub(super) fn next(connection: &Connection, counter: &str) -> Result<i64, QueueError> {
    let sql = "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value";
    Ok(connection.prepare_cached(sql)?.query_row([counter], |row| row.get(0))?)
}

/// Returns the identity of the current start of the machine; empty where the system has none.
pub(super) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Creates a file that only its owner can read, because jobs contain prompts.
fn create(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn prepare(connection: &Connection, path: &Path, boot: &str, now: i64) -> Result<(), QueueError> {
    let number = |name: &str| -> Result<i64, QueueError> {
        Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
    };
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && number("application_id")? != APPLICATION {
        return Err(invalid(path, "it is a database of another program"));
    }
    if number("user_version")? > VERSION {
        return Err(invalid(path, "it was written by a newer version of agentline"));
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    // A commit survives a killed process. A power failure may lose the last ones, whose jobs are then done again.
    connection.pragma_update(None, "synchronous", "normal")?;
    let db = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    db.execute_batch(SCHEMA)?;
    db.pragma_update(None, "application_id", APPLICATION)?;
    db.pragma_update(None, "user_version", VERSION)?;
    end_leases_of_other_boots(&db, boot, now)?;
    Ok(db.commit()?)
}

fn end_leases_of_other_boots(db: &Connection, boot: &str, now: i64) -> Result<(), QueueError> {
    let sql = "INSERT INTO meta VALUES ('boot', ?1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value";
    if db.execute(sql, [boot])? > 0 {
        db.execute("UPDATE jobs SET ends_ms = ? WHERE state = 1", params![now])?;
    }
    Ok(())
}

/// Repeats a request. SQLite does not wait for other processes while they change the journal mode.
fn retry_while_busy(function: impl Fn() -> Result<(), QueueError>) -> Result<(), QueueError> {
    let until = Instant::now() + BUSY;
    loop {
        match function() {
            Err(error) if error.is_temporary() && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

fn invalid(path: &Path, reason: &str) -> QueueError {
    QueueError::InvalidAddress { address: format!("sqlite:{}", path.display()), reason: reason.to_owned() }
}

impl From<rusqlite::Error> for QueueError {
    fn from(error: rusqlite::Error) -> Self {
        let is_temporary = matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::OutOfMemory
            )
        );
        if is_temporary { Self::Unavailable(error.to_string()) } else { Self::Refused(error.to_string()) }
    }
}
