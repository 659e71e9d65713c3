//! The entry of a claimed job in the stream of leases.

use super::NatsQueue;
use super::requests::{Published, Requests, StoredMessage, unavailable};
use super::streams::{self, Kind};
use crate::{Lease, QueueError};
use async_nats::jetstream::stream::RawMessageErrorKind;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The number of leases that are read at the same time.
const READS: usize = 128;
/// The most messages that are read to find the leases that have not ended.
const MOST_READ: u64 = 20_000;

/// Who works on a job. The sequence of the message is the fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseEntry {
    /// Identifies the claim, so that a request whose answer was lost can be recognized.
    pub(super) holder: String,
    /// How often the job has been claimed.
    pub(super) claims: u32,
    /// The time of the lease in milliseconds.
    pub(super) time: u64,
    /// Whether the job has a result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) done: bool,
}

/// An entry as the server has it.
#[derive(Clone, Debug)]
pub(super) struct StoredEntry {
    pub(super) entry: LeaseEntry,
    pub(super) revision: u64,
    /// When the server stored it, in nanoseconds since 1970.
    stored_at: i128,
}

/// What the receipt of a lease contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt<'a> {
    /// Where the message of the job is acknowledged.
    pub(super) acknowledge: &'a str,
    /// Identifies the claim.
    pub(super) holder: &'a str,
}

impl<'a> Receipt<'a> {
    pub(super) fn of(lease: &'a Lease) -> Result<Self, QueueError> {
        let (acknowledge, holder) = lease
            .receipt
            .split_once(' ')
            .ok_or_else(|| QueueError::Refused(format!("`{}` is not a receipt", lease.receipt)))?;
        Ok(Self { acknowledge, holder })
    }
}

impl LeaseEntry {
    pub(super) fn new(holder: &str, claims: u32, time: Duration) -> Self {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { holder: holder.to_owned(), claims, time, done: false }
    }

    /// Writes the entry in place of one with this revision.
    pub(super) async fn write(
        &self,
        requests: &Requests,
        experiment: &str,
        job: &str,
        revision: u64,
    ) -> Result<Published, QueueError> {
        let subject = streams::lease_subject(experiment, job);
        requests.clone().publish(subject, self.to_bytes(), Some(revision)).await
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl StoredEntry {
    /// Reads the entry of a job.
    pub(super) async fn read(
        requests: &Requests,
        experiment: &str,
        job: &str,
    ) -> Result<Option<Self>, QueueError> {
        let stream = streams::name(Kind::Lease, experiment);
        let message = requests.last(&stream, &streams::lease_subject(experiment, job)).await?;
        message.map(Self::parse).transpose()
    }

    fn parse(message: StoredMessage) -> Result<Self, QueueError> {
        let entry = serde_json::from_slice(&message.payload)
            .map_err(|error| QueueError::Refused(format!("a lease cannot be read: {error}")))?;
        Ok(Self { entry, revision: message.sequence, stored_at: message.time })
    }

    pub(super) fn is_held_by(&self, holder: &str) -> bool {
        !self.entry.done && self.entry.holder == holder
    }

    /// Returns how long the lease lasts at a time of the server, if it has not ended.
    ///
    /// The message of the job is delivered a moment before the entry is written, so a tenth of the time does not count.
    /// If the clock of the server went back, the lease has ended.
    pub(super) fn remaining(&self, now: i128) -> Option<Duration> {
        let lease = i128::from(self.entry.time) * 1_000_000;
        let remaining = self.stored_at + lease - now;
        let is_alive = !self.entry.done && remaining > lease / 10 && remaining <= lease;
        is_alive.then(|| Duration::from_nanos(u64::try_from(remaining).unwrap_or(0)))
    }
}

impl NatsQueue {
    /// Returns how many leases of jobs without a result have not ended; `unfinished` is the number of those jobs.
    ///
    /// A worker renews its leases, so they are among the last messages of the stream, which is read backwards.
    pub(super) async fn valid_leases(&self, experiment: &str, unfinished: u64) -> Result<u64, QueueError> {
        let name = streams::name(Kind::Lease, experiment);
        let Some(state) = self.requests.state(&name).await?.filter(|_| unfinished > 0) else { return Ok(0) };
        let now = self.requests.server_time(&name).await?;
        let stream = self.requests.stream(&name).await?;
        let first = state.first_sequence.max(state.last_sequence.saturating_sub(MOST_READ)).max(1);
        let reads = (first..=state.last_sequence).rev();
        let reads = reads.map(|sequence| self.requests.answered(stream.get_raw_message(sequence)));
        let mut messages = futures_util::stream::iter(reads).buffered(READS);
        let (mut found, mut valid) = (0, 0);
        while found < unfinished
            && let Some(message) = messages.next().await
        {
            let message = match message? {
                Ok(message) => message,
                // A later message has replaced it.
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => continue,
                Err(error) => return Err(unavailable(error)),
            };
            let Ok(entry) = serde_json::from_slice::<LeaseEntry>(&message.payload) else { continue };
            let stored_at = message.time.unix_timestamp_nanos();
            let stored = StoredEntry { entry, revision: message.sequence, stored_at };
            found += u64::from(!stored.entry.done);
            valid += u64::from(stored.remaining(now).is_some());
        }
        Ok(valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    fn stored_at(second: i128) -> StoredEntry {
        let entry = LeaseEntry::new("h", 1, Duration::from_secs(30));
        StoredEntry { entry, revision: 1, stored_at: second * SECOND }
    }

    #[test]
    fn lease_ends_by_the_clock_of_the_server() {
        let lease = stored_at(100);
        assert_eq!(lease.remaining(110 * SECOND), Some(Duration::from_secs(20)));
        assert_eq!(lease.remaining(128 * SECOND), None);
        assert_eq!(lease.remaining(500 * SECOND), None);
        assert_eq!(lease.remaining(99 * SECOND), None, "the clock went back");
    }

    #[test]
    fn finished_job_has_no_lease() {
        let mut lease = stored_at(100);
        assert!(lease.is_held_by("h"));
        lease.entry.done = true;
        assert_eq!(lease.remaining(110 * SECOND), None);
        assert!(!lease.is_held_by("h"));
    }
}
