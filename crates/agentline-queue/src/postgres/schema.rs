//! The tables.

use super::pool::SessionPool;
use crate::QueueError;

/// The version of the tables.
const VERSION: i64 = 2;

/// Returns the version of the tables; 0 if there are none.
const FIND: &str = "SELECT to_regclass('agentline.version') IS NOT NULL";
const READ: &str = "SELECT version FROM agentline.version";
const INSTANCE: &str = "SELECT nextval('agentline.instances')";

/// Creates the tables in one transaction. The lock makes others wait that do the same.
const CREATE: &str = r#"
SELECT pg_advisory_xact_lock(7021786321546899);
CREATE SCHEMA IF NOT EXISTS agentline;
CREATE SEQUENCE IF NOT EXISTS agentline.tokens;
CREATE SEQUENCE IF NOT EXISTS agentline.revisions;
CREATE SEQUENCE IF NOT EXISTS agentline.instances;
CREATE TABLE IF NOT EXISTS agentline.jobs (
    experiment text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL,
    route text COLLATE "C" NOT NULL,
    position bigserial NOT NULL,
    -- 0: waiting, 1: claimed, 2: finished
    state smallint NOT NULL DEFAULT 0,
    claims integer NOT NULL DEFAULT 0,
    -- The token of the last claim.
    token bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
    -- When the lease began or was renewed. If that is in the future, the clock of the server went back.
    leased_at timestamptz,
    payload bytea NOT NULL,
    PRIMARY KEY (experiment, job)
);
CREATE INDEX IF NOT EXISTS jobs_waiting ON agentline.jobs (experiment, route, position) WHERE state = 0;
CREATE INDEX IF NOT EXISTS jobs_claimed ON agentline.jobs (experiment, route, lease_until) WHERE state = 1;
CREATE TABLE IF NOT EXISTS agentline.results (
    experiment text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL,
    -- The transaction that committed the result.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    result bytea NOT NULL,
    PRIMARY KEY (experiment, job)
);
CREATE UNIQUE INDEX IF NOT EXISTS results_committed ON agentline.results (experiment, xid, job);
CREATE TABLE IF NOT EXISTS agentline.records (
    name text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL,
    revision bigint NOT NULL,
    -- The request that wrote the value.
    request text NOT NULL,
    updated timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS agentline.artifacts (
    experiment text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (experiment, name)
);
ALTER TABLE agentline.artifacts ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS agentline.version (version bigint NOT NULL);
INSERT INTO agentline.version SELECT 2 WHERE NOT EXISTS (SELECT FROM agentline.version);
"#;

/// Creates the tables if necessary, and returns a number that no other process gets. A user who may not create anything
/// can use tables that exist.
pub(super) async fn prepare(pool: &SessionPool) -> Result<i64, QueueError> {
    let found: bool = pool.query(FIND, &[]).await?.first().is_some_and(|row| row.get(0));
    if !found {
        pool.batch(CREATE).await?;
    }
    let version: i64 = pool.query(READ, &[]).await?.first().map_or(0, |row| row.get(0));
    if version != VERSION {
        let reason = format!("its tables have version {version}; this agentline needs {VERSION}");
        return Err(QueueError::Refused(reason));
    }
    Ok(pool.query(INSTANCE, &[]).await?.first().map_or(0, |row| row.get(0)))
}
