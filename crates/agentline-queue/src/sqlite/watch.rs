//! Notices changes of the file.

use super::database::{blocking, connect};
use super::millis;
use crate::{Clock, QueueError};
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the file is examined.
const INTERVAL: Duration = Duration::from_millis(50);

/// A wait ends if something changed this long before it began, because the caller may not have seen the change.
const OVERLAP: Duration = Duration::from_secs(1);

/// A connection that never writes: it sees the changes of all others, also those of this process.
#[derive(Debug)]
pub(super) struct Watch(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    connection: Connection,
    /// What `PRAGMA data_version` returned.
    version: i64,
    changed_at: Instant,
}

impl Watch {
    pub(super) fn open(path: &Path) -> Result<Self, QueueError> {
        let connection = connect(path)?;
        let version = version(&connection)?;
        Ok(Self(Mutex::new(Seen { connection, version, changed_at: Instant::now() })))
    }

    /// Returns whether something changed since `since`, or a lease ended between two moments of the clock.
    fn has_changed(&self, since: Instant, from: i64, now: i64) -> Result<bool, QueueError> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let version = version(&seen.connection)?;
        if version != seen.version {
            seen.version = version;
            seen.changed_at = Instant::now();
        }
        if seen.changed_at >= since {
            return Ok(true);
        }
        let sql = "SELECT 1 FROM jobs WHERE state = 1 AND ends_ms > ? AND ends_ms <= ?";
        Ok(seen.connection.prepare_cached(sql)?.exists(params![from, now])?)
    }
}

/// Waits for a change.
pub(super) async fn wait(
    watch: &Arc<Watch>,
    clock: &Arc<dyn Clock>,
    time: Duration,
) -> Result<(), QueueError> {
    let start = Instant::now();
    let since = start.checked_sub(OVERLAP).unwrap_or(start);
    let from = millis(clock.now()) - millis(OVERLAP);
    loop {
        // The pause comes first, so that a caller in a loop does not keep the processor busy after a change.
        let Some(left) = time.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
            return Ok(());
        };
        tokio::time::sleep(left.min(INTERVAL)).await;
        let (watch, now) = (watch.clone(), millis(clock.now()));
        if blocking(move || watch.has_changed(since, from, now)).await? {
            return Ok(());
        }
    }
}

fn version(connection: &Connection) -> Result<i64, QueueError> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}
