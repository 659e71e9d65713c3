//! Claims: a job is pulled, and its lease is written, renewed, and ended by a result or by giving the job back.

use super::leases::{LeaseEntry, Receipt, StoredEntry};
use super::requests::{Published, Pulled, is_missing_stream, refused, unavailable};
use super::streams::{self, Kind, WAKE_SUBJECT};
use super::{NatsQueue, locked};
use crate::{CommitResult, JobRoute, Lease, QueueError, check_part};
use async_nats::Message;
use async_nats::jetstream::stream::{ConsumerErrorKind, DeleteMessageErrorKind};
use std::time::Duration;

/// How often a claim is tried again if other workers write the same lease.
const TRIES: u32 = 5;

impl NatsQueue {
    pub(super) async fn claim_job(
        &self,
        routes: &[JobRoute],
        lease: Duration,
    ) -> Result<Option<Lease>, QueueError> {
        for route in routes {
            check_part(&route.experiment)?;
            check_part(&route.route)?;
            while let Some(message) = self.pull(route, lease).await? {
                if let Some(lease) = self.lease_message(route, *message, lease).await? {
                    return Ok(Some(lease));
                }
            }
        }
        Ok(None)
    }

    /// Pulls one job of a route, and creates the consumer of the route if necessary.
    async fn pull(&self, route: &JobRoute, lease: Duration) -> Result<Option<Box<Message>>, QueueError> {
        let stream = streams::name(Kind::Job, &route.experiment);
        for _ in 0..2 {
            if !self.ensure_consumer(route, lease).await? {
                return Ok(None);
            }
            match self.requests.pull(&stream, &route.route).await? {
                Pulled::Message(message) => return Ok(Some(message)),
                Pulled::Nothing => return Ok(None),
                Pulled::NoConsumer => locked(&self.consumers).remove(route),
            };
        }
        Ok(None)
    }

    /// Creates the consumer of a route. Returns `false` if the experiment has no jobs.
    ///
    /// Workers may use leases of different lengths. The consumer delivers a job again after the shortest, and the entry
    /// of the lease tells whether it has ended.
    async fn ensure_consumer(&self, route: &JobRoute, lease: Duration) -> Result<bool, QueueError> {
        let is_known = |known: &Duration| *known <= lease;
        if locked(&self.consumers).get(route).is_some_and(is_known) {
            return Ok(true);
        }
        let stream = streams::name(Kind::Job, &route.experiment);
        if let Some(known) = self.requests.ack_wait(&stream, &route.route).await?.filter(is_known) {
            locked(&self.consumers).insert(route.clone(), known);
            return Ok(true);
        }
        let config = streams::consumer(&route.experiment, &route.route, lease);
        match self.requests.jetstream.create_consumer_on_stream(config, stream).await {
            Ok(_) => {
                locked(&self.consumers).insert(route.clone(), lease);
                Ok(true)
            }
            Err(error) => match error.kind() {
                ConsumerErrorKind::JetStream(error) if is_missing_stream(&error) => Ok(false),
                ConsumerErrorKind::JetStream(error) => Err(refused(&error)),
                _ => Err(unavailable(error)),
            },
        }
    }

