//! What an operator sees and does: the status of experiments and workers, and pausing, resuming and cancelling.

use super::budget::{self, dollars};
use super::spec::{EXPERIMENTS, ExperimentRecord, ExperimentState, WORKERS, WorkerStatus};
use crate::execute::now_ms;
use crate::store::{Experiment, StoreError};
use agentline_queue::{JobCounts, Queue, QueueError, QueueRecord, check_part};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time after which every worker that can reach the queue knows that an experiment was cancelled.
pub(super) const NOTICE: Duration = Duration::from_secs(3);

/// How often the removal of an experiment looks for claims.
const POLL: Duration = Duration::from_millis(500);

/// The status of an experiment in a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExperimentStatus {
    /// The name in the queue.
    pub id: String,
    /// The name of the suite.
    pub name: String,
    /// Whether its jobs are executed.
    pub state: ExperimentState,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// The number of jobs by their state.
    pub counts: JobCounts,
    /// What its runs have cost in US dollars; only known if it has a cost limit.
    pub spent_usd: f64,
    /// What is reserved for the runs in progress in US dollars.
    pub reserved_usd: f64,
    /// The cost limit in US dollars.
    pub limit_usd: Option<f64>,
    /// The number of executions beside those with the results.
    pub duplicates: u64,
    /// What they cost in US dollars, as far as it is known or was reserved.
    pub duplicates_usd: f64,
    /// The workers that have a run of the experiment, or could have one.
    pub workers: BTreeMap<String, WorkerStatus>,
}

/// Reads the record of an experiment, and its revision.
pub(super) async fn read(queue: &dyn Queue, id: &str) -> Result<Option<(ExperimentRecord, u64)>, QueueError> {
    check_part(id)?;
    let record = queue.record(&format!("{EXPERIMENTS}.{id}")).await?;
    Ok(record.and_then(|record| Some((serde_json::from_slice(&record.value).ok()?, record.revision))))
}

/// Reads the record of an experiment; `None` if its name or its value is invalid.
pub(super) fn parse(record: &QueueRecord) -> Option<(&str, ExperimentRecord)> {
    let id = record.name.strip_prefix(EXPERIMENTS)?.strip_prefix('.')?;
    check_part(id).ok()?;
    Some((id, serde_json::from_slice(&record.value).ok()?))
}

/// Returns the names and states of all experiments in a queue, the oldest first.
///
/// # Errors
/// Fails if the queue cannot be reached.
pub async fn experiments(queue: &dyn Queue) -> Result<Vec<(String, String, ExperimentState)>, QueueError> {
    let mut found: Vec<(u64, String, ExperimentRecord)> = Vec::new();
    for record in queue.records(EXPERIMENTS).await? {
        if let Some((id, experiment)) = parse(&record) {
            found.push((experiment.submitted_ms, id.to_owned(), experiment));
        }
    }
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    Ok(found.into_iter().map(|(_, id, experiment)| (id, experiment.name, experiment.state)).collect())
}

/// Returns all workers by their name.
pub(super) async fn workers(queue: &dyn Queue) -> Result<BTreeMap<String, WorkerStatus>, QueueError> {
    let records = queue.records(WORKERS).await?;
    let status = |record: QueueRecord| {
        let name = record.name.strip_prefix(WORKERS)?.strip_prefix('.')?.to_owned();
        check_part(&name).ok()?;
        Some((name, WorkerStatus::read(&record, now_ms())?))
    };
    Ok(records.into_iter().filter_map(status).collect())
}

/// Returns the status of an experiment; `None` if the queue does not have it.
///
/// # Errors
/// Fails if the queue cannot be reached.
pub async fn status(queue: &dyn Queue, id: &str) -> Result<Option<ExperimentStatus>, QueueError> {
    let Some((record, _)) = read(queue, id).await? else { return Ok(None) };
    let counts = queue.counts(id).await?;
    let (budget, _) = budget::read(queue, id).await?;
    Ok(Some(ExperimentStatus {
        id: id.to_owned(),
        name: record.name,
        state: record.state,
        submitted_ms: record.submitted_ms,
        counts,
        spent_usd: dollars(budget.spent),
        reserved_usd: dollars(budget.reserved()),
        limit_usd: record.cost.map(|cost| cost.usd),
        duplicates: budget.duplicates,
        duplicates_usd: dollars(budget.duplicates_cost),
        workers: workers(queue).await?,
    }))
}

/// Changes the state of an experiment, and returns the earlier one; `None` if the queue does not have it.
///
/// # Errors
/// Fails if the queue cannot be reached.
pub async fn set_state(
    queue: &dyn Queue,
    id: &str,
    state: ExperimentState,
) -> Result<Option<ExperimentState>, QueueError> {
    let name = format!("{EXPERIMENTS}.{id}");
    loop {
        let Some((mut record, revision)) = read(queue, id).await? else { return Ok(None) };
        let before = std::mem::replace(&mut record.state, state);
        // A cancelled or finished experiment stays so.
        let is_over = matches!(before, ExperimentState::Cancelled | ExperimentState::Finished);
        if is_over || before == state {
            return Ok(Some(before));
        }
        let value = serde_json::to_vec(&record).unwrap_or_default();
        match queue.write_record(&name, &value, revision).await {
            Ok(_) => return Ok(Some(before)),
            Err(QueueError::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes an experiment from a queue, with its jobs, results and artifacts, as soon as no worker has a run of it: a run
/// that ends later would leave its artifacts behind. Workers stop the runs of a cancelled experiment; a claim of a worker
/// that is lost lasts as long as its lease.
///
/// # Errors
/// Fails if the queue cannot be reached.
pub async fn delete(queue: &dyn Queue, id: &str) -> Result<(), QueueError> {
    set_state(queue, id, ExperimentState::Cancelled).await?;
    let begun = Instant::now();
    // A worker that does not know of the end yet may claim one more job.
    while begun.elapsed() < NOTICE || queue.counts(id).await?.claimed > 0 {
        tokio::time::sleep(POLL).await;
    }
    queue.remove(id).await?;
    queue.remove_record(&format!("{}.{id}", budget::BUDGETS)).await?;
    queue.remove_record(&format!("{EXPERIMENTS}.{id}")).await
}

/// Returns the name in its queue of the experiment that was submitted from a directory; `None` if none was.
///
/// # Errors
/// Fails if there is no experiment in the directory.
pub fn submitted_id(dir: &std::path::Path) -> Result<Option<String>, StoreError> {
    let experiment = Experiment::read(dir)?;
    Ok(super::submission::StoredSubmission::stored(&experiment)?.map(|submission| submission.id))
}
