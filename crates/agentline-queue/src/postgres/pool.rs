//! A few connections that all requests share. They are opened when they are needed, and again when they are lost.

use super::failure::{classify, is_collision};
use super::session::{DatabaseServer, DatabaseSession};
use crate::QueueError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of a request with much data.
const BULK_TIMEOUT: Duration = Duration::from_secs(60);

/// When an additional connection is closed that was not used.
const IDLE: Duration = Duration::from_secs(30);

/// The pause after an attempt to open a connection that failed. A server that starts needs its time for itself.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How often a statement is repeated that was rolled back because of others.
const REPEATS: usize = 10;

/// A parameter of a statement.
pub(super) type SqlParameter<'a> = &'a (dyn ToSql + Sync);

/// Connections to one server.
#[derive(Debug)]
pub(super) struct SessionPool {
    server: Arc<DatabaseServer>,
    most: usize,
    sessions: Mutex<Vec<Arc<DatabaseSession>>>,
    /// Held while a connection is opened. Has the last failure and its time.
    opening: tokio::sync::Mutex<Option<(Instant, String)>>,
}

impl SessionPool {
    /// Creates a pool of at most `most` connections.
    pub(super) fn new(server: Arc<DatabaseServer>, most: usize) -> Self {
        Self { server, most, sessions: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Executes a statement, and returns its rows.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        parameters: &[SqlParameter<'_>],
    ) -> Result<Vec<Row>, QueueError> {
        self.query_within(TIMEOUT, sql, parameters).await
    }

    /// Executes a statement that may take long, and returns its rows.
    pub(super) async fn query_bulk(
        &self,
        sql: &'static str,
        parameters: &[SqlParameter<'_>],
    ) -> Result<Vec<Row>, QueueError> {
        self.query_within(BULK_TIMEOUT, sql, parameters).await
    }

    /// Executes a statement on one of the connections, or several of the pool's own.
    async fn query_within(
        &self,
        limit: Duration,
        sql: &'static str,
        parameters: &[SqlParameter<'_>],
    ) -> Result<Vec<Row>, QueueError> {
        let deadline = tokio::time::Instant::now() + limit;
        let opened = tokio::time::timeout(TIMEOUT, self.session()).await;
        let session = opened.map_err(|_| timed_out(TIMEOUT))??;
        for _ in 0..REPEATS {
            let answer = tokio::time::timeout_at(deadline, execute(&session, sql, parameters)).await;
            match answer {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_collision(&error) => {}
                Ok(Err(error)) => return Err(classify(&error)),
                Err(_) => {
                    // The server may not answer later requests on this connection either.
                    self.forget(&session);
                    return Err(timed_out(limit));
                }
            }
        }
        Err(QueueError::Unavailable("other requests changed the same rows".to_owned()))
    }

    /// Executes a text of several statements in one transaction.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), QueueError> {
        let run = async {
            let session = self.session().await?;
            let done = session.client.batch_execute(sql).await;
            done.map_err(|error| classify(&error))
        };
        tokio::time::timeout(BULK_TIMEOUT, run).await.map_err(|_| timed_out(BULK_TIMEOUT))?
    }

    /// Receives notifications on one of the connections.
    pub(super) async fn listen(&self) -> Result<(), QueueError> {
        if self.live().iter().any(|session| session.listens()) {
            return Ok(());
        }
        let session = self.session().await?;
        if session.listens() { Ok(()) } else { session.listen().await }
    }

    /// Returns the connection with the fewest requests, and opens one if all are in use.
    async fn session(&self) -> Result<Arc<DatabaseSession>, QueueError> {
        let asked_at = Instant::now();
        if let Some(session) = self.choose() {
            return Ok(session);
        }
        // Only the first connection is worth waiting for.
        let mut failure = match self.opening.try_lock() {
            Ok(failure) => failure,
            Err(_) => match self.least_used() {
                Some(session) => return Ok(session),
                None => self.opening.lock().await,
            },
        };
        if let Some(session) = self.choose() {
            return Ok(session);
        }
        if let Some((_, text)) = failure.as_ref().filter(|(failed_at, _)| *failed_at >= asked_at) {
            return Err(QueueError::Unavailable(text.clone()));
        }
        if let Some((failed_at, _)) = *failure {
            tokio::time::sleep_until((failed_at + PAUSE_AFTER_FAILURE).into()).await;
        }
        match self.server.open().await {
            Ok(session) => {
                *failure = None;
                let session = Arc::new(session);
                self.live().push(session.clone());
                Ok(session)
            }
            // The server may have no more connections; those that exist are enough.
            Err(error) => match (self.least_used(), error) {
                (Some(session), _) => Ok(session),
                (None, QueueError::Unavailable(text)) => {
                    *failure = Some((Instant::now(), text.clone()));
                    Err(QueueError::Unavailable(text))
                }
                (None, error) => Err(error),
            },
        }
    }

    /// Returns a connection that is not in use, or any if there cannot be more.
    fn choose(&self) -> Option<Arc<DatabaseSession>> {
        let is_full = self.live().len() >= self.most;
        self.least_used().filter(|session| is_full || Arc::strong_count(session) <= IDLE_COUNT)
    }

    fn least_used(&self) -> Option<Arc<DatabaseSession>> {
        let sessions = self.live();
        let session = sessions.iter().min_by_key(|session| Arc::strong_count(session))?.clone();
        session.mark_used();
        Some(session)
    }

    fn forget(&self, session: &Arc<DatabaseSession>) {
        self.live().retain(|other| !Arc::ptr_eq(other, session));
    }

    /// Returns the connections, without those that ended, and closes additional ones that were not used.
    fn live(&self) -> MutexGuard<'_, Vec<Arc<DatabaseSession>>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| !session.client.is_closed());
        if let Some(newest) = sessions.iter().map(|session| session.used_at()).max() {
            let is_needed = |session: &Arc<DatabaseSession>| {
                session.listens() || Arc::strong_count(session) > 1 || session.used_at() + IDLE >= newest
            };
            sessions.retain(is_needed);
        }
        sessions
    }
}

/// The references to a connection that only this request uses: that of the pool and that of the request.
const IDLE_COUNT: usize = 2;

async fn execute(
    session: &DatabaseSession,
    sql: &'static str,
    parameters: &[SqlParameter<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let statement = session.prepare(sql).await?;
    session.client.query(&statement, parameters).await
}

fn timed_out(limit: Duration) -> QueueError {
    QueueError::Unavailable(format!("no answer within {} s", limit.as_secs()))
}
