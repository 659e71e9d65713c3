//! The statements about records.

use super::pool::SessionPool;
use crate::{QueueError, QueueRecord, artifact_name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::Row;

const GET: &str = "SELECT name, value, revision, NULL::bigint FROM agentline.records WHERE name = $1";

/// The character after `.` is `/`.
const LIST: &str = "
SELECT name, value, revision, (1000 * extract(epoch FROM clock_timestamp() - updated))::bigint FROM agentline.records
WHERE name > $1 || '.' AND name < $1 || '/' ORDER BY name";

const CREATE: &str = "
WITH written AS (
    INSERT INTO agentline.records (name, value, revision, request)
    VALUES ($1, $2, nextval('agentline.revisions'), $3)
    ON CONFLICT DO NOTHING
    RETURNING revision
)
SELECT revision, pg_notify('agentline', '')::text FROM written";

const REPLACE: &str = "
WITH written AS (
    UPDATE agentline.records
    SET value = $2, revision = nextval('agentline.revisions'), request = $3, updated = clock_timestamp()
    WHERE name = $1 AND revision = $4
    RETURNING revision
)
SELECT revision, pg_notify('agentline', '')::text FROM written";

const WRITTEN: &str = "SELECT revision FROM agentline.records WHERE name = $1 AND request = $2";

const REMOVE: &str = "
WITH removed AS (DELETE FROM agentline.records WHERE name = $1 RETURNING 1)
SELECT pg_notify('agentline', '')::text FROM removed";

/// The most writes that are remembered.
const MOST_PENDING: usize = 1000;

/// Writes whose answers were lost. When such a write is repeated, it has the same identity, so one that succeeded is
/// recognized. The value alone does not tell: two workers that count something may write the same one.
#[derive(Debug)]
pub(super) struct PendingWrites {
    instance: i64,
    count: AtomicU64,
    lost: Mutex<HashMap<WriteKey, String>>,
}

/// The name, the replaced revision and a digest of the value.
type WriteKey = (String, u64, String);

impl PendingWrites {
    /// Creates the memory of a process with a number that no other has.
    pub(super) fn new(instance: i64) -> Self {
        Self { instance, count: AtomicU64::new(0), lost: Mutex::default() }
    }

    /// Returns the identity of a write: a new one, or that of an earlier one whose answer was lost.
    fn identity(&self, key: &WriteKey) -> String {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.remove(key)
            .unwrap_or_else(|| format!("{}-{}", self.instance, self.count.fetch_add(1, Ordering::Relaxed)))
    }

    fn lose(&self, key: WriteKey, identity: String) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.len() >= MOST_PENDING {
            lost.clear();
        }
        lost.insert(key, identity);
    }
}

/// Returns a record.
pub(super) async fn get(pool: &SessionPool, name: &str) -> Result<Option<QueueRecord>, QueueError> {
    Ok(pool.query(GET, &[&name]).await?.first().map(read))
}

/// Returns the records whose names begin with a prefix and a dot.
pub(super) async fn list(pool: &SessionPool, prefix: &str) -> Result<Vec<QueueRecord>, QueueError> {
    Ok(pool.query(LIST, &[&prefix]).await?.iter().map(read).collect())
}

/// Replaces the record that has a revision, and returns the new one.
pub(super) async fn write(
    pool: &SessionPool,
    writes: &PendingWrites,
    name: &str,
    value: &[u8],
    revision: u64,
) -> Result<u64, QueueError> {
    let key = (name.to_owned(), revision, artifact_name(value));
    let identity = writes.identity(&key);
    let written = try_write(pool, name, value, revision, &identity).await;
    if written.as_ref().is_err_and(QueueError::is_temporary) {
        writes.lose(key, identity);
    }
    written
}

async fn try_write(
    pool: &SessionPool,
    name: &str,
    value: &[u8],
    revision: u64,
    identity: &str,
) -> Result<u64, QueueError> {
    let rows = if revision == 0 {
        pool.query(CREATE, &[&name, &value, &identity]).await?
    } else {
        pool.query(REPLACE, &[&name, &value, &identity, &revision.cast_signed()]).await?
    };
    let rows = if rows.is_empty() { pool.query(WRITTEN, &[&name, &identity]).await? } else { rows };
    let revision = rows.first().map(|row| row.get::<_, i64>(0).cast_unsigned());
    revision.ok_or_else(|| QueueError::Conflict(name.to_owned()))
}

/// Removes a record.
pub(super) async fn remove(pool: &SessionPool, name: &str) -> Result<(), QueueError> {
    pool.query(REMOVE, &[&name]).await?;
    Ok(())
}

fn read(row: &Row) -> QueueRecord {
    // The clock of the server may have gone back.
    let age = row.get::<_, Option<i64>>(3).map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    let revision = row.get::<_, i64>(2).cast_unsigned();
    QueueRecord { name: row.get(0), value: row.get(1), revision, age }
}
