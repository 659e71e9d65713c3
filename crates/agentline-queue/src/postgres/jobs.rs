//! The statements about jobs and their results.

use super::pool::SessionPool;
use crate::{CommitResult, Cursor, Job, JobCounts, JobRoute, Lease, QueueError, ResultPage, StoredResult};
use std::time::{Duration, Instant};
use tokio_postgres::Row;

/// How long a page of results waits for transactions that began before those results were committed.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The pause before results are read again.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// The largest number of jobs of one statement.
const CHUNK: usize = 1000;

/// The size of payloads after which a statement ends.
const CHUNK_BYTES: usize = 4 << 20;

const ENQUEUE: &str = "
WITH added AS (
    INSERT INTO agentline.jobs (experiment, job, route, payload)
    SELECT $1, job, route, payload
    FROM unnest($2::text[], $3::text[], $4::bytea[]) WITH ORDINALITY AS new (job, route, payload, number)
    ORDER BY number
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT count(*), CASE WHEN count(*) > 0 THEN pg_notify('agentline', '')::text END FROM added";

/// Claims one job. The first row ends the search, so no other row is locked: one whose lease has ended, which does not wait
/// behind all others, or else the oldest one of a route, in the order of their oldest jobs. A lease that began in the future
/// has ended: the clock of the server went back, and the lease would last longer by as much.
const CLAIM: &str = "
UPDATE agentline.jobs
SET state = 1, token = nextval('agentline.tokens'), claims = claims + 1,
    leased_at = statement_timestamp(), lease_until = statement_timestamp() + make_interval(secs => $3)
WHERE (experiment, job) = (
    SELECT expired.experiment, expired.job
    FROM unnest($1::text[], $2::text[]) AS served (experiment, route) CROSS JOIN LATERAL (
        SELECT experiment, job FROM agentline.jobs
        WHERE experiment = served.experiment COLLATE \"C\" AND route = served.route COLLATE \"C\" AND state = 1
            AND (lease_until <= statement_timestamp() OR leased_at > clock_timestamp())
        ORDER BY lease_until LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS expired
    UNION ALL
    SELECT waiting.experiment, waiting.job
    FROM (
        SELECT experiment COLLATE \"C\" AS experiment, route COLLATE \"C\" AS route
        FROM unnest($1::text[], $2::text[]) AS served (experiment, route)
        ORDER BY (
            SELECT position FROM agentline.jobs
            WHERE experiment = served.experiment COLLATE \"C\" AND route = served.route COLLATE \"C\" AND state = 0
            ORDER BY position LIMIT 1
        )
    ) AS heads CROSS JOIN LATERAL (
        SELECT experiment, job FROM agentline.jobs
        WHERE experiment = heads.experiment AND route = heads.route AND state = 0
        ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS waiting
    LIMIT 1
)
RETURNING experiment, job, payload, claims, token";

const RENEW: &str = "
UPDATE agentline.jobs
SET leased_at = statement_timestamp(), lease_until = statement_timestamp() + make_interval(secs => $4)
WHERE experiment = $1 AND job = $2 AND token = $3 AND state = 1
RETURNING 1";

/// A finished job no longer needs its payload.
const COMMIT: &str = "
WITH finished AS (
    UPDATE agentline.jobs SET state = 2, lease_until = NULL, payload = ''
    WHERE experiment = $1 AND job = $2 AND token = $3 AND state = 1
    RETURNING experiment, job
)
INSERT INTO agentline.results (experiment, job, result) SELECT experiment, job, $4 FROM finished
RETURNING 1";

/// Returns whether the result of a job came from a claim and has a value.
const COMMITTED: &str = "
SELECT token = $3 AND result = $4
FROM agentline.results JOIN agentline.jobs USING (experiment, job)
WHERE results.experiment = $1 AND results.job = $2";

const RELEASE: &str = "
WITH released AS (
    UPDATE agentline.jobs SET state = 0, claims = claims - 1, lease_until = NULL
    WHERE experiment = $1 AND job = $2 AND token = $3 AND state = 1
    RETURNING 1
)
SELECT pg_notify('agentline', '')::text FROM released";

/// Returns a row if a job was released by a claim and not claimed since.
const RELEASED: &str = "
SELECT 1 FROM agentline.jobs WHERE experiment = $1 AND job = $2 AND token = $3 AND state = 0";

/// The order is that of the columns of the table: a name without the table would mean the text that is returned.
const RESULTS: &str = "
SELECT xid::text AS position, job, result FROM agentline.results
WHERE experiment = $1 AND (xid, job) > ($2::text::xid8, $3)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY results.xid, results.job LIMIT $4";

/// Returns a row if there are results after a position, including those that cannot be read yet.
const HAS_RESULTS: &str = "
SELECT 1 FROM agentline.results WHERE experiment = $1 AND (xid, job) > ($2::text::xid8, $3) LIMIT 1";

const COUNTS: &str = "
SELECT count(*) FILTER (WHERE state = 0 OR (state = 1 AND has_ended)),
    count(*) FILTER (WHERE state = 1 AND NOT has_ended),
    count(*) FILTER (WHERE state = 2)
FROM (
    SELECT state, lease_until <= statement_timestamp() OR leased_at > clock_timestamp() AS has_ended
    FROM agentline.jobs WHERE experiment = $1
) AS jobs";

/// Remove some rows of an experiment after a name, because a statement has a time limit. Workers that still have a job
/// cannot commit it once it is removed, so the jobs are first. Artifacts are large.
const REMOVE: [&str; 3] = [
    "
WITH chosen AS (SELECT job FROM agentline.jobs WHERE experiment = $1 AND job > $2 ORDER BY job LIMIT 1000)
DELETE FROM agentline.jobs WHERE experiment = $1 AND job IN (SELECT job FROM chosen) RETURNING job",
    "
WITH chosen AS (SELECT job FROM agentline.results WHERE experiment = $1 AND job > $2 ORDER BY job LIMIT 1000)
DELETE FROM agentline.results WHERE experiment = $1 AND job IN (SELECT job FROM chosen) RETURNING job",
    "
WITH chosen AS (SELECT name FROM agentline.artifacts WHERE experiment = $1 AND name > $2 ORDER BY name LIMIT 64)
DELETE FROM agentline.artifacts WHERE experiment = $1 AND name IN (SELECT name FROM chosen) RETURNING name",
];

/// Adds jobs.
pub(super) async fn enqueue(pool: &SessionPool, experiment: &str, jobs: &[Job]) -> Result<u64, QueueError> {
    let mut added = 0;
    let mut rest = jobs;
    while !rest.is_empty() {
        let (chunk, others) = rest.split_at(chunk_length(rest));
        let ids: Vec<&str> = chunk.iter().map(|job| job.id.as_str()).collect();
        let routes: Vec<&str> = chunk.iter().map(|job| job.route.as_str()).collect();
        let payloads: Vec<&[u8]> = chunk.iter().map(|job| job.payload.as_slice()).collect();
        let rows = pool.query_bulk(ENQUEUE, &[&experiment, &ids, &routes, &payloads]).await?;
        added += rows.first().map_or(0, |row| row.get::<_, i64>(0)).cast_unsigned();
        rest = others;
    }
    Ok(added)
}

/// Returns how many of the next jobs are sent together.
fn chunk_length(jobs: &[Job]) -> usize {
    let mut size = 0;
    let fits = |job: &&Job| {
        size += job.payload.len();
        size <= CHUNK_BYTES
    };
    jobs.iter().take(CHUNK).take_while(fits).count().max(1)
}

/// Claims a job.
pub(super) async fn claim(
    pool: &SessionPool,
    routes: &[JobRoute],
    lease: Duration,
) -> Result<Option<Lease>, QueueError> {
    if routes.is_empty() {
        return Ok(None);
    }
    let experiments: Vec<&str> = routes.iter().map(|route| route.experiment.as_str()).collect();
    let names: Vec<&str> = routes.iter().map(|route| route.route.as_str()).collect();
    let rows = pool.query(CLAIM, &[&experiments, &names, &lease.as_secs_f64()]).await?;
    Ok(rows.first().map(|row| Lease {
        experiment: row.get(0),
        job: row.get(1),
        payload: row.get(2),
        claims: row.get::<_, i32>(3).cast_unsigned(),
        token: row.get::<_, i64>(4).cast_unsigned(),
        receipt: String::new(),
    }))
}

/// Extends a lease.
pub(super) async fn renew(pool: &SessionPool, lease: &Lease, time: Duration) -> Result<(), QueueError> {
    let (token, seconds) = (token(lease), time.as_secs_f64());
    let rows = pool.query(RENEW, &[&lease.experiment, &lease.job, &token, &seconds]).await?;
    if rows.is_empty() { Err(QueueError::LeaseLost) } else { Ok(()) }
}

/// Commits a result.
pub(super) async fn commit(
    pool: &SessionPool,
    lease: &Lease,
    result: &[u8],
) -> Result<CommitResult, QueueError> {
    let token = token(lease);
    if !pool.query(COMMIT, &[&lease.experiment, &lease.job, &token, &result]).await?.is_empty() {
        return Ok(CommitResult::Committed);
    }
    // This may be the second try of a commit that succeeded.
    let rows = pool.query(COMMITTED, &[&lease.experiment, &lease.job, &token, &result]).await?;
    match rows.first().map(|row| row.get(0)) {
        Some(true) => Ok(CommitResult::Committed),
        Some(false) => Ok(CommitResult::Duplicate),
        None => Err(QueueError::LeaseLost),
    }
}

/// Gives a job back.
pub(super) async fn release(pool: &SessionPool, lease: &Lease) -> Result<(), QueueError> {
    let token = token(lease);
    for sql in [RELEASE, RELEASED] {
        if !pool.query(sql, &[&lease.experiment, &lease.job, &token]).await?.is_empty() {
            return Ok(());
        }
    }
    Err(QueueError::LeaseLost)
}

/// Returns results in the order of the numbers of their transactions. Only those are read below which no transaction can
/// commit any more, so this waits for a moment if there are others.
pub(super) async fn results(
    pool: &SessionPool,
    experiment: &str,
    after: &Cursor,
    most: usize,
) -> Result<ResultPage, QueueError> {
    let invalid = || QueueError::Refused(format!("`{}` is no position in the results", after.0));
    let start = if after.0.is_empty() { "0:" } else { after.0.as_str() };
    let (xid, job) = start.split_once(':').ok_or_else(invalid)?;
    xid.parse::<u64>().map_err(|_| invalid())?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let until = Instant::now() + SETTLE_TIME;
    loop {
        let rows = pool.query_bulk(RESULTS, &[&experiment, &xid, &job, &most]).await?;
        if rows.is_empty()
            && Instant::now() < until
            && !pool.query_bulk(HAS_RESULTS, &[&experiment, &xid, &job]).await?.is_empty()
        {
            tokio::time::sleep(SETTLE_PAUSE).await;
            continue;
        }
        let position = |row: &Row| Cursor(format!("{}:{}", row.get::<_, &str>(0), row.get::<_, &str>(1)));
        let next = rows.last().map_or_else(|| after.clone(), position);
        let results = rows.iter().map(|row| StoredResult { job: row.get(1), result: row.get(2) }).collect();
        return Ok(ResultPage { results, next });
    }
}

/// Counts jobs. Those whose lease has ended are waiting.
pub(super) async fn counts(pool: &SessionPool, experiment: &str) -> Result<JobCounts, QueueError> {
    let rows = pool.query_bulk(COUNTS, &[&experiment]).await?;
    let count = |column| rows.first().map_or(0, |row| row.get::<_, i64>(column)).cast_unsigned();
    Ok(JobCounts { waiting: count(0), claimed: count(1), finished: count(2) })
}

/// Removes jobs, results and artifacts.
pub(super) async fn remove(pool: &SessionPool, experiment: &str) -> Result<(), QueueError> {
    for sql in REMOVE {
        let mut last = String::new();
        loop {
            let rows = pool.query_bulk(sql, &[&experiment, &last]).await?;
            match rows.iter().map(|row| row.get::<_, &str>(0)).max() {
                Some(name) => last = name.to_owned(),
                // What was added meanwhile may have any name.
                None if !last.is_empty() => last.clear(),
                None => break,
            }
        }
    }
    Ok(())
}

fn token(lease: &Lease) -> i64 {
    lease.token.cast_signed()
}
