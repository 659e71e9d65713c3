//! Records.

use super::database::next;
use crate::{QueueError, QueueRecord};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Returns a record.
pub(super) fn get(db: &Connection, name: &str) -> Result<Option<QueueRecord>, QueueError> {
    let sql = "SELECT name, value, revision FROM records WHERE name = ?";
    Ok(db.prepare_cached(sql)?.query_row([name], read).optional()?)
}

/// Returns the records whose names begin with a prefix and a dot.
pub(super) fn list(db: &Connection, prefix: &str) -> Result<Vec<QueueRecord>, QueueError> {
    // The character after `.` is `/`.
    let sql =
        "SELECT name, value, revision FROM records WHERE name > ? || '.' AND name < ? || '/' ORDER BY name";
    let mut select = db.prepare_cached(sql)?;
    let records = select.query_map([prefix, prefix], read)?.collect::<Result<_, _>>()?;
    Ok(records)
}

/// Replaces the record that has a revision, and returns the new one.
pub(super) fn write(db: &Connection, name: &str, value: &[u8], revision: u64) -> Result<u64, QueueError> {
    let current = get(db, name)?.map_or(0, |record| record.revision);
    if current != revision {
        return Err(QueueError::Conflict(name.to_owned()));
    }
    let new = next(db, "revision")?;
    let sql = "INSERT OR REPLACE INTO records (name, value, revision) VALUES (?, ?, ?)";
    db.prepare_cached(sql)?.execute(params![name, value, new])?;
    Ok(new.cast_unsigned())
}

/// Removes a record.
pub(super) fn remove(db: &Connection, name: &str) -> Result<(), QueueError> {
    db.prepare_cached("DELETE FROM records WHERE name = ?")?.execute([name])?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<QueueRecord> {
    let revision: i64 = row.get(2)?;
    // The dates in records of one machine are comparable.
    Ok(QueueRecord { name: row.get(0)?, value: row.get(1)?, revision: revision.cast_unsigned(), age: None })
}
