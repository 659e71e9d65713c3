//! Jobs and their results.

use super::database::next;
use crate::{CommitResult, Cursor, Job, JobCounts, JobRoute, Lease, QueueError, ResultPage, StoredResult};
use rusqlite::{Connection, OptionalExtension, params};

/// Adds jobs, and returns the number of new ones.
pub(super) fn enqueue(db: &Connection, experiment: &str, jobs: &[Job]) -> Result<u64, QueueError> {
    let sql = "INSERT INTO jobs (experiment, name, route, payload) VALUES (?, ?, ?, ?)
        ON CONFLICT (experiment, name) DO NOTHING";
    let mut insert = db.prepare_cached(sql)?;
    let mut new = 0;
    for job in jobs {
        new += insert.execute(params![experiment, job.id, job.route, job.payload])? as u64;
    }
    Ok(new)
}

/// Returns the number of the job that is claimed next: one whose lease has ended, or else the oldest one.
pub(super) fn find(db: &Connection, routes: &[JobRoute], now: i64) -> Result<Option<i64>, QueueError> {
    // Few jobs are claimed at any time, so they have one index for all routes.
    let sql = "SELECT id, experiment, route FROM jobs WHERE state = 1 AND ends_ms <= ? ORDER BY ends_ms, id";
    let mut ended = db.prepare_cached(sql)?;
    let mut rows = ended.query([now])?;
    while let Some(row) = rows.next()? {
        let (experiment, route) = (row.get(1)?, row.get(2)?);
        if routes.contains(&JobRoute { experiment, route }) {
            return Ok(Some(row.get(0)?));
        }
    }
    let sql = "SELECT id FROM jobs WHERE state = 0 AND experiment = ? AND route = ? ORDER BY id LIMIT 1";
    let mut oldest = db.prepare_cached(sql)?;
    let mut found: Option<i64> = None;
    for route in routes {
        let id = oldest.query_row([&route.experiment, &route.route], |row| row.get(0)).optional()?;
        found = [found, id].into_iter().flatten().min();
    }
    Ok(found)
}

/// Claims a job.
pub(super) fn claim(
    db: &Connection,
    routes: &[JobRoute],
    now: i64,
    length: i64,
) -> Result<Option<Lease>, QueueError> {
    let Some(id) = find(db, routes, now)? else { return Ok(None) };
    let token = next(db, "token")?;
    let sql = "UPDATE jobs SET state = 1, claims = claims + 1, token = ?2, ends_ms = ?3 WHERE id = ?1
        RETURNING experiment, name, payload, claims";
    let lease = db.prepare_cached(sql)?.query_row(params![id, token, now.saturating_add(length)], |row| {
        Ok(Lease {
            experiment: row.get(0)?,
            job: row.get(1)?,
            payload: row.get(2)?,
            claims: row.get(3)?,
            token: token.cast_unsigned(),
            receipt: id.to_string(),
        })
    })?;
    Ok(Some(lease))
}

/// Extends a lease.
pub(super) fn renew(db: &Connection, lease: &Lease, ends: i64) -> Result<(), QueueError> {
    let sql = "UPDATE jobs SET ends_ms = ?3 WHERE id = ?1 AND state = 1 AND token = ?2";
    changed_one(db.prepare_cached(sql)?.execute(params![number(lease)?, token(lease), ends])?)
}

/// Gives a job back.
pub(super) fn release(db: &Connection, lease: &Lease) -> Result<(), QueueError> {
    let sql = "UPDATE jobs SET state = 0, claims = claims - 1, token = 0
        WHERE id = ?1 AND state = 1 AND token = ?2";
    changed_one(db.prepare_cached(sql)?.execute(params![number(lease)?, token(lease)])?)
}

/// Commits a result.
pub(super) fn commit(db: &Connection, lease: &Lease, result: &[u8]) -> Result<CommitResult, QueueError> {
    let job = number(lease)?;
    let sql = "UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1 AND token = ?2";
    if db.prepare_cached(sql)?.execute(params![job, token(lease)])? == 0 {
        return repeated(db, job, lease, result);
    }
    let sql = "INSERT INTO results (job, experiment, name, token, result) VALUES (?, ?, ?, ?, ?)";
    db.prepare_cached(sql)?.execute(params![job, lease.experiment, lease.job, token(lease), result])?;
    Ok(CommitResult::Committed)
}

