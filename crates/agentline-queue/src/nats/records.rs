//! Records: the last message of a subject each, with its sequence as the revision.

use super::requests::{Published, StoredMessage};
use super::streams::{self, RECORDS, WAKE_SUBJECT};
use super::{NatsQueue, locked};
use crate::{QueueError, QueueRecord, check_name};
use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use futures_util::{StreamExt, TryStreamExt};
use std::time::Duration;

/// The number of records that are read at the same time.
const READS: usize = 64;
/// The header that identifies one attempt to write a record.
const WRITE_ID: &str = "Agentline-Write";

/// A write whose answer was lost. It may have succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingWrite {
    subject: String,
    value: Vec<u8>,
    revision: u64,
}

/// Returns the record in a message, with its age at a time of the server.
fn record(name: &str, message: StoredMessage, now: Option<i128>) -> QueueRecord {
    // It may have been written after that time.
    let age = |now: i128| Duration::from_nanos(u64::try_from(now - message.time).unwrap_or(0));
    QueueRecord {
        name: name.to_owned(),
        age: now.map(age),
        value: message.payload,
        revision: message.sequence,
    }
}

impl NatsQueue {
    pub(super) async fn read_record(&self, name: &str) -> Result<Option<QueueRecord>, QueueError> {
        check_name(name)?;
        let message = self.requests.last(RECORDS, &streams::record_subject(name)).await?;
        Ok(message.map(|message| record(name, message, None)))
    }

    /// Reads a record with its age at a time of the server.
    async fn read_aged_record(&self, name: &str, now: i128) -> Result<Option<QueueRecord>, QueueError> {
        let message = self.requests.last(RECORDS, &streams::record_subject(name)).await?;
        Ok(message.map(|message| record(name, message, Some(now))))
    }

    pub(super) async fn read_records(&self, prefix: &str) -> Result<Vec<QueueRecord>, QueueError> {
        check_name(prefix)?;
        let filter = streams::record_subject(&format!("{prefix}.>"));
        let (subjects, now) = self.requests.subjects(RECORDS, &filter).await?;
        let name = |subject: &String| subject.strip_prefix(&streams::record_subject("")).map(str::to_owned);
        // Another program may write any subject.
        let mut names: Vec<_> =
            subjects.iter().filter_map(name).filter(|name| check_name(name).is_ok()).collect();
        names.sort_unstable();
        let reads: Vec<_> = names.iter().map(|name| self.read_aged_record(name, now)).collect();
        let records: Vec<_> = futures_util::stream::iter(reads).buffered(READS).try_collect().await?;
        Ok(records.into_iter().flatten().collect())
    }

    pub(super) async fn store_record(
        &self,
        name: &str,
        value: &[u8],
        revision: u64,
    ) -> Result<u64, QueueError> {
        check_name(name)?;
        self.requests.check_size(&format!("the record `{name}`"), value)?;
        let subject = streams::record_subject(name);
        let write = PendingWrite { subject: subject.clone(), value: value.to_vec(), revision };
        let id = self.requests.client.new_inbox();
        let stored = match self.publish_record(&subject, value, Some(revision), Some(&id)).await {
            Ok(Some(stored)) => stored,
            Ok(None) => {
                self.earlier_write(&write).await?.ok_or_else(|| QueueError::Conflict(name.to_owned()))?
            }
            Err(error) => {
                if error.is_temporary() {
                    locked(&self.pending_writes).entry(write).or_default().push(id);
                }
                return Err(error);
            }
        };
        self.requests.notify(WAKE_SUBJECT, Vec::new()).await;
        Ok(stored)
    }

    /// Returns the revision of a write whose answer was lost, if the record has it. Another client may have written the
    /// same value, which is a conflict.
    async fn earlier_write(&self, write: &PendingWrite) -> Result<Option<u64>, QueueError> {
        if !locked(&self.pending_writes).contains_key(write) {
            return Ok(None);
        }
        let current = self.requests.last(RECORDS, &write.subject).await?;
        let ids = locked(&self.pending_writes).remove(write).unwrap_or_default();
        let is_own = |message: &StoredMessage| {
            message.headers.get(WRITE_ID).is_some_and(|id| ids.iter().any(|own| own == id.as_str()))
        };
        Ok(current.filter(is_own).map(|message| message.sequence))
    }

    /// Publishes a message to the stream of records, which is created if necessary. Returns its sequence; `None` if the
    /// subject does not have the expected one.
    pub(super) async fn publish_record(
        &self,
        subject: &str,
        value: &[u8],
        expected: Option<u64>,
        id: Option<&str>,
    ) -> Result<Option<u64>, QueueError> {
        let mut headers = HeaderMap::new();
        if let Some(expected) = expected {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        }
        if let Some(id) = id {
            headers.insert(WRITE_ID, id);
        }
        for _ in 0..2 {
            match self.requests.publish_with(subject.to_owned(), headers.clone(), value.to_vec()).await? {
                Published::Stored(sequence) => return Ok(Some(sequence)),
                Published::Mismatch => return Ok(None),
                Published::NoStream => self.requests.create_stream(streams::of_records()).await?,
            }
        }
        Err(QueueError::Unavailable("the stream of records is not available at the moment".into()))
    }

    pub(super) async fn delete_record(&self, name: &str) -> Result<(), QueueError> {
        check_name(name)?;
        self.requests.purge(RECORDS, &streams::record_subject(name)).await?;
        self.requests.notify(WAKE_SUBJECT, Vec::new()).await;
        Ok(())
    }
}
