//! Records: the last message of a subject each, with its sequence as the revision.

use super::NatsQueue;
use super::requests::Published;
use super::streams::{self, RECORDS, WAKE_SUBJECT};
use crate::{QueueError, Record, check_name};
use futures_util::{StreamExt, TryStreamExt};

/// The number of records that are read at the same time.
const READS: usize = 64;

impl NatsQueue {
    pub(super) async fn read_record(&self, name: &str) -> Result<Option<Record>, QueueError> {
        check_name(name)?;
        let message = self.requests.last(RECORDS, &streams::record_subject(name)).await?;
        Ok(message.map(|message| Record {
            name: name.to_owned(),
            value: message.payload,
            revision: message.sequence,
        }))
    }

    pub(super) async fn read_records(&self, prefix: &str) -> Result<Vec<Record>, QueueError> {
        check_name(prefix)?;
        let filter = streams::record_subject(&format!("{prefix}.>"));
        let subjects = self.requests.subjects(RECORDS, &filter).await?;
        let name = |subject: &String| subject.strip_prefix(&streams::record_subject("")).map(str::to_owned);
        let mut names: Vec<_> = subjects.iter().filter_map(name).collect();
        names.sort_unstable();
        let reads: Vec<_> = names.iter().map(|name| self.read_record(name)).collect();
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
        let stored = self.publish_record(&streams::record_subject(name), value, Some(revision)).await?;
        let Some(stored) = stored else {
            // The same value was stored by an earlier request whose answer was lost.
            let current = self.read_record(name).await?.filter(|record| record.value == value);
            return current
                .map(|record| record.revision)
                .ok_or_else(|| QueueError::Conflict(name.to_owned()));
        };
        self.requests.notify(WAKE_SUBJECT, Vec::new()).await;
        Ok(stored)
    }

    /// Publishes a message to the stream of records, which is created if necessary. Returns its sequence; `None` if the
    /// subject does not have the expected one.
    pub(super) async fn publish_record(
        &self,
        subject: &str,
        value: &[u8],
        expected: Option<u64>,
    ) -> Result<Option<u64>, QueueError> {
        for _ in 0..2 {
            match self.requests.clone().publish(subject.to_owned(), value.to_vec(), expected).await? {
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
