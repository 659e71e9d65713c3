//! The interface of a queue.

use crate::{Artifacts, QueueError};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The future of a request to a queue.
pub type QueueFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, QueueError>> + Send + 'a>>;

/// A job: what one worker does once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name, unique in its experiment.
    pub id: String,
    /// The route: jobs of one route need the same kind of worker.
    pub route: String,
    /// What to do.
    pub payload: Vec<u8>,
}

/// A route of an experiment that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobRoute {
    /// The experiment.
    pub experiment: String,
    /// The route.
    pub route: String,
}

/// A claim of a job for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The experiment.
    pub experiment: String,
    /// The name of the job.
    pub job: String,
    /// What to do.
    pub payload: Vec<u8>,
    /// How often the job has been claimed, with this claim. Claims that were released do not count.
    pub claims: u32,
    /// The fencing token: a later claim of the same job has a larger one. Renewing a lease may change it.
    pub token: u64,
    /// What the queue needs to know about the claim.
    pub receipt: String,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// The result is stored.
    Committed,
    /// The job already has a result, which stays.
    Duplicate,
}

/// A position in the results of an experiment. The default is before the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cursor(pub String);

/// A committed result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResult {
    /// The name of the job.
    pub job: String,
    /// The result.
    pub result: Vec<u8>,
}

/// Results of an experiment in the order in which they can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultPage {
    /// The results, each in exactly one page.
    pub results: Vec<StoredResult>,
    /// Where the next page begins.
    pub next: Cursor,
}

/// The number of jobs of an experiment by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct JobCounts {
    /// Jobs that can be claimed.
    pub waiting: u64,
    /// Jobs that are claimed.
    pub claimed: u64,
    /// Jobs with a result.
    pub finished: u64,
}

/// A small value with a name. Writers use its revision so that none overwrites the value of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Vec<u8>,
    /// Increases with every change.
    pub revision: u64,
    /// How long ago it was written, by the clock of the server. Known if it was read with [`Queue::records`] from a queue
    /// that machines share.
    pub age: Option<Duration>,
}

/// A queue of jobs with their results, and records and artifacts beside them.
///
/// Requests that fail with [`QueueError::Unavailable`] can be repeated: enqueueing, committing and writing the same value
/// twice has the effect of doing it once.
pub trait Queue: Debug + Send + Sync {
    /// Adds jobs to an experiment, in their order. A job whose name the experiment has already had is left as it is.
    /// Returns the number of new jobs.
    fn enqueue<'a>(&'a self, experiment: &'a str, jobs: &'a [Job]) -> QueueFuture<'a, u64>;

    /// Claims one job of one of these routes for the time of a lease: one whose lease has ended, or else one that
    /// no worker has claimed, the oldest first. Does not wait: `None` if there is none.
    fn claim<'a>(&'a self, routes: &'a [JobRoute], lease: Duration) -> QueueFuture<'a, Option<Lease>>;

    /// Extends a lease, from now.
    ///
    /// Fails with [`QueueError::LeaseLost`] if another worker has claimed the job since, or if it has a result.
    fn renew<'a>(&'a self, lease: &'a mut Lease, time: Duration) -> QueueFuture<'a, ()>;

    /// Commits the result of a job and ends the lease.
    ///
    /// Fails with [`QueueError::LeaseLost`] if another worker has claimed the job since and has not committed a result.
    fn commit<'a>(&'a self, lease: &'a Lease, result: &'a [u8]) -> QueueFuture<'a, CommitResult>;

    /// Gives a job back, so that it can be claimed at once. The claim does not count.
    ///
    /// Fails with [`QueueError::LeaseLost`] if another worker has claimed the job since.
    fn release<'a>(&'a self, lease: &'a Lease) -> QueueFuture<'a, ()>;

    /// Returns at most `most` results of an experiment after a position. An empty page means that there is none yet.
    fn results<'a>(
        &'a self,
        experiment: &'a str,
        after: &'a Cursor,
        most: usize,
    ) -> QueueFuture<'a, ResultPage>;

    /// Returns the number of jobs of an experiment by their state.
    fn counts<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, JobCounts>;

    /// Waits until a job may have become claimable, a result was committed or a record changed, at most for `time`. May
    /// return early.
    fn wait(&self, time: Duration) -> QueueFuture<'_, ()>;

    /// Returns a record; `None` if there is none with this name.
    fn record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, Option<QueueRecord>>;

    /// Returns the records whose names begin with `prefix` and a `.`, in the order of their names.
    fn records<'a>(&'a self, prefix: &'a str) -> QueueFuture<'a, Vec<QueueRecord>>;

    /// Writes a record, and returns its new revision. `revision` is that of the record which is replaced; 0 for a new one.
    ///
    /// Fails with [`QueueError::Conflict`] if the record has another revision.
    fn write_record<'a>(&'a self, name: &'a str, value: &'a [u8], revision: u64) -> QueueFuture<'a, u64>;

    /// Removes a record, if it is there.
    fn remove_record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, ()>;

    /// Removes all jobs, results and artifacts of an experiment. Records stay.
    fn remove<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, ()>;

    /// Returns where artifacts are stored.
    fn artifacts(&self) -> Arc<dyn Artifacts>;
}
