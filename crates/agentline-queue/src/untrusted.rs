//! Leaves out what an engine returns with an invalid name. Other programs may write to it.

use crate::{Cursor, Lease, QueueError, QueueRecord, ResultPage, check_name, check_part};

/// Returns a claim, unless its names are invalid. Another program than agentline may have written the job.
pub(crate) fn valid_lease(lease: Option<Lease>) -> Option<Lease> {
    lease.filter(|lease| check_part(&lease.experiment).is_ok() && check_part(&lease.job).is_ok())
}

/// Returns the records that have valid names.
pub(crate) fn valid_records(mut records: Vec<QueueRecord>) -> Vec<QueueRecord> {
    records.retain(|record| check_name(&record.name).is_ok());
    records
}

/// Reads pages until one has a result of a job with a valid name, and leaves the others out.
pub(crate) async fn valid_results<F: Future<Output = Result<ResultPage, QueueError>>>(
    after: &Cursor,
    read: impl Fn(Cursor) -> F,
) -> Result<ResultPage, QueueError> {
    let mut after = after.clone();
    loop {
        let mut page = read(after).await?;
        let is_last = page.results.is_empty();
        page.results.retain(|stored| check_part(&stored.job).is_ok());
        if is_last || !page.results.is_empty() {
            return Ok(page);
        }
        after = page.next;
    }
}
