//! The result of a job: its files are stored, it is committed, and its cost is settled.

use super::{JobTask, LOST, NoResult, is_temporary, queue_error};
use crate::class::{Class, ClassTable};
use crate::distributed::DistributedError;
use crate::distributed::budget::micros;
use crate::distributed::spec::{JobPayload, JobResult};
use crate::distributed::unpack::{JobNames, UnpackedRun};
use crate::distributed::worker::WorkerEvent;
use crate::execute::now_ms;
use crate::result::RunResult;
use agentline::FailureKind;
use agentline_core::error_chain;
use agentline_queue::{CommitResult, QueueError, TreeError, TreeLimits, TreeRef, upload_tree};
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

/// The size of what one run leaves in its directory, in bytes.
const LARGEST_RESULT: u64 = 512 << 20;

/// How long the files of a run that has ended are stored after the worker was told to stop its runs.
const UPLOAD_GRACE: Duration = Duration::from_secs(10);

impl JobTask {
    /// Commits the result of a job that cannot be read. The submitter names the run.
    pub(super) async fn commit_unreadable(&self, message: String) -> Result<Class, NoResult> {
        self.commit_with(self.without_execution(None, 0, message), None, Vec::new()).await
    }

    /// Commits the result of a job that cannot be executed.
    pub(super) async fn commit_broken(
        &self,
        payload: &JobPayload,
        message: String,
    ) -> Result<Class, NoResult> {
        // The error may be that the artifact with the names cannot be read.
        let names = self.until_stopped(self.names_of(payload)).await?.ok();
        let result = self.without_execution(names.as_ref(), payload.attempt, message);
        if self.claims > 1 {
            self.count_lost(false).await?;
        }
        self.commit_with(result, None, Vec::new()).await
    }

    /// Commits the result of a job that was claimed too often.
    pub(super) async fn give_up(&self, payload: &JobPayload) -> Result<Class, NoResult> {
        let names = match self.until_stopped(self.names_of(payload)).await? {
            Ok(names) => Some(names),
            Err(error) if error.is_of_worker() => return Err(NoResult::of_worker(&error)),
            Err(_) => None,
        };
        self.count_lost(false).await?;
        let most = self.experiment.max_claims;
        let message = format!("claimed {most} times, and no worker could finish it");
        let mut result = self.without_execution(names.as_ref(), payload.attempt, message);
        if let Some(names) = names.filter(|names| !names.is_repeatable) {
            interrupt(&mut result, &names.classes);
            result.message = Some(LOST.to_owned());
        }
        self.commit_with(result, None, Vec::new()).await
    }

    async fn names_of(&self, payload: &JobPayload) -> Result<JobNames, DistributedError> {
        self.retried(|| self.shared.files.names(&self.names.0, payload)).await
    }

    /// Returns the result of a job that was not executed.
    fn without_execution(&self, names: Option<&JobNames>, attempt: u32, message: String) -> RunResult {
        let mut result = RunResult::broken(&self.names.1, 1, message);
        (result.attempt, result.finished_ms) = (attempt, now_ms());
        if let Some(names) = names {
            result.case.clone_from(&names.case);
            result.variant.clone_from(&names.variant);
        }
        result
    }

    /// Commits the result of a run that was interrupted and must not be executed again.
    pub(super) async fn commit_interrupted(
        &self,
        unpacked: &UnpackedRun,
        message: &str,
    ) -> Result<Class, NoResult> {
        let begun = self.shared.run.experiment().begin_try(&self.local_key, now_ms());
        let number = begun.map_or(1, |(number, _)| number);
        let mut result = self.attempt(unpacked).broken(number, message.to_owned());
        interrupt(&mut result, &unpacked.suite.classes);
        self.commit(result).await
    }

