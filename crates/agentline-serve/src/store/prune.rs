//! Removes old events and runs, so that the store stays within its limits.

use super::database::signed;
use crate::{clock::now_ms, options::ServeLimits};
use rusqlite::{Connection, params};
use std::time::{Duration, Instant};

/// How often the age and the total size are checked, or more often if the age is shorter.
const INTERVAL: Duration = Duration::from_secs(60);
/// What a run takes besides its events, in bytes.
const ROW_BYTES: &str = "OCTET_LENGTH(info) + COALESCE(OCTET_LENGTH(outcome), 0)";
/// How long the cost of a run counts for a daily budget.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

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

    /// Returns how often the age and the total size are checked.
    pub(super) fn interval(limits: &ServeLimits) -> Duration {
        limits.max_age.clamp(Duration::from_millis(10), INTERVAL)
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
        self.next = Instant::now() + Self::interval(&self.limits);
        let max_age = u64::try_from(self.limits.max_age.as_millis()).unwrap_or(u64::MAX);
        let oldest = now_ms().saturating_sub(max_age);
        // A failure leaves more than the limit until the next time.
        let _ = remove_runs(connection, oldest, self.limits.total_bytes);
    }
}

/// Removes events until this many bytes are gone, but not the last event. Returns the first event that is
/// left.
fn remove_oldest(connection: &Connection, number: i64, excess: u64) -> Result<u64, rusqlite::Error> {
    let sql = "SELECT id, OCTET_LENGTH(data) FROM events WHERE number = ?1 ORDER BY id";
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

/// Removes the ended runs that are too old. While all are too large together, removes the oldest, too; of a run whose cost
/// counts for a daily budget, the events before the last.
fn remove_runs(connection: &Connection, oldest: u64, total: u64) -> Result<(), rusqlite::Error> {
    let counts = now_ms().saturating_sub(DAY_MS);
    let transaction = connection.unchecked_transaction()?;
    let sql = format!("SELECT COALESCE(SUM(bytes + {ROW_BYTES}), 0) FROM runs");
    let mut size: i64 = transaction.query_row(&sql, [], |row| row.get(0))?;
    let (mut gone, mut emptied) = (Vec::new(), Vec::new());
    {
        let sql = format!(
            "SELECT number, bytes, ended_ms, started_ms, {ROW_BYTES} FROM runs
             WHERE ended_ms IS NOT NULL ORDER BY number"
        );
        let mut statement = transaction.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (number, bytes, ended): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let is_old = ended < signed(oldest);
            if !is_old && size <= signed(total) {
                continue;
            }
            let is_counted = row.get::<_, i64>(3)? >= signed(counts);
            size -= bytes;
            if is_counted && !is_old {
                emptied.push(number);
            } else {
                size -= row.get::<_, i64>(4)?;
                gone.push(number);
            }
        }
    }
    for number in gone {
        transaction.execute("DELETE FROM events WHERE number = ?1", [number])?;
        transaction.execute("DELETE FROM runs WHERE number = ?1", [number])?;
    }
    transaction.commit()?;
    for number in emptied {
        remove_oldest(connection, number, u64::MAX)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::database::EventDatabase;

    #[test]
    fn run_with_text_of_several_bytes_per_character_keeps_three_quarters() {
        let dir = tempfile::tempdir().unwrap();
        let database = EventDatabase::create(&dir.path().join("serve.sqlite")).unwrap();
        let sql = "INSERT INTO runs (run, info, owner, started_ms, first, last, bytes)
                   VALUES ('a', '{}', 'ci', 0, 1, 100, 30000)";
        database.connection.execute(sql, []).unwrap();
        for id in 1..=100 {
            let sql = "INSERT INTO events VALUES (1, ?1, 'text', ?2)";
            database.connection.execute(sql, params![id, "漢".repeat(100)]).unwrap();
        }
        let limits = ServeLimits { run_bytes: 20_000, ..ServeLimits::default() };
        let pruner = Pruner::new(limits);
        assert_eq!(pruner.prune_run(&database.connection, 1), Some(51), "15,000 bytes are left");
        assert_eq!(pruner.prune_run(&database.connection, 1), None, "it is small enough now");
        assert_eq!(database.events("a", 0, 100, usize::MAX).unwrap().len(), 50);
    }

    #[test]
    fn outcomes_count_for_the_total_size() {
        let dir = tempfile::tempdir().unwrap();
        let database = EventDatabase::create(&dir.path().join("serve.sqlite")).unwrap();
        let old = now_ms() - 2 * DAY_MS;
        for run in ["first", "second"] {
            let sql = "INSERT INTO runs (run, info, owner, started_ms, ended_ms, bytes, outcome)
                       VALUES (?1, '{}', 'ci', ?2, ?2, 10, ?3)";
            database.connection.execute(sql, params![run, signed(old), "x".repeat(1_000)]).unwrap();
        }
        let left = |total| {
            remove_runs(&database.connection, 0, total).unwrap();
            ["first", "second"].map(|run| database.run(run).unwrap().is_some())
        };
        assert_eq!(left(2_100), [true, true]);
        assert_eq!(left(2_000), [false, true]);
    }

    #[test]
    fn cost_of_the_last_day_outlives_the_events_of_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let database = EventDatabase::create(&dir.path().join("serve.sqlite")).unwrap();
        let now = now_ms();
        for (run, started) in [("old", now - 2 * DAY_MS), ("young", now)] {
            let sql =
                "INSERT INTO runs (run, info, owner, started_ms, ended_ms, first, last, bytes, cost_usd)
                       VALUES (?1, '{}', 'ci', ?2, ?2, 1, 2, 20, 1.5)";
            database.connection.execute(sql, params![run, signed(started)]).unwrap();
            for id in [1, 2] {
                let sql = "INSERT INTO events
                           VALUES ((SELECT number FROM runs WHERE run = ?2), ?1, 'text', '0123456789')";
                database.connection.execute(sql, params![id, run]).unwrap();
            }
        }
        remove_runs(&database.connection, now - 30 * DAY_MS, 0).unwrap();
        assert!(database.run("old").unwrap().is_none());
        assert_eq!(database.spent("ci", now - DAY_MS).unwrap(), 1.5);
        let left = database.events("young", 0, 10, 1_000).unwrap();
        assert_eq!(left.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [2]);
        assert_eq!(database.run("young").unwrap().unwrap().first_event, 2);
    }
}