/// Decides about the commit of a worker that does not have the job: it may be the second try of a commit that succeeded.
fn repeated(db: &Connection, job: i64, lease: &Lease, result: &[u8]) -> Result<CommitResult, QueueError> {
    let sql = "SELECT token = ?2 AND result = ?3 FROM results WHERE job = ?1";
    let mut stored = db.prepare_cached(sql)?;
    let same = stored.query_row(params![job, token(lease), result], |row| row.get(0)).optional()?;
    match same {
        Some(true) => Ok(CommitResult::Committed),
        Some(false) => Ok(CommitResult::Duplicate),
        None => Err(QueueError::LeaseLost),
    }
}

/// Returns results. Their numbers increase in the order of the transactions, so no result appears before the cursor.
pub(super) fn results(
    db: &Connection,
    experiment: &str,
    after: &Cursor,
    most: usize,
) -> Result<ResultPage, QueueError> {
    let mut last = if after.0.is_empty() { 0 } else { after.0.parse().map_err(|_| invalid(after))? };
    let sql = "SELECT id, name, result FROM results WHERE experiment = ? AND id > ? ORDER BY id LIMIT ?";
    let mut select = db.prepare_cached(sql)?;
    let mut rows = select.query(params![experiment, last, i64::try_from(most).unwrap_or(i64::MAX)])?;
    let mut results = Vec::new();
    while let Some(row) = rows.next()? {
        last = row.get::<_, i64>(0)?;
        results.push(StoredResult { job: row.get(1)?, result: row.get(2)? });
    }
    Ok(ResultPage { results, next: Cursor(last.to_string()) })
}

/// Counts jobs. Those whose lease has ended are waiting.
pub(super) fn counts(db: &Connection, experiment: &str, now: i64) -> Result<JobCounts, QueueError> {
    let count = |sql: &str| -> Result<u64, QueueError> {
        let count: i64 = db.prepare_cached(sql)?.query_row(params![experiment, now], |row| row.get(0))?;
        Ok(count.cast_unsigned())
    };
    let waiting =
        "SELECT count(*) FROM jobs INDEXED BY waiting WHERE state = 0 AND experiment = ?1 AND ?2 = ?2";
    let ended = "SELECT count(*) FROM jobs INDEXED BY claimed
        WHERE state = 1 AND experiment = ?1 AND ends_ms <= ?2";
    let claimed = "SELECT count(*) FROM jobs INDEXED BY claimed
        WHERE state = 1 AND experiment = ?1 AND ends_ms > ?2";
    let finished = "SELECT count(*) FROM results WHERE experiment = ?1 AND ?2 = ?2";
    Ok(JobCounts {
        waiting: count(waiting)? + count(ended)?,
        claimed: count(claimed)?,
        finished: count(finished)?,
    })
}

/// The tables of an experiment, and how many of their rows are removed in one transaction, so that other processes get the
/// write lock soon. Artifacts are large.
pub(super) const TABLES: [(&str, usize); 3] = [("jobs", 1000), ("results", 1000), ("artifacts", 64)];

/// Removes some rows of an experiment, and returns their number.
pub(super) fn remove_some(
    db: &Connection,
    (table, most): (&str, usize),
    experiment: &str,
) -> Result<usize, QueueError> {
    let sql = format!(
        "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE experiment = ? LIMIT {most})"
    );
    Ok(db.prepare_cached(&sql)?.execute([experiment])?)
}

fn changed_one(changed: usize) -> Result<(), QueueError> {
    if changed == 1 { Ok(()) } else { Err(QueueError::LeaseLost) }
}

/// Returns the number of the job.
fn number(lease: &Lease) -> Result<i64, QueueError> {
    lease.receipt.parse().map_err(|_| QueueError::Refused(format!("`{}` is no receipt", lease.receipt)))
}

fn token(lease: &Lease) -> i64 {
    lease.token.cast_signed()
}

fn invalid(cursor: &Cursor) -> QueueError {
    QueueError::Refused(format!("`{}` is no position in the results", cursor.0))
}
