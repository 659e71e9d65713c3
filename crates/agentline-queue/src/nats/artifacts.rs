//! Artifacts in the object stores of JetStream, one for each experiment.

use super::locked;
use super::requests::{Requests, unavailable};
use super::streams;
use crate::artifacts::{check_size, checked};
use crate::{
    ArtifactFuture, ArtifactVisitor, Artifacts, MAX_ARTIFACT, QueueError, artifact_name, check_name,
    check_part,
};
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::object_store::{
    Config, DeleteErrorKind, InfoErrorKind, ObjectInfo, ObjectMetadata, ObjectStore,
};
use async_nats::jetstream::stream::{DirectGetErrorKind, RawMessageErrorKind};
use futures_util::TryStreamExt;
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

/// How long storing or reading an artifact may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest part of an artifact in one message.
const CHUNK_SIZE: usize = 128 << 10;

/// Artifacts in the object stores of JetStream.
pub(super) struct NatsArtifacts {
    requests: Requests,
    buckets: Mutex<HashMap<String, ObjectStore>>,
}

impl fmt::Debug for NatsArtifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsArtifacts").finish_non_exhaustive()
    }
}

impl NatsArtifacts {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests, buckets: Mutex::default() }
    }

    /// Returns the object store of an experiment; `None` if there is none.
    async fn bucket(&self, experiment: &str) -> Result<Option<ObjectStore>, QueueError> {
        check_part(experiment)?;
        self.requests.ready().await?;
        let known = locked(&self.buckets).get(experiment).cloned();
        if known.is_some() {
            return Ok(known);
        }
        if self.requests.state(&streams::artifact_stream(experiment)).await?.is_none() {
            return Ok(None);
        }
        let bucket = self.requests.jetstream.get_object_store(streams::artifact_bucket(experiment)).await;
        let bucket = bucket.map_err(unavailable)?;
        locked(&self.buckets).insert(experiment.to_owned(), bucket.clone());
        Ok(Some(bucket))
    }

    /// Returns the object store of an experiment, which is created if necessary.
    async fn ensure_bucket(&self, experiment: &str) -> Result<ObjectStore, QueueError> {
        if let Some(bucket) = self.bucket(experiment).await? {
            return Ok(bucket);
        }
        let config = Config { bucket: streams::artifact_bucket(experiment), ..Config::default() };
        // If another client creates it at the same time, it exists afterwards.
        let created = self.requests.jetstream.create_object_store(config).await;
        match (created, self.bucket(experiment).await?) {
            (_, Some(bucket)) => Ok(bucket),
            (Err(error), None) => Err(unavailable(error)),
            (Ok(_), None) => Err(QueueError::Unavailable("the object store was removed".into())),
        }
    }

    async fn store(&self, experiment: &str, content: &[u8]) -> Result<String, QueueError> {
        check_size(content)?;
        let name = artifact_name(content);
        let mut bucket = self.ensure_bucket(experiment).await?;
        for attempt in 0.. {
            // The content never changes, and replacing it would disturb its readers.
            if contains(&bucket, &name).await? {
                return Ok(name);
            }
            let chunk_size = CHUNK_SIZE.min(self.requests.client.max_payload() / 2);
            let meta =
                ObjectMetadata { name: name.clone(), chunk_size: Some(chunk_size), ..Default::default() };
            match bucket.put(meta, &mut &*content).await {
                Ok(_) => break,
                Err(error) if attempt > 0 => return Err(unavailable(error)),
                // The object store may have been removed since it was used last.
                Err(_) => {
                    locked(&self.buckets).remove(experiment);
                    bucket = self.ensure_bucket(experiment).await?;
                }
            }
        }
        Ok(name)
    }

    async fn load(&self, experiment: &str, name: &str) -> Result<Option<Vec<u8>>, QueueError> {
        check_name(name)?;
        let Some(bucket) = self.bucket(experiment).await? else { return Ok(None) };
        let info = match bucket.info(name).await {
            Ok(info) if info.deleted => return Ok(None),
            Ok(info) => info,
            Err(error) if error.kind() == InfoErrorKind::NotFound => return Ok(None),
            Err(error) => return self.absent_if_removed(experiment, None, unavailable(error)).await,
        };
        // Another client may have stored anything under this name.
        if info.size > MAX_ARTIFACT {
            return Err(QueueError::Damaged(name.to_owned()));
        }
        match self.content(experiment, name, &info).await {
            Ok(Some(content)) => checked(name, content).map(Some),
            Ok(None) => match bucket.info(name).await {
                // Another worker that stored the same content has replaced it meanwhile, or it was removed.
                Ok(now) if now.deleted || now.nuid != info.nuid => {
                    Err(QueueError::Unavailable("the artifact was replaced while it was read".into()))
                }
                Ok(_) => Err(QueueError::Damaged(name.to_owned())),
                Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
                Err(error) => self.absent_if_removed(experiment, None, unavailable(error)).await,
            },
            Err(error @ QueueError::Damaged(_)) => Err(error),
            Err(error) => self.absent_if_removed(experiment, None, error).await,
        }
    }

    /// Reads the messages of an object; `None` if one of them is missing.
    ///
    /// [`ObjectStore::get`] creates a consumer for each object, which stays on the server for 30 seconds. A server has a
    /// limit of consumers, which a submitter reaches that collects results.
    async fn content(
        &self,
        experiment: &str,
        name: &str,
        info: &ObjectInfo,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let damaged = || QueueError::Damaged(name.to_owned());
        let stream = self.requests.stream(&streams::artifact_stream(experiment)).await?;
        let subject = format!("$O.{}.C.{}", streams::artifact_bucket(experiment), info.nuid);
        let mut content = Vec::with_capacity(info.size);
        let mut next = 1;
        while content.len() < info.size {
            self.requests.ready().await?;
            let found = stream.direct_get_next_for_subject(&subject, Some(next));
            let message = match self.requests.answered(found).await? {
                Ok(message) => message,
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => {
                    // A replica that is behind answers so too; the leader knows.
                    let asked = stream.raw_message_builder().next_by_subject(&subject).sequence(next);
                    match self.requests.answered(asked.send()).await? {
                        Ok(message) => message,
                        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(None),
                        Err(error) => return Err(unavailable(error)),
                    }
                }
                Err(error) if error.kind() == DirectGetErrorKind::InvalidSubject => return Err(damaged()),
                Err(error) => return Err(unavailable(error)),
            };
            // Without this, any number of empty messages would be read.
            if message.payload.is_empty() {
                return Err(damaged());
            }
            next = message.sequence + 1;
            content.extend_from_slice(&message.payload);
        }
        Ok(Some(content))
    }

    async fn has_artifact(&self, experiment: &str, name: &str) -> Result<bool, QueueError> {
        check_name(name)?;
        let Some(bucket) = self.bucket(experiment).await? else { return Ok(false) };
        match contains(&bucket, name).await {
            Ok(contains) => Ok(contains),
            Err(error) => self.absent_if_removed(experiment, false, error).await,
        }
    }

    /// Reads the descriptions of all objects. [`ObjectStore::list`] would receive them as fast as the server sends them,
    /// and keep tens of thousands in memory.
    async fn visit_names(&self, experiment: &str, visit: ArtifactVisitor<'_>) -> Result<(), QueueError> {
        locked(&self.buckets).remove(experiment);
        if self.bucket(experiment).await?.is_none() {
            return Ok(());
        }
        let stream = self.requests.stream(&streams::artifact_stream(experiment)).await?;
        let filter_subject = format!("$O.{}.M.>", streams::artifact_bucket(experiment));
        let config = OrderedConfig { filter_subject, ..OrderedConfig::default() };
        let consumer = stream.create_consumer(config).await.map_err(unavailable)?;
        let mut left = consumer.cached_info().num_pending;
        let mut messages = consumer.messages().await.map_err(unavailable)?;
        while left > 0
            && let Some(message) = messages.try_next().await.map_err(unavailable)?
        {
            left = message.info().map_err(unavailable)?.pending;
            let object: ObjectInfo = serde_json::from_slice(&message.payload)
                .map_err(|error| QueueError::Refused(format!("an artifact cannot be read: {error}")))?;
            if !object.deleted {
                visit(&object.name);
            }
        }
        Ok(())
    }

    async fn delete(&self, experiment: &str, name: &str) -> Result<(), QueueError> {
        check_name(name)?;
        let Some(bucket) = self.bucket(experiment).await? else { return Ok(()) };
        match bucket.delete(name).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == DeleteErrorKind::NotFound => Ok(()),
            Err(error) => self.absent_if_removed(experiment, (), unavailable(error)).await,
        }
    }

    /// Returns `absent` if the object store has been removed since it was used last.
    async fn absent_if_removed<T>(
        &self,
        experiment: &str,
        absent: T,
        error: QueueError,
    ) -> Result<T, QueueError> {
        locked(&self.buckets).remove(experiment);
        if self.bucket(experiment).await?.is_none() { Ok(absent) } else { Err(error) }
    }
}

async fn contains(bucket: &ObjectStore, name: &str) -> Result<bool, QueueError> {
    match bucket.info(name).await {
        Ok(info) => Ok(!info.deleted),
        Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(false),
        Err(error) => Err(unavailable(error)),
    }
}

/// Ends a request that takes too long.
async fn in_time<T>(request: impl Future<Output = Result<T, QueueError>>) -> Result<T, QueueError> {
    let timed_out = |_| QueueError::Unavailable("the object store did not answer in time".into());
    tokio::time::timeout(TIMEOUT, request).await.map_err(timed_out)?
}

impl Artifacts for NatsArtifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        Box::pin(in_time(self.store(experiment, content)))
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        Box::pin(in_time(self.load(experiment, name)))
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        Box::pin(in_time(self.has_artifact(experiment, name)))
    }

    fn for_each_name<'a>(
        &'a self,
        experiment: &'a str,
        visit: ArtifactVisitor<'a>,
    ) -> ArtifactFuture<'a, ()> {
        Box::pin(in_time(self.visit_names(experiment, visit)))
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        Box::pin(in_time(self.delete(experiment, name)))
    }
}
