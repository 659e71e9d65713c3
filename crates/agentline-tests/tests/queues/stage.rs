//! An experiment of one row: two connections to an engine, and short forms of requests.

use agentline_queue::{Cursor, Job, JobRoute, Lease, Queue, StoredResult};
use agentline_tests::{PATIENCE, engines::Engine};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A lease that does not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(300);
/// A lease that a test waits for.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// The connections of two workers to one engine.
#[derive(Clone, Debug)]
pub(crate) struct QueueStage {
    /// The name of the row's experiment.
    pub(crate) name: String,
    /// One worker.
    pub(crate) queue: Arc<dyn Queue>,
    /// Another one.
    pub(crate) other: Arc<dyn Queue>,
}

impl QueueStage {
    /// Connects two workers.
    pub(crate) async fn connect(engine: &Engine, name: &str) -> Self {
        Self { name: name.to_owned(), queue: engine.connect().await, other: engine.connect().await }
    }

    /// Returns a route of the experiment.
    pub(crate) fn route(&self, route: &str) -> JobRoute {
        JobRoute { experiment: self.name.clone(), route: route.to_owned() }
    }

    /// Adds jobs with these numbers to the route `r`.
    pub(crate) async fn enqueue(&self, numbers: std::ops::Range<usize>) -> u64 {
        let jobs: Vec<Job> = numbers.map(|number| job(number, "r")).collect();
        self.queue.enqueue(&self.name, &jobs).await.expect("an answer")
    }

    /// Claims a job of the route `r`, if there is one.
    pub(crate) async fn claim(&self, queue: &Arc<dyn Queue>, lease: Duration) -> Option<Lease> {
        queue.claim(&[self.route("r")], lease).await.expect("an answer")
    }

    /// Claims a job of the route `r` for a long time.
    pub(crate) async fn claim_one(&self) -> Lease {
        self.claim(&self.queue, LONG).await.expect("a job")
    }

    /// Waits until the other worker can claim a job.
    pub(crate) async fn claim_later(&self) -> Lease {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(lease) = self.claim(&self.other, LONG).await {
                return lease;
            }
            assert!(Instant::now() < until, "waited {PATIENCE:?} for the end of a lease");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns all results in the order in which they are read.
    pub(crate) async fn results(&self) -> Vec<StoredResult> {
        let mut results = Vec::new();
        let mut cursor = Cursor::default();
        loop {
            let page = self.other.results(&self.name, &cursor, 50).await.expect("a page");
            if page.results.is_empty() {
                return results;
            }
            results.extend(page.results);
            cursor = page.next;
        }
    }
}

/// Returns a job with a number.
pub(crate) fn job(number: usize, route: &str) -> Job {
    Job { id: id(number), route: route.to_owned(), payload: format!("payload {number}").into_bytes() }
}

/// Returns the name of the job with a number.
pub(crate) fn id(number: usize) -> String {
    format!("job-{number:05}")
}
