//! A queue in a SQLite database, for the workers of one machine.
//!
//! Several processes share the file. Every change is a transaction that begins with the write lock, so each sees the
//! changes of all earlier ones.

mod artifacts;
mod database;
mod jobs;
mod records;
mod requests;
#[cfg(test)]
mod tests;
mod thread;
mod watch;

use crate::{
    Artifacts, Clock, CommitResult, Cursor, Job, JobCounts, JobRoute, Lease, Queue, QueueError, QueueFuture,
    QueueRecord, ResultPage, SystemClock, check_name, check_part, untrusted,
};
use database::boot_id;
use requests::RequestSender;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use watch::Watch;

/// A queue in a SQLite database.
#[derive(Clone, Debug)]
pub struct SqliteQueue {
    database: RequestSender,
    watch: Arc<Watch>,
    clock: Arc<dyn Clock>,
    /// Whether the last claim found no job.
    is_idle: Arc<AtomicBool>,
}

impl SqliteQueue {
    /// Opens the queue in a file, and creates it if necessary.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if it is something else than a queue.
    pub async fn open(path: &Path) -> Result<Self, QueueError> {
        Self::open_with(path, Arc::new(SystemClock), &boot_id()).await
    }

    /// Opens the queue in a file with a clock, which must be the same in all processes, and which started when `boot`
    /// began. Leases of other boots have ended.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if it is something else than a queue.
    pub async fn open_with(path: &Path, clock: Arc<dyn Clock>, boot: &str) -> Result<Self, QueueError> {
        let (path, boot, now) = (path.to_owned(), boot.to_owned(), clock.now());
        let open = move || {
            let database = database::open(&path, &boot, millis(now))?;
            Ok((RequestSender::start(database)?, Arc::new(Watch::open(&path)?)))
        };
        let (database, watch) = database::blocking(open).await?;
        Ok(Self { database, watch, clock, is_idle: Arc::default() })
    }

    fn now(&self) -> i64 {
        millis(self.clock.now())
    }
}

/// Returns a time in milliseconds, as it is stored.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Queue for SqliteQueue {
    fn enqueue<'a>(&'a self, experiment: &'a str, jobs: &'a [Job]) -> QueueFuture<'a, u64> {
        Box::pin(async move {
            check_part(experiment)?;
            for job in jobs {
                check_part(&job.id)?;
                check_part(&job.route)?;
            }
            let (experiment, jobs) = (experiment.to_owned(), jobs.to_vec());
            let size = jobs.iter().map(|job| job.payload.len()).sum();
            self.database.write_values(size, move |db| jobs::enqueue(db, &experiment, &jobs)).await
        })
    }

    fn claim<'a>(&'a self, routes: &'a [JobRoute], lease: Duration) -> QueueFuture<'a, Option<Lease>> {
        Box::pin(async move {
            let (routes, clock) = (routes.to_vec(), self.clock.clone());
            // Idle workers ask often, so they do not take the write lock.
            if self.is_idle.load(Ordering::Relaxed) {
                let (routes, clock) = (routes.clone(), clock.clone());
                let found =
                    self.database.read(move |db| jobs::find(db, &routes, millis(clock.now()))).await?;
                if found.is_none() {
                    return Ok(None);
                }
            }
            // The lease begins after a wait for the lock.
            let claim = move |db: &_| jobs::claim(db, &routes, millis(clock.now()), millis(lease));
            let claimed = self.database.write(claim).await?;
            self.is_idle.store(claimed.is_none(), Ordering::Relaxed);
            Ok(untrusted::valid_lease(claimed))
        })
    }

    fn renew<'a>(&'a self, lease: &'a mut Lease, time: Duration) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            let (lease, clock) = (lease.clone(), self.clock.clone());
            let renew =
                move |db: &_| jobs::renew(db, &lease, millis(clock.now()).saturating_add(millis(time)));
            self.database.write(renew).await
        })
    }

    fn commit<'a>(&'a self, lease: &'a Lease, result: &'a [u8]) -> QueueFuture<'a, CommitResult> {
        Box::pin(async move {
            let (lease, result) = (lease.clone(), result.to_vec());
            self.database.write_values(result.len(), move |db| jobs::commit(db, &lease, &result)).await
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            let lease = lease.clone();
            self.database.write(move |db| jobs::release(db, &lease)).await
        })
    }

    fn results<'a>(
        &'a self,
        experiment: &'a str,
        after: &'a Cursor,
        most: usize,
    ) -> QueueFuture<'a, ResultPage> {
        Box::pin(async move {
            check_part(experiment)?;
            untrusted::valid_results(after, |after| {
                let experiment = experiment.to_owned();
                self.database.read(move |db| jobs::results(db, &experiment, &after, most))
            })
            .await
        })
    }

    fn counts<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, JobCounts> {
        Box::pin(async move {
            check_part(experiment)?;
            let (experiment, now) = (experiment.to_owned(), self.now());
            self.database.read(move |db| jobs::counts(db, &experiment, now)).await
        })
    }

    fn wait(&self, time: Duration) -> QueueFuture<'_, ()> {
        Box::pin(watch::wait(&self.watch, &self.clock, time))
    }

    fn record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, Option<QueueRecord>> {
        Box::pin(async move {
            check_name(name)?;
            let name = name.to_owned();
            self.database.read(move |db| records::get(db, &name)).await
        })
    }

    fn records<'a>(&'a self, prefix: &'a str) -> QueueFuture<'a, Vec<QueueRecord>> {
        Box::pin(async move {
            check_name(prefix)?;
            let prefix = prefix.to_owned();
            Ok(untrusted::valid_records(self.database.read(move |db| records::list(db, &prefix)).await?))
        })
    }

    fn write_record<'a>(&'a self, name: &'a str, value: &'a [u8], revision: u64) -> QueueFuture<'a, u64> {
        Box::pin(async move {
            check_name(name)?;
            let (name, value, size) = (name.to_owned(), value.to_vec(), value.len());
            let write = move |db: &_| records::write(db, &name, &value, revision);
            self.database.write_values(size, write).await
        })
    }

    fn remove_record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            check_name(name)?;
            let name = name.to_owned();
            self.database.write(move |db| records::remove(db, &name)).await
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            check_part(experiment)?;
            for table in jobs::TABLES {
                let remove = || {
                    let experiment = experiment.to_owned();
                    self.database.write(move |db| jobs::remove_some(db, table, &experiment))
                };
                while remove().await? > 0 {}
            }
            Ok(())
        })
    }

    fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::new(artifacts::SqliteArtifacts::new(self.database.clone()))
    }
}
