//! A queue in NATS JetStream.
//!
//! Each experiment has three streams: its jobs, its leases and its results. A message of a stream can be published with
//! the sequence of the message that it replaces, so the sequence of a lease is its fencing token, and a job has one
//! result at most. An acknowledgement is no fence (the server accepts that of a stale worker), so a job is acknowledged
//! only after it has a result.

mod artifacts;
mod claims;
mod connection;
mod leases;
mod records;
mod requests;
mod results;
mod streams;
mod version;

use crate::{
    Artifacts, CommitResult, ConnectOptions, Cursor, Job, JobCounts, JobRoute, Lease, Queue, QueueError,
    QueueFuture, QueueRecord, ResultPage, check_part, untrusted,
};
use artifacts::NatsArtifacts;
use futures_util::StreamExt;
use records::PendingWrite;
use requests::{Published, Requests};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use streams::{Kind, WAKE_SUBJECT};
use tokio::sync::watch;

/// The number of requests that are sent before the first answer is awaited.
const IN_FLIGHT: usize = 512;
/// The number of bytes of payloads that are sent before the first answer is awaited.
const BYTES_IN_FLIGHT: usize = 32 << 20;

/// A queue in NATS JetStream.
#[derive(Debug)]
pub struct NatsQueue {
    requests: Requests,
    artifacts: Arc<NatsArtifacts>,
    /// Experiments whose streams exist.
    experiments: Mutex<HashSet<String>>,
    /// Consumers that exist, with the time after which they deliver a job again.
    consumers: Mutex<HashMap<JobRoute, Duration>>,
    /// Writes of records whose answers were lost, with the identifiers of the attempts.
    pending_writes: Mutex<HashMap<PendingWrite, Vec<String>>>,
    /// Counts the changes that other clients reported.
    changes: watch::Receiver<u64>,
}

impl NatsQueue {
    /// Connects to a server: `nats://HOST` or `tls://HOST`, with a port, and with a user and a password or a token if
    /// necessary.
    ///
    /// # Errors
    /// Fails if the address is invalid, or if the server cannot be reached, is too old or refuses the connection.
    pub async fn connect(address: &str, options: &ConnectOptions) -> Result<Self, QueueError> {
        let (client, ends) = connection::open(address, options).await?;
        let requests = Requests::new(client, ends);
        requests.check_jetstream().await?;
        let artifacts = Arc::new(NatsArtifacts::new(requests.clone()));
        let changes = watch_changes(&requests).await?;
        Ok(Self {
            requests,
            artifacts,
            experiments: Mutex::default(),
            consumers: Mutex::default(),
            pending_writes: Mutex::default(),
            changes,
        })
    }

    /// Creates the streams of an experiment, unless they are known to exist.
    async fn ensure_experiment(&self, experiment: &str) -> Result<(), QueueError> {
        if locked(&self.experiments).contains(experiment) {
            return Ok(());
        }
        // The stream of jobs comes last: where it exists, the others do.
        for kind in [Kind::Result, Kind::Lease, Kind::Job] {
            self.requests.create_stream(streams::of_experiment(kind, experiment)).await?;
        }
        locked(&self.experiments).insert(experiment.to_owned());
        Ok(())
    }

    fn forget(&self, experiment: &str) {
        locked(&self.experiments).remove(experiment);
        locked(&self.consumers).retain(|route, _| route.experiment != experiment);
    }

    /// Publishes jobs without awaiting each answer; `None` if the streams of the experiment have been removed.
    async fn publish_jobs(&self, experiment: &str, jobs: &[Job]) -> Result<Option<u64>, QueueError> {
        self.ensure_experiment(experiment).await?;
        let largest = jobs.iter().map(|job| job.payload.len()).max().unwrap_or(0);
        let in_flight = (BYTES_IN_FLIGHT / (largest + 1)).clamp(1, IN_FLIGHT);
        let publish = |job: &Job| {
            let subject = streams::job_subject(experiment, &job.route, &job.id);
            self.requests.clone().publish(subject, job.payload.clone(), Some(0))
        };
        // The iterator is collected lazily, so only the payloads in flight are copied.
        let mut answers = futures_util::stream::iter(jobs.iter().map(publish)).buffered(in_flight);
        let mut added = 0;
        while let Some(answer) = answers.next().await {
            match answer? {
                Published::Stored(_) => added += 1,
                Published::Mismatch => {}
                Published::NoStream => return Ok(None),
            }
        }
        Ok(Some(added))
    }

