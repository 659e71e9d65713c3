//! A queue in a PostgreSQL database.
//!
//! Every request is one statement, and so one transaction. A claim has a token from a sequence, and every later statement
//! about the claim compares it. The clock of the server decides when a lease ends.
//!
//! A result becomes readable when all transactions that began to write before it have ended. This keeps the order of
//! results stable, but a transaction that stays open delays them, whichever database of the server it belongs to.
//!
//! Connections keep a state (prepared statements and `LISTEN`), so a proxy between them and the server must not share
//! them between clients.

mod address;
mod artifacts;
mod failure;
mod jobs;
mod pool;
mod records;
mod schema;
mod session;

use crate::{
    Artifacts, CommitResult, ConnectOptions, Cursor, Job, JobCounts, JobRoute, Lease, Queue, QueueError,
    QueueFuture, QueueRecord, ResultPage, check_name, check_part, untrusted,
};
use address::ServerAddress;
use artifacts::PostgresArtifacts;
use pool::SessionPool;
use records::PendingWrites;
use session::DatabaseServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The longest wait. The end of a lease and the commit of a result are not announced, so callers look this often.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The number of connections for jobs and records.
const CONNECTIONS: usize = 4;

/// The number of connections for large requests, so that these do not delay the others.
const BULK_CONNECTIONS: usize = 2;

/// A queue in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresQueue {
    /// The connections for jobs and records.
    pool: SessionPool,
    /// The connections for large requests.
    bulk: Arc<SessionPool>,
    /// The number of notifications so far.
    changes: watch::Receiver<u64>,
    /// The number of notifications when the last wait ended.
    seen: AtomicU64,
    writes: PendingWrites,
}

impl PostgresQueue {
    /// Connects to a database, and creates the tables if necessary.
    ///
    /// The address may have the parameters of libpq. `sslmode` is `disable`, `prefer`, `require`, `verify-ca` or
    /// `verify-full`; if there is TLS, the certificate and the name of the server are verified in every mode. The
    /// default is `require`, and `disable` for this machine.
    ///
    /// # Errors
    /// Fails if the address is invalid, if the connection would be unencrypted and that is not allowed, if the server
    /// is too old, or if it cannot be reached or refuses the connection.
    pub async fn connect(address: &str, options: &ConnectOptions) -> Result<Self, QueueError> {
        let (announce, changes) = watch::channel(0);
        let server = Arc::new(DatabaseServer::new(ServerAddress::parse(address, options)?, announce));
        let pool = SessionPool::new(server.clone(), CONNECTIONS);
        let instance = schema::prepare(&pool).await?;
        Ok(Self {
            pool,
            bulk: Arc::new(SessionPool::new(server, BULK_CONNECTIONS)),
            changes,
            seen: AtomicU64::new(0),
            writes: PendingWrites::new(instance),
        })
    }
}

impl Queue for PostgresQueue {
    fn enqueue<'a>(&'a self, experiment: &'a str, jobs: &'a [Job]) -> QueueFuture<'a, u64> {
        Box::pin(async move {
            check_part(experiment)?;
            for job in jobs {
                check_part(&job.id)?;
                check_part(&job.route)?;
            }
            jobs::enqueue(&self.bulk, experiment, jobs).await
        })
    }

    fn claim<'a>(&'a self, routes: &'a [JobRoute], lease: Duration) -> QueueFuture<'a, Option<Lease>> {
        Box::pin(async move {
            for route in routes {
                check_part(&route.experiment)?;
                check_part(&route.route)?;
            }
            Ok(untrusted::valid_lease(jobs::claim(&self.pool, routes, lease).await?))
        })
    }

    fn renew<'a>(&'a self, lease: &'a mut Lease, time: Duration) -> QueueFuture<'a, ()> {
        Box::pin(jobs::renew(&self.pool, lease, time))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, result: &'a [u8]) -> QueueFuture<'a, CommitResult> {
        Box::pin(jobs::commit(&self.pool, lease, result))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> QueueFuture<'a, ()> {
        Box::pin(jobs::release(&self.pool, lease))
    }

    fn results<'a>(
        &'a self,
        experiment: &'a str,
        after: &'a Cursor,
        most: usize,
    ) -> QueueFuture<'a, ResultPage> {
        Box::pin(async move {
            check_part(experiment)?;
            untrusted::valid_results(after, move |after| async move {
                jobs::results(&self.bulk, experiment, &after, most).await
            })
            .await
        })
    }

    fn counts<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, JobCounts> {
        Box::pin(async move {
            check_part(experiment)?;
            jobs::counts(&self.bulk, experiment).await
        })
    }

    fn wait(&self, time: Duration) -> QueueFuture<'_, ()> {
        Box::pin(async move {
            let time = time.min(LONGEST_WAIT);
            let mut changes = self.changes.clone();
            let changed = async {
                // Without a connection, this only waits: the next request of the caller reports the failure.
                if self.pool.listen().await.is_err() {
                    return std::future::pending().await;
                }
                // A change since the last wait ended may be one that the caller has not seen.
                let seen = self.seen.load(Ordering::Relaxed);
                let _ = changes.wait_for(|count| *count != seen).await;
            };
            let _ = tokio::time::timeout(time, changed).await;
            self.seen.store(*self.changes.borrow(), Ordering::Relaxed);
            Ok(())
        })
    }

    fn record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, Option<QueueRecord>> {
        Box::pin(async move {
            check_name(name)?;
            records::get(&self.pool, name).await
        })
    }

    fn records<'a>(&'a self, prefix: &'a str) -> QueueFuture<'a, Vec<QueueRecord>> {
        Box::pin(async move {
            check_name(prefix)?;
            Ok(untrusted::valid_records(records::list(&self.pool, prefix).await?))
        })
    }

    fn write_record<'a>(&'a self, name: &'a str, value: &'a [u8], revision: u64) -> QueueFuture<'a, u64> {
        Box::pin(async move {
            check_name(name)?;
            records::write(&self.pool, &self.writes, name, value, revision).await
        })
    }

    fn remove_record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            check_name(name)?;
            records::remove(&self.pool, name).await
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            check_part(experiment)?;
            jobs::remove(&self.bulk, experiment).await
        })
    }

    fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::new(PostgresArtifacts::new(self.bulk.clone()))
    }
}
