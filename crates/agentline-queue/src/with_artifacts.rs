//! A queue whose artifacts are stored elsewhere: in a shared directory or in a bucket.

use crate::{
    Artifacts, CommitResult, ConnectOptions, Cursor, DirectoryArtifacts, Job, JobCounts, JobRoute, Lease,
    Queue, QueueError, QueueFuture, QueueRecord, ResultPage,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A queue with another store of artifacts than its own.
#[derive(Debug)]
pub(crate) struct WithArtifacts {
    queue: Arc<dyn Queue>,
    artifacts: Arc<dyn Artifacts>,
}

impl WithArtifacts {
    /// Returns a queue that stores artifacts at the place that the options name, if they do.
    pub(crate) fn wrap(
        queue: Arc<dyn Queue>,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Queue>, QueueError> {
        let Some(place) = &options.artifacts else { return Ok(queue) };
        let artifacts = open(place, options)?;
        Ok(Arc::new(Self { queue, artifacts }))
    }
}

/// Opens a store of artifacts: the path of a directory, or an `s3://` address.
fn open(place: &str, options: &ConnectOptions) -> Result<Arc<dyn Artifacts>, QueueError> {
    if place.starts_with("s3://") {
        return open_s3(place, options);
    }
    if place.contains("://") {
        return Err(invalid(place, "artifacts are stored in a directory or at an `s3://` address"));
    }
    let directory = DirectoryArtifacts::new(Path::new(place));
    Ok(Arc::new(directory.map_err(|error| QueueError::Storage(format!("`{place}`: {error}")))?))
}

#[cfg(feature = "s3")]
fn open_s3(address: &str, options: &ConnectOptions) -> Result<Arc<dyn Artifacts>, QueueError> {
    Ok(Arc::new(crate::S3Artifacts::new(address, options)?))
}

#[cfg(not(feature = "s3"))]
fn open_s3(address: &str, _: &ConnectOptions) -> Result<Arc<dyn Artifacts>, QueueError> {
    Err(invalid(address, "the program was built without the feature `s3`"))
}

fn invalid(address: &str, reason: &str) -> QueueError {
    QueueError::InvalidAddress { address: crate::without_password(address), reason: reason.to_owned() }
}

impl Queue for WithArtifacts {
    fn enqueue<'a>(&'a self, experiment: &'a str, jobs: &'a [Job]) -> QueueFuture<'a, u64> {
        self.queue.enqueue(experiment, jobs)
    }

    fn claim<'a>(&'a self, routes: &'a [JobRoute], lease: Duration) -> QueueFuture<'a, Option<Lease>> {
        self.queue.claim(routes, lease)
    }

    fn renew<'a>(&'a self, lease: &'a mut Lease, time: Duration) -> QueueFuture<'a, ()> {
        self.queue.renew(lease, time)
    }

    fn commit<'a>(&'a self, lease: &'a Lease, result: &'a [u8]) -> QueueFuture<'a, CommitResult> {
        self.queue.commit(lease, result)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> QueueFuture<'a, ()> {
        self.queue.release(lease)
    }

    fn results<'a>(
        &'a self,
        experiment: &'a str,
        after: &'a Cursor,
        most: usize,
    ) -> QueueFuture<'a, ResultPage> {
        self.queue.results(experiment, after, most)
    }

    fn counts<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, JobCounts> {
        self.queue.counts(experiment)
    }

    fn wait(&self, time: Duration) -> QueueFuture<'_, ()> {
        self.queue.wait(time)
    }

    fn record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, Option<QueueRecord>> {
        self.queue.record(name)
    }

    fn records<'a>(&'a self, prefix: &'a str) -> QueueFuture<'a, Vec<QueueRecord>> {
        self.queue.records(prefix)
    }

    fn write_record<'a>(&'a self, name: &'a str, value: &'a [u8], revision: u64) -> QueueFuture<'a, u64> {
        self.queue.write_record(name, value, revision)
    }

    fn remove_record<'a>(&'a self, name: &'a str) -> QueueFuture<'a, ()> {
        self.queue.remove_record(name)
    }

    fn remove<'a>(&'a self, experiment: &'a str) -> QueueFuture<'a, ()> {
        Box::pin(async move {
            self.queue.remove(experiment).await?;
            for name in self.artifacts.names(experiment).await? {
                self.artifacts.remove(experiment, &name).await?;
            }
            Ok(())
        })
    }

    fn artifacts(&self) -> Arc<dyn Artifacts> {
        self.artifacts.clone()
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::connect;

    #[tokio::test]
    async fn artifacts_are_stored_in_a_directory_and_removed_with_their_experiment() {
        let dir = tempfile::tempdir().expect("a directory");
        let shared = dir.path().join("shared");
        let address = format!("sqlite:{}", dir.path().join("queue.db").display());
        let options =
            ConnectOptions { artifacts: Some(shared.display().to_string()), ..ConnectOptions::default() };
        let queue = connect(&address, &options).await.expect("a queue");
        let own = connect(&address, &ConnectOptions::default()).await.expect("a queue");
        let name = queue.artifacts().put("e", b"content").await.expect("an artifact");
        queue.artifacts().put("other", b"content").await.expect("an artifact");
        assert!(!own.artifacts().has("e", &name).await.expect("an answer"));
        let directory = DirectoryArtifacts::new(&shared).expect("a directory");
        assert_eq!(directory.names("e").await.expect("a list"), std::slice::from_ref(&name));
        queue.remove("e").await.expect("a removed experiment");
        assert_eq!(directory.names("e").await.expect("a list"), [""; 0]);
        assert_eq!(directory.names("other").await.expect("a list"), [name]);
    }

    #[tokio::test]
    async fn other_places_for_artifacts_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let address = format!("sqlite:{}", dir.path().join("queue.db").display());
        let options =
            ConnectOptions { artifacts: Some("https://key@host/".into()), ..ConnectOptions::default() };
        let error = connect(&address, &options).await.expect_err("a refusal").to_string();
        assert!(error.starts_with("`https://host/` is not the address of a queue: artifacts are"), "{error}");
    }
}
