//! Removes old events and runs, so that the store stays within its limits.

use super::database::signed;
use crate::{clock::now_ms, options::ServeLimits};
use rusqlite::{Connection, params};
use std::time::{Duration, Instant};

/// How often the age and the total size are checked.
const INTERVAL: Duration = Duration::from_secs(60);

/// Removes what exceeds the limits.
#[derive(Debug)]
pub(super) struct Pruner {
    limits: ServeLimits,
    next: Instant,
}

impl Pruner {
    pub(super) fn new(limits: ServeLimits) -> Self {
        Self { limits, next: Instant::now() }
    }

    /// Removes the oldest events of a run if it is too large. Returns the first event that is left then.
    pub(super) fn prune_run(&self, connection: &Connection, number: i64) -> Option<u64> {
        let sql = "SELECT bytes FROM runs WHERE number = ?1";
        let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let bytes = connection.prepare_cached(sql).and_then(|mut sql| sql.query_row([number], read));
        let bytes = bytes.unwrap_or_default().unsigned_abs();
        if bytes <= self.limits.run_bytes {
            return None;
        }
        // Removing a quarter at once makes this rare.
        let excess = bytes - self.limits.run_bytes / 4 * 3;
        remove_oldest(connection, number, excess).ok()
    }

    /// Removes ended runs that are too old, and the oldest ones if all are too large together.
    pub(super) fn prune_all(&mut self, connection: &Connection) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + INTERVAL;
        let max_age = u64::try_from(self.limits.max_age.as_millis()).unwrap_or(u64::MAX);
        let oldest = now_ms().saturating_sub(max_age);
        // A failure leaves more than the limit until the next time.
        let _ = remove_runs(connection, oldest, self.limits.total_bytes);
    }
}

/// Removes events until this many bytes are gone, but not the last event. Returns the first event that is
/// left.
fn remove_oldest(connection: &Connection, number: i64, excess: u64) -> Result<u64, rusqlite::Error> {
    let sql = "SELECT id, LENGTH(data) FROM events WHERE number = ?1 ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([number])?;
    let (mut removed, mut first, mut end) = (0, 0, 0);
    while let Some(row) = rows.next()? {
        first = row.get::<_, i64>(0)?.unsigned_abs();
        if removed >= excess {
            break;
        }
        end = removed;
        removed += row.get::<_, i64>(1)?.unsigned_abs();
    }
    if removed < excess {
        // The last event stays.
        removed = end;
    }
    let transaction = connection.unchecked_transaction()?;
    transaction
        .execute("DELETE FROM events WHERE number = ?1 AND id < ?2", params![number, signed(first)])?;
    let sql = "UPDATE runs SET first = ?2, bytes = bytes - ?3 WHERE number = ?1";
    transaction.execute(sql, params![number, signed(first), signed(removed)])?;
    transaction.commit()?;
    Ok(first)
}

fn remove_runs(connection: &Connection, oldest: u64, total: u64) -> Result<(), rusqlite::Error> {
    let transaction = connection.unchecked_transaction()?;
    let mut size: i64 =
        transaction.query_row("SELECT COALESCE(SUM(bytes), 0) FROM runs", [], |row| row.get(0))?;
    let mut gone = Vec::new();
    {
        let sql = "SELECT number, bytes, ended_ms FROM runs WHERE ended_ms IS NOT NULL ORDER BY number";
        let mut statement = transaction.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (number, bytes, ended): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if ended < signed(oldest) || size > signed(total) {
                gone.push(number);
                size -= bytes;
            }
        }
    }
    for number in gone {
        transaction.execute("DELETE FROM events WHERE number = ?1", [number])?;
        transaction.execute("DELETE FROM runs WHERE number = ?1", [number])?;
    }
    transaction.commit()
}