    async fn enqueue_jobs(&self, experiment: &str, jobs: &[Job]) -> Result<u64, QueueError> {
        check_part(experiment)?;
        for job in jobs {
            check_part(&job.id)?;
            check_part(&job.route)?;
            self.requests.check_size(&format!("the job `{}`", job.id), &job.payload)?;
        }
        let added = match self.publish_jobs(experiment, jobs).await? {
            Some(added) => added,
            None => {
                self.forget(experiment);
                let added = self.publish_jobs(experiment, jobs).await?;
                added.ok_or_else(|| QueueError::Unavailable("the experiment is being removed".into()))?
            }
        };
        self.requests.notify(WAKE_SUBJECT, Vec::new()).await;
        Ok(added)
    }

    async fn count(&self, experiment: &str) -> Result<JobCounts, QueueError> {
        check_part(experiment)?;
        let count = |kind| self.requests.messages(streams::name(kind, experiment));
        // Results are counted first: each has a lease, and each lease has a job.
        let finished = count(Kind::Result).await?;
        let leases = count(Kind::Lease).await?;
        let jobs = count(Kind::Job).await?;
        let claimed = self.valid_leases(experiment, leases.saturating_sub(finished)).await?;
        Ok(JobCounts { waiting: jobs.saturating_sub(finished + claimed), claimed, finished })
    }

    async fn remove_experiment(&self, experiment: &str) -> Result<(), QueueError> {
        check_part(experiment)?;
        self.forget(experiment);
        for kind in [Kind::Job, Kind::Lease, Kind::Result] {
            self.requests.delete_stream(&streams::name(kind, experiment)).await?;
        }
        self.requests.delete_stream(&streams::artifact_stream(experiment)).await?;
        let released = streams::released_subject(experiment, ">");
        self.requests.purge(streams::RECORDS, &released).await
    }
}

/// Subscribes to the changes that clients report, and counts them.
async fn watch_changes(requests: &Requests) -> Result<watch::Receiver<u64>, QueueError> {
    let mut messages = requests.subscribe(WAKE_SUBJECT).await?;
    let (count, changes) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                message = messages.next() => if message.is_none() { break },
                () = count.closed() => break,
            }
            count.send_modify(|count| *count += 1);
        }
    });
    Ok(changes)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue for NatsQueue {
    fn enqueue<'a>(&'a self, experiment: &'a str, jobs: &'a [Job]) -> QueueFuture<'a, u64> {
        Box::pin(self.enqueue_jobs(experiment, jobs))
    }

    fn claim<'a>(&'a self, routes: &'a [JobRoute], lease: Duration) -> QueueFuture<'a, Option<Lease>> {
        Box::pin(async move { Ok(untrusted::valid_lease(self.claim_job(routes, lease).await?)) })
    }

    fn renew<'a>(&'a self, lease: &'a mut Lease, time: Duration) -> QueueFuture<'a, ()> {
        Box::pin(self.renew_lease(lease, time))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, result: &'a [u8]) -> QueueFuture<'a, CommitResult> {
        Box::pin(self.commit_result(lease, result))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> QueueFuture<'a, ()> {
        Box::pin(self.release_lease(lease))
    }

    fn results<'a>(
        &'a self,
        experiment: &'a str,
        after: &'a Cursor,
        most: usize,
    ) -> QueueFuture<'a, ResultPage> {
        Box::pin(untrusted::valid_results(after, move |after| async move {
            self.read_results(experiment, &after, most).await
        }))
    }

    fn counts<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, JobCounts> {
        Box::pin(self.count(experiment))
    }

    fn wait(&self, time: Duration) -> QueueFuture<'_, ()> {
        let mut changes = self.changes.clone();
        changes.mark_unchanged();
        Box::pin(async move {
            // Whether a change was reported or the time is over makes no difference to the caller.
            let _ = tokio::time::timeout(time, changes.changed()).await;
            Ok(())
        })
    }

    fn record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, Option<QueueRecord>> {
        Box::pin(self.read_record(name))
    }

    fn records<'a>(&'a self, prefix: &'a str) -> QueueFuture<'a, Vec<QueueRecord>> {
        Box::pin(self.read_records(prefix))
    }

    fn write_record<'a>(&'a self, name: &'a str, value: &'a [u8], revision: u64) -> QueueFuture<'a, u64> {
        Box::pin(self.store_record(name, value, revision))
    }

    fn remove_record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(self.delete_record(name))
    }

    fn remove<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(self.remove_experiment(experiment))
    }

    fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::clone(&self.artifacts) as Arc<dyn Artifacts>
    }
}