    /// Lets the consumer deliver a job again after a time, unless it is acknowledged or delayed again before.
    async fn deliver_after(&self, acknowledge: &str, time: Duration) {
        let delay = format!(r#"-NAK {{"delay":{}}}"#, time.as_nanos());
        self.requests.notify(acknowledge, delay.into()).await;
    }

    /// Lets the consumer deliver a job that was claimed when its lease ends.
    async fn deliver_after_lease(&self, route: &JobRoute, acknowledge: &str, lease: Duration) {
        let known = locked(&self.consumers).get(route).copied();
        if known != Some(lease) {
            self.deliver_after(acknowledge, lease).await;
        }
    }

    /// Writes the lease of a job that was pulled. Returns `None` if the job has a result or another worker.
    async fn lease_message(
        &self,
        route: &JobRoute,
        message: Message,
        time: Duration,
    ) -> Result<Option<Lease>, QueueError> {
        let Some(acknowledge) = &message.reply else {
            return Err(QueueError::Refused("a job was delivered without a way to acknowledge it".into()));
        };
        let job = message.subject.rsplit('.').next().unwrap_or_default();
        let holder = self.requests.client.new_inbox();
        let won = |claims: u32, token: u64| Lease {
            experiment: route.experiment.clone(),
            job: job.to_owned(),
            payload: message.payload.to_vec(),
            claims,
            token,
            receipt: format!("{acknowledge} {holder}"),
        };
        if deliveries(acknowledge) == Some(1) {
            let entry = LeaseEntry::new(&holder, 1, time);
            if let Published::Stored(token) = entry.write(&self.requests, &route.experiment, job, 0).await? {
                self.deliver_after_lease(route, acknowledge, time).await;
                return Ok(Some(won(1, token)));
            }
        }
        for _ in 0..TRIES {
            if self.result(&route.experiment, job).await?.is_some() {
                self.requests.notify(acknowledge, b"+ACK".into()).await;
                return Ok(None);
            }
            let stored = StoredEntry::read(&self.requests, &route.experiment, job).await?;
            if let Some(remaining) = self.remaining(&route.experiment, stored.as_ref()).await? {
                // The job came back too early: a request for a delay was lost, or the server lost its place.
                self.deliver_after(acknowledge, remaining).await;
                return Ok(None);
            }
            let claims = 1 + self.earlier_claims(&route.experiment, job, stored.as_ref()).await?;
            let revision = stored.map_or(0, |stored| stored.revision);
            let entry = LeaseEntry::new(&holder, claims, time);
            match entry.write(&self.requests, &route.experiment, job, revision).await? {
                Published::Stored(token) => {
                    self.deliver_after_lease(route, acknowledge, time).await;
                    return Ok(Some(won(claims, token)));
                }
                Published::Mismatch => {}
                Published::NoStream => return Ok(None),
            }
        }
        // The job comes back when the time of this delivery is over.
        Ok(None)
    }

    /// Returns how long another worker still has the job.
    async fn remaining(
        &self,
        experiment: &str,
        stored: Option<&StoredEntry>,
    ) -> Result<Option<Duration>, QueueError> {
        let Some(stored) = stored.filter(|stored| !stored.entry.done) else { return Ok(None) };
        let now = self.requests.server_time(&streams::name(Kind::Lease, experiment)).await?;
        Ok(stored.remaining(now))
    }

    /// Returns how often a job was claimed and not given back.
    async fn earlier_claims(
        &self,
        experiment: &str,
        job: &str,
        stored: Option<&StoredEntry>,
    ) -> Result<u32, QueueError> {
        if let Some(stored) = stored {
            return Ok(stored.entry.claims);
        }
        let subject = streams::released_subject(experiment, job);
        let released = self.requests.last(streams::RECORDS, &subject).await?;
        let claims = released.and_then(|message| String::from_utf8(message.payload).ok()?.parse().ok());
        Ok(claims.unwrap_or(0))
    }

    pub(super) async fn renew_lease(&self, lease: &mut Lease, time: Duration) -> Result<(), QueueError> {
        let receipt = Receipt::of(lease)?;
        let entry = LeaseEntry::new(receipt.holder, lease.claims, time);
        let write = |revision| entry.write(&self.requests, &lease.experiment, &lease.job, revision);
        let mut published = write(lease.token).await?;
        if published == Published::Mismatch {
            // If the answer to an earlier request was lost, the entry is ours with a later revision.
            let stored = StoredEntry::read(&self.requests, &lease.experiment, &lease.job).await?;
            let own = stored.filter(|stored| stored.is_held_by(receipt.holder));
            published = write(own.ok_or(QueueError::LeaseLost)?.revision).await?;
        }
        match published {
            Published::Stored(token) => {
                self.deliver_after(receipt.acknowledge, time).await;
                lease.token = token;
                Ok(())
            }
            Published::Mismatch => Err(QueueError::LeaseLost),
            Published::NoStream => Err(no_stream(&lease.experiment)),
        }
    }

    pub(super) async fn commit_result(
        &self,
        lease: &Lease,
        result: &[u8],
    ) -> Result<CommitResult, QueueError> {
        let receipt = Receipt::of(lease)?;
        self.requests.check_size(&format!("the result of the job `{}`", lease.job), result)?;
        let stored = StoredEntry::read(&self.requests, &lease.experiment, &lease.job).await?;
        let committed = if stored.is_some_and(|stored| stored.is_held_by(receipt.holder)) {
            let subject = streams::result_subject(&lease.experiment, &lease.job);
            match self.requests.clone().publish(subject, result.to_vec(), Some(0)).await? {
                Published::Stored(_) => CommitResult::Committed,
                Published::Mismatch => self.compare(lease, result).await?,
                Published::NoStream => return Err(no_stream(&lease.experiment)),
            }
        } else {
            self.compare(lease, result).await?
        };
        // From here on the job has a result. If one of these messages is lost, the next worker that gets the job sees it.
        let done = LeaseEntry { done: true, ..LeaseEntry::new(receipt.holder, lease.claims, Duration::ZERO) };
        let subject = streams::lease_subject(&lease.experiment, &lease.job);
        self.requests.notify(&subject, done.to_bytes()).await;
        self.requests.notify(receipt.acknowledge, b"+ACK".into()).await;
        self.requests.notify(WAKE_SUBJECT, Vec::new()).await;
        Ok(committed)
    }

    /// Compares a result with the stored one: the same was stored by an earlier request whose answer was lost.
    async fn compare(&self, lease: &Lease, result: &[u8]) -> Result<CommitResult, QueueError> {
        match self.result(&lease.experiment, &lease.job).await? {
            Some(stored) if stored == result => Ok(CommitResult::Committed),
            Some(_) => Ok(CommitResult::Duplicate),
            None => Err(QueueError::LeaseLost),
        }
    }

    /// Returns the result of a job.
    async fn result(&self, experiment: &str, job: &str) -> Result<Option<Vec<u8>>, QueueError> {
        let stream = streams::name(Kind::Result, experiment);
        let message = self.requests.last(&stream, &streams::result_subject(experiment, job)).await?;
        Ok(message.map(|message| message.payload))
    }

    pub(super) async fn release_lease(&self, lease: &Lease) -> Result<(), QueueError> {
        let receipt = Receipt::of(lease)?;
        // Without an entry, an earlier request whose answer was lost has deleted it.
        if let Some(stored) = StoredEntry::read(&self.requests, &lease.experiment, &lease.job).await? {
            if !stored.is_held_by(receipt.holder) {
                return Err(QueueError::LeaseLost);
            }
            if stored.entry.claims > 1 {
                let claims = (stored.entry.claims - 1).to_string();
                let subject = streams::released_subject(&lease.experiment, &lease.job);
                self.publish_record(&subject, claims.as_bytes(), None, None).await?;
            }
            self.delete_lease(lease, stored.revision).await?;
        }
        // The server answers when the job can be claimed. If it does not, the job can be claimed when the lease would end.
        let released = self.requests.client.request(receipt.acknowledge.to_owned(), "-NAK".into());
        let _ = self.requests.answered(released).await;
        self.requests.notify(WAKE_SUBJECT, Vec::new()).await;
        Ok(())
    }

    /// Deletes the entry of a lease. It has another revision if another worker has claimed the job.
    async fn delete_lease(&self, lease: &Lease, revision: u64) -> Result<(), QueueError> {
        let stream = self.requests.stream(&streams::name(Kind::Lease, &lease.experiment)).await?;
        match stream.delete_message(revision).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                DeleteMessageErrorKind::JetStream(error) if error.code() == 503 => Err(refused(&error)),
                DeleteMessageErrorKind::JetStream(_) => Err(QueueError::LeaseLost),
                _ => Err(unavailable(error)),
            },
        }
    }
}

fn no_stream(experiment: &str) -> QueueError {
    QueueError::Unavailable(format!("the experiment `{experiment}` has no streams at the moment"))
}

/// Returns how often a message was delivered, which is part of the subject that acknowledges it:
/// `$JS.ACK.STREAM.CONSUMER.DELIVERIES.…`, or with a domain and an account before the stream.
fn deliveries(acknowledge: &str) -> Option<u64> {
    let parts: Vec<&str> = acknowledge.split('.').collect();
    let position = if parts.len() > 9 { 6 } else { 4 };
    parts.get(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::deliveries;

    #[test]
    fn number_of_deliveries_is_part_of_the_acknowledgement() {
        assert_eq!(deliveries("$JS.ACK.jobs.gemini.3.17.20.1700000000000000000.5"), Some(3));
        assert_eq!(deliveries("$JS.ACK.hub.ACC.jobs.gemini.2.17.20.1700000000000000000.5.rnd"), Some(2));
        assert_eq!(deliveries("other"), None);
    }
}