    /// Stores the files of a run, and commits its result.
    pub(super) async fn commit(&self, mut result: RunResult) -> Result<Class, NoResult> {
        let dir = self.shared.run.experiment().dir().join(&result.dir);
        let stored = tokio::select! {
            stored = self.retried_if(may_pass, || async { Ok(self.upload(&dir).await?) }) => {
                stored.map_err(|error| error_chain(&error))
            }
            () = self.upload_time_is_over() => Err("the worker was stopped".to_owned()),
        };
        let files = match stored {
            Ok(files) => Some(files),
            Err(reason) => {
                let event = WorkerEvent::NotStored { run: self.run(), reason: reason.clone() };
                let _ = self.shared.events.send(event);
                result.not_stored = Some(reason);
                None
            }
        };
        let tries = self.shared.run.experiment().ended_tries(&self.local_key).unwrap_or_default();
        result.key.clone_from(&self.names.1);
        self.commit_with(result, files, tries).await
    }

    async fn upload(&self, dir: &Path) -> Result<TreeRef, TreeError> {
        let mut limits = TreeLimits::default();
        limits.size = LARGEST_RESULT;
        let artifacts = self.shared.queue.artifacts();
        upload_tree(&*artifacts, &self.names.0, dir, limits).await
    }

    /// Waits until a result is committed without its files. Without a claim, it is not committed anyway.
    async fn upload_time_is_over(&self) {
        self.stopped().await;
        if self.lease.lost().is_none() {
            tokio::time::sleep(UPLOAD_GRACE).await;
        }
    }

    async fn commit_with(
        &self,
        result: RunResult,
        files: Option<TreeRef>,
        tries: Vec<(String, Option<f64>)>,
    ) -> Result<Class, NoResult> {
        let mut class = result.class;
        let of_tries = tries.iter().filter_map(|(_, cost)| *cost).sum::<f64>();
        let spent = result.cost_now().or_else(|| result.is_free().then_some(0.0)).map(|cost| cost + of_tries);
        self.add_spent(spent);
        let worker = self.shared.options.name.clone();
        let mut result = JobResult { result, files, tries, claims: self.claims, worker };
        let mut committed = self.commit_bytes(&result).await;
        if let Err(QueueError::TooLarge { size, most, .. }) = committed {
            let message = format!("the result has {size} bytes; the queue accepts {most}");
            result.result.reduce(message);
            class = result.result.class;
            committed = self.commit_bytes(&result).await;
        }
        if !matches!(committed, Err(ref error) if !matches!(error, QueueError::LeaseLost)) {
            self.settle(spent.map(micros)).await;
        }
        if committed.is_ok() && self.claims > 1 {
            // Nothing more is counted for the job.
            let _ = self.update_budget(|budget| budget.forget_repeated(&self.names.1)).await;
        }
        match committed {
            Ok(CommitResult::Committed) => {
                self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).committed += 1;
                Ok(class)
            }
            Ok(CommitResult::Duplicate) | Err(QueueError::LeaseLost) => {
                let reason = self.lease.lost();
                Err(NoResult::Lost(
                    reason.unwrap_or_else(|| "another worker has committed or claimed it".into()),
                ))
            }
            // The run was executed, and the queue may even have the result. A job that is given back would not count as
            // claimed, so the claim ends by itself.
            Err(error) => Err(NoResult::Lost(error_chain(&error))),
        }
    }

    async fn commit_bytes(&self, result: &JobResult) -> Result<CommitResult, QueueError> {
        let bytes = serde_json::to_vec(result).unwrap_or_default();
        self.lease.commit(&bytes, |failing_since| self.may_retry(failing_since)).await
    }
}

/// Returns whether an error while files are stored may pass: a shared directory may have space again.
fn may_pass(error: &DistributedError) -> bool {
    is_temporary(error) || matches!(queue_error(error), Some(QueueError::Storage(..)))
}

/// Makes a result that of an interrupted run.
fn interrupt(result: &mut RunResult, classes: &ClassTable) {
    result.kind = Some(FailureKind::Interrupted);
    result.class = classes.of_interrupted();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_run_has_the_class_that_the_suite_gives_it() {
        let mut result = RunResult::broken("00", 1, String::new());
        interrupt(&mut result, &ClassTable::default());
        assert_eq!((result.class, result.kind), (Class::Infrastructure, Some(FailureKind::Interrupted)));
        interrupt(&mut result, &ClassTable([("interrupted".to_owned(), Class::Failed)].into()));
        assert_eq!(result.class, Class::Failed);
    }
}
