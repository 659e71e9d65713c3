//! Pages of results: the messages of a stream from a sequence on.

use super::requests::{Requests, unavailable};
use super::streams::{self, Kind};
use super::{IN_FLIGHT, NatsQueue};
use crate::{Cursor, QueueError, ResultPage, StoredResult, check_part};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, RawMessageErrorKind, Stream};
use futures_util::StreamExt;

/// The number of bytes after which a page ends.
const PAGE_SIZE: usize = 16 << 20;
/// The number of bytes that are requested before the first answer is awaited, if results have their average size.
const BYTES_REQUESTED: u64 = 8 << 20;

impl NatsQueue {
    pub(super) async fn read_results(
        &self,
        experiment: &str,
        after: &Cursor,
        most: usize,
    ) -> Result<ResultPage, QueueError> {
        check_part(experiment)?;
        let after = parse(after)?;
        let name = streams::name(Kind::Result, experiment);
        let mut page = ResultPage { results: Vec::new(), next: Cursor(after.to_string()) };
        let Some(state) = self.requests.state(&name).await? else { return Ok(page) };
        let first = (after + 1).max(state.first_sequence);
        let last = state.last_sequence.min(first.saturating_add(most as u64).saturating_sub(1));
        let average = state.bytes / state.messages.max(1);
        let in_flight = (BYTES_REQUESTED / (average + 1)).clamp(1, IN_FLIGHT as u64);
        let stream = self.requests.stream(&name).await?;
        let reads = (first..=last).map(|sequence| read(&self.requests, &stream, sequence));
        let mut messages =
            futures_util::stream::iter(reads).buffered(usize::try_from(in_flight).unwrap_or(1));
        let mut size = 0;
        while size < PAGE_SIZE
            && let Some(message) = messages.next().await
        {
            let Some(message) = message? else { continue };
            page.next = Cursor(message.sequence.to_string());
            size += message.payload.len();
            let job = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
            page.results.push(StoredResult { job, result: message.payload.into() });
        }
        Ok(page)
    }
}

/// Reads one message; `None` if it was deleted.
async fn read(
    requests: &Requests,
    stream: &Stream<()>,
    sequence: u64,
) -> Result<Option<StreamMessage>, QueueError> {
    requests.ready().await?;
    match requests.answered(stream.direct_get(sequence)).await? {
        Ok(message) => return Ok(Some(message)),
        Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
        Err(error) => return Err(unavailable(error)),
    }
    // A replica that is behind answers so too; the leader knows.
    match requests.answered(stream.get_raw_message(sequence)).await? {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(unavailable(error)),
    }
}

fn parse(cursor: &Cursor) -> Result<u64, QueueError> {
    if cursor.0.is_empty() {
        return Ok(0);
    }
    cursor.0.parse().map_err(|_| QueueError::Refused(format!("`{}` is not a position in results", cursor.0)))
}
