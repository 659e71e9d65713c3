//! The submitter: hands the runs of a suite to workers, and collects their results.

mod costs;
mod import;
mod settle;
mod spending;
#[cfg(test)]
mod tests;

use super::package::{SuitePackage, package};
use super::spec::{EXPERIMENTS, ExperimentRecord, ExperimentState, FORMAT, JobResult};
use super::submission::StoredSubmission;
use super::{DistributedError, control};
use crate::execute::ledger::Ledger;
use crate::execute::limits::{BatchLimitReached, Totals};
use crate::execute::requests::{RequestTable, requests};
use crate::execute::suite_runs::{run_keys, store_suite};
use crate::execute::{BatchError, BatchEvent, BatchShutdown, BatchSummary, Rerun, now_ms};
use crate::result::RunResult;
use crate::store::{Experiment, ImportedRun};
use crate::suite::{RunIndex, Suite, TestCase};
use crate::template;
use agentline::{Agentline, Problem};
use agentline_core::error_chain;
use agentline_fs::digest::hex;
use agentline_queue::{Cursor, Job, Queue, QueueError, TreeError, TreeLimits, upload_tree};
use costs::Costs;
use import::Importer;
pub use import::fetch_results;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// The number of jobs that are submitted at once.
const JOBS: usize = 1000;

/// The number of results that are read at once.
const PAGE: usize = 100;

/// How long the submitter waits for results before it looks again.
const POLL: Duration = Duration::from_secs(1);

/// How often the submitter looks at the workers.
const LOOK: Duration = Duration::from_secs(2);

/// How runs are handed to workers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubmitOptions {
    /// Which runs with a result are executed again.
    pub rerun: Rerun,
    /// Whether the batch ends as soon as the comparison of its two variants is decided.
    pub until_decided: bool,
    /// Whether the cost limit may never be exceeded.
    pub strict_budget: bool,
    /// How often a job is claimed before it counts as an infrastructure failure.
    pub max_claims: u32,
}

impl Default for SubmitOptions {
    fn default() -> Self {
        Self { rerun: Rerun::None, until_decided: false, strict_budget: false, max_claims: 3 }
    }
}

/// Hands the runs of a suite that have no result to the workers of a queue, and waits for their results. A batch that
/// was interrupted attaches to what it submitted.
///
/// # Errors
/// Fails before anything is submitted if the settings are invalid or cannot be distributed.
pub async fn run_on_queue(
    agentline: &Agentline,
    mut suite: Suite,
    experiment: Experiment,
    queue: Arc<dyn Queue>,
    options: SubmitOptions,
    stop: watch::Receiver<BatchShutdown>,
    events: mpsc::UnboundedSender<BatchEvent>,
) -> Result<BatchSummary, DistributedError> {
    if suite.shares_workspace {
        let problem = Problem::new("share_workspace", "workers cannot share a workspace");
        return Err(DistributedError::Invalid(problem.hint("remove it, or run without --queue").into()));
    }
    if options.until_decided && suite.variants.len() != 2 {
        let problem = Problem::new("--until-decided", "needs exactly two variants");
        return Err(DistributedError::Invalid(problem.hint("use a suite with two variants").into()));
    }
    let requests = requests(agentline, &suite)?;
    let costs = Costs::new(agentline, &suite, &requests, options.strict_budget)?;
    let pinned = template::pin_revisions(&mut suite)
        .map_err(|error| BatchError::Io("a workspace cannot be read".into(), error))?;
    let keys = run_keys(agentline, &suite)?;
    store_suite(agentline, &suite, &keys, &pinned, &experiment)?;
    let suite = Arc::new(suite);
    let mut ledger =
        Ledger::begin(&experiment, Arc::clone(&suite), keys, options.rerun, options.until_decided)?;
    let _ = events.send(ledger.began());
    for (run, result) in ledger.commit_interrupted(&experiment)? {
        let _ = events.send(BatchEvent::RunEnded { run, result: Some(Box::new(result)) });
    }
    let totals = Totals::new(suite.limits.clone());
    let mut submitter = Submitter {
        cwd: agentline.host_env().cwd.clone(),
        suite,
        requests,
        costs,
        experiment: Mutex::new(experiment),
        queue,
        options,
        ledger,
        totals,
        stop,
        events,
        is_reachable: true,
    };
    submitter.run().await
}

/// Waits until the batch is stopped.
async fn stopped(mut stop: watch::Receiver<BatchShutdown>) -> BatchShutdown {
    let stopped = stop.wait_for(|stop| *stop != BatchShutdown::None).await.map(|stop| *stop).ok();
    match stopped {
        Some(stop) => stop,
        // It cannot be stopped any more.
        None => std::future::pending().await,
    }
}

/// Returns a digest of what a case says besides what is in the keys of its runs.
fn case_digest(case: &TestCase) -> [u8; 32] {
    let checks: Vec<_> = case.checks.iter().map(|check| &check.written).collect();
    let repeatable: Vec<bool> = (0..case.prompts.len()).map(|variant| case.is_repeatable(variant)).collect();
    let described =
        serde_json::json!([case.id, checks, case.hidden, case.teardown, repeatable, case.worker_labels]);
    Sha256::digest(described.to_string()).into()
}

struct Submitter {
    suite: Arc<Suite>,
    requests: RequestTable,
    costs: Costs,
    cwd: std::path::PathBuf,
    experiment: Mutex<Experiment>,
    queue: Arc<dyn Queue>,
    options: SubmitOptions,
    ledger: Ledger,
    totals: Totals,
    stop: watch::Receiver<BatchShutdown>,
    events: mpsc::UnboundedSender<BatchEvent>,
    is_reachable: bool,
}

/// Why the submitter stops waiting for results.
enum End {
    Complete,
    Limit(BatchLimitReached),
    Decided,
    Cancelled,
    Detached(BatchShutdown),
}

impl Submitter {
    fn experiment(&self) -> MutexGuard<'_, Experiment> {
        self.experiment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&mut self) -> Result<BatchSummary, DistributedError> {
        let digest = self.digest();
        let known = StoredSubmission::stored(&self.experiment()).map_err(BatchError::from)?;
        let mut submission = match known {
            Some(known) => self.attach(known, &digest).await?,
            None => None,
        };
        let stop = *self.stop.borrow();
        if submission.is_none() && self.ledger.remaining() > 0 && stop == BatchShutdown::None {
            submission = Some(self.new_submission(digest)?);
        }
        let Some(mut submission) = submission else {
            return Ok(self.ledger.summary(&self.experiment(), None, stop)?);
        };
        if !submission.is_complete
            && let Some(stop) = self.submit(&mut submission).await?
        {
            // The next start submits the rest.
            return Ok(self.ledger.summary(&self.experiment(), None, stop)?);
        }
        let end = self.collect(&mut submission).await?;
        let (mut limit, mut is_cancelled, mut stop) = (None, false, BatchShutdown::None);
        match end {
            End::Complete => self.finish(&submission).await?,
            End::Decided => self.end_early(&mut submission).await?,
            End::Limit(reached) => {
                limit = Some(reached);
                self.end_early(&mut submission).await?;
            }
            End::Cancelled => {
                is_cancelled = true;
                let _ = settle::remove_leftovers(&*self.queue, &submission.id).await;
            }
            End::Detached(by) => stop = by,
        }
        let mut summary = self.ledger.summary(&self.experiment(), limit, stop)?;
        summary.is_cancelled = is_cancelled && summary.remaining > 0;
        Ok(summary)
    }

    /// Returns a digest of everything that the workers get. It does not depend on the order of the cases.
    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for key in self.ledger.keys().sorted() {
            hash.update(key);
        }
        hash.update(serde_json::json!(self.suite.classes.0).to_string());
        let mut cases: Vec<_> = self.suite.cases.iter().map(case_digest).collect();
        cases.sort_unstable();
        for case in cases {
            hash.update(case);
        }
        let rerun = self.ledger.rerun();
        hash.update(serde_json::json!([rerun, self.costs.limit(), self.options.max_claims]).to_string());
        hex(&hash.finalize())
    }

    /// Returns the submission to attach to. Of another one, the results so far are collected, and it is cancelled.
    async fn attach(
        &mut self,
        mut known: StoredSubmission,
        digest: &str,
    ) -> Result<Option<StoredSubmission>, DistributedError> {
        let record = self.reached(|queue| {
            let id = known.id.clone();
            async move { control::read(&*queue, &id).await }
        });
        let Some((record, _)) = record.await? else {
            if !known.is_complete && known.digest != digest {
                // It was interrupted while it was submitted, and no one else knows its name.
                let id = known.id.clone();
                self.reached(|queue| {
                    let id = id.clone();
                    async move { queue.remove(&id).await }
                })
                .await?;
            }
            return Ok((!known.is_complete && known.digest == digest).then_some(known));
        };
        let is_open = matches!(record.state, ExperimentState::Running | ExperimentState::Paused);
        if known.digest == digest && is_open {
            return Ok(Some(known));
        }
        self.import_all(&mut known).await?;
        if is_open {
            let id = known.id.clone();
            self.reached(|queue| {
                let id = id.clone();
                async move { control::set_state(&*queue, &id, ExperimentState::Cancelled).await }
            })
            .await?;
        }
        self.settle(&mut known, &record).await?;
        Ok(None)
    }

    fn new_submission(&self, digest: String) -> Result<StoredSubmission, DistributedError> {
        let name: String =
            self.suite.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name: String = name.trim_matches('-').chars().take(40).collect();
        let suffix = &uuid::Uuid::new_v4().simple().to_string()[..8];
        let id = if name.is_empty() { suffix.to_owned() } else { format!("{name}-{suffix}") };
        let submission = StoredSubmission { id, digest, is_complete: false, cursor: Cursor::default() };
        submission.store(&self.experiment())?;
        Ok(submission)
    }

    /// Puts the runs without a result into the queue. Returns whether it was stopped meanwhile.
    async fn submit(
        &mut self,
        submission: &mut StoredSubmission,
    ) -> Result<Option<BatchShutdown>, DistributedError> {
        loop {
            let submitted = tokio::select! {
                biased;
                stop = stopped(self.stop.clone()) => return Ok(Some(stop)),
                submitted = self.try_submit(&submission.id) => submitted,
            };
            match submitted {
                Err(DistributedError::Queue(error) | DistributedError::Tree(TreeError::Queue(error)))
                    if error.is_temporary() =>
                {
                    self.unreachable(&error).await?;
                }
                Ok(()) => break,
                Err(error) => return Err(error),
            }
        }
        self.is_back();
        submission.is_complete = true;
        submission.store(&self.experiment())?;
        Ok(None)
    }

    async fn try_submit(&self, id: &str) -> Result<(), DistributedError> {
        let artifacts = self.queue.artifacts();
        let mut runs = self.ledger.runs_without_result();
        let package = package(&*artifacts, id, &self.suite, &self.requests, runs.clone(), &self.cwd).await?;
        let record = ExperimentRecord {
            format: FORMAT,
            name: self.suite.name.clone(),
            state: ExperimentState::Running,
            submitted_ms: now_ms(),
            jobs: runs.clone().count() as u64,
            routes: package.requirements(),
            cost: self.costs.limit(),
            max_claims: self.options.max_claims,
            suite: self.store_values(id).await?,
        };
        // Workers see the experiment when its jobs are there.
        loop {
            let jobs: Vec<Job> = runs.by_ref().take(JOBS).map(|run| self.job(&package, run)).collect();
            if jobs.is_empty() {
                break;
            }
            self.queue.enqueue(id, &jobs).await?;
        }
        let value = serde_json::to_vec(&record).unwrap_or_default();
        match self.queue.write_record(&format!("{EXPERIMENTS}.{id}"), &value, 0).await {
            // It was written before this program was interrupted.
            Ok(_) | Err(QueueError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn job(&self, package: &SuitePackage, run: RunIndex) -> Job {
        let reserve = self.costs.reserve_for(&self.suite.cases[run.case], run.variant, &self.requests);
        package.job(run, self.ledger.keys().key(run), reserve)
    }

    /// Stores the values of the experiment's store, so that others can make a report.
    async fn store_values(&self, id: &str) -> Result<agentline_queue::TreeRef, DistributedError> {
        let failed = |error: io::Error| DistributedError::Files(error.to_string());
        let dir = tempfile::tempdir().map_err(failed)?;
        let path = dir.path().join("suite.json");
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        self.experiment().write_meta(&mut file, import::is_for_report).map_err(failed)?;
        file.flush().map_err(failed)?;
        Ok(upload_tree(&*self.queue.artifacts(), id, &path, TreeLimits::default()).await?)
    }

    /// Imports results until there is nothing to wait for.
    async fn collect(&mut self, submission: &mut StoredSubmission) -> Result<End, DistributedError> {
        let out_of_time = self.totals.out_of_time();
        tokio::pin!(out_of_time);
        let mut looked: Option<Instant> = None;
        loop {
            let stop = *self.stop.borrow_and_update();
            if stop != BatchShutdown::None {
                return Ok(End::Detached(stop));
            }
            let imported = self.import_page(submission).await?;
            if self.ledger.remaining() == 0 {
                return Ok(End::Complete);
            }
            if let Some(limit) = self.totals.reached() {
                return Ok(End::Limit(limit));
            }
            if self.ledger.is_decided() {
                return Ok(End::Decided);
            }
            if imported > 0 {
                continue;
            }
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                if let Some(end) = self.look(submission).await? {
                    return Ok(end);
                }
            }
            let queue = Arc::clone(&self.queue);
            let mut stop = self.stop.clone();
            tokio::select! {
                _ = tokio::time::timeout(POLL, queue.wait(POLL)) => {}
                _ = stop.changed() => {}
                () = &mut out_of_time => return Ok(End::Limit(BatchLimitReached::Time)),
            }
        }
    }

    /// Looks at the experiment and its workers.
    async fn look(&mut self, submission: &mut StoredSubmission) -> Result<Option<End>, DistributedError> {
        let id = submission.id.clone();
        // Jobs are not counted, because that takes longer.
        let read = async {
            let record = control::read(&*self.queue, &id).await?;
            Ok((record, control::workers(&*self.queue).await?))
        };
        let (record, workers) = match read.await {
            Ok(found) => found,
            Err(error @ QueueError::Unavailable(_)) => return self.unreachable(&error).await.map(|()| None),
            Err(error) => return Err(DistributedError::Queue(error)),
        };
        self.is_back();
        let Some((record, _)) = record else { return Ok(Some(End::Cancelled)) };
        if record.state == ExperimentState::Cancelled {
            return Ok(Some(End::Cancelled));
        }
        if let Some(limit) = self.costs.limit()
            && self.is_spent(submission, limit).await?
        {
            let is_complete = self.ledger.remaining() == 0;
            return Ok(Some(if is_complete { End::Complete } else { End::Limit(BatchLimitReached::Cost) }));
        }
        let runs = workers.values().flat_map(|worker| &worker.runs);
        let runs = runs.filter(|run| run.experiment == id);
        let runs = runs.filter_map(|running| {
            let case = self.suite.cases.iter().position(|case| case.id == running.case)?;
            let variant = self.suite.variants.iter().position(|variant| variant.id == running.variant)?;
            Some(RunIndex { attempt: running.attempt, case, variant })
        });
        let _ = self.events.send(BatchEvent::Workers {
            count: workers.values().filter(|worker| worker.is_alive(now_ms())).count(),
            runs: runs.collect(),
            is_paused: record.state == ExperimentState::Paused,
        });
        Ok(None)
    }

    /// Imports all results that there are.
    async fn import_all(&mut self, submission: &mut StoredSubmission) -> Result<(), DistributedError> {
        while self.import_page(submission).await? > 0 || !self.is_reachable {}
        Ok(())
    }

    /// Imports the next results, and returns their number; 0 if the queue cannot be reached.
    async fn import_page(&mut self, submission: &mut StoredSubmission) -> Result<usize, DistributedError> {
        let page = match self.queue.results(&submission.id, &submission.cursor, PAGE).await {
            Ok(page) => page,
            Err(error) if error.is_temporary() => return self.unreachable(&error).await.map(|()| 0),
            Err(error) => return Err(error.into()),
        };
        self.is_back();
        let count = page.results.len();
        for stored in page.results {
            let Some(run) = self.ledger.keys().find(&stored.job) else { continue };
            if self.ledger.has_result(run) {
                continue;
            }
            let result = match serde_json::from_slice::<JobResult>(&stored.result) {
                Ok(result) => result,
                Err(error) => {
                    let message = import::unreadable(&error);
                    let number = self.begin_try(&stored.job)?;
                    let result = self.ledger.broken_result(run, number, message);
                    self.commit(run, result)?;
                    continue;
                }
            };
            let artifacts = self.queue.artifacts();
            let imported = loop {
                let importer =
                    Importer { artifacts: &*artifacts, id: &submission.id, experiment: &self.experiment };
                let named =
                    (&*self.suite.cases[run.case].id, &*self.suite.variants[run.variant].id, run.attempt);
                match importer.import(&stored.job, named, result.clone()).await {
                    Err(DistributedError::Queue(error)) if error.is_temporary() => {
                        self.unreachable(&error).await?;
                    }
                    imported => break imported?,
                }
            };
            self.commit_imported(run, imported)?;
        }
        if count > 0 {
            submission.cursor = page.next;
            submission.store(&self.experiment())?;
        }
        Ok(count)
    }

    /// Begins a try of a run, and returns its number.
    fn begin_try(&self, key: &str) -> Result<u32, DistributedError> {
        let begun = self.experiment().begin_try(key, now_ms()).map_err(BatchError::from)?;
        Ok(begun.0)
    }

    /// Commits the result of a run to the directory.
    fn commit(&mut self, run: RunIndex, result: RunResult) -> Result<(), DistributedError> {
        self.commit_imported(run, ImportedRun { result, tries: Vec::new() })
    }

    fn commit_imported(&mut self, run: RunIndex, imported: ImportedRun) -> Result<(), DistributedError> {
        let experiment = self.experiment.lock().unwrap_or_else(PoisonError::into_inner);
        self.ledger.commit_imported(&experiment, &imported)?;
        drop(experiment);
        let result = imported.result;
        self.totals.add(&result);
        let _ = self.events.send(BatchEvent::RunEnded { run, result: Some(Box::new(result)) });
        Ok(())
    }

    /// Ends an experiment whose remaining runs are not needed: what is in progress is finished first.
    async fn end_early(&mut self, submission: &mut StoredSubmission) -> Result<(), DistributedError> {
        let id = submission.id.clone();
        self.set_state(&id, ExperimentState::Paused).await?;
        while *self.stop.borrow() == BatchShutdown::None {
            // Counted first: a result that is committed meanwhile is imported.
            let claimed = self.claimed(&id).await?;
            self.import_all(submission).await?;
            if claimed == 0 {
                break;
            }
            let _ = tokio::time::timeout(POLL, self.queue.wait(POLL)).await;
        }
        if self.costs.limit().is_some() {
            self.settle_lost(submission).await?;
        }
        self.set_state(&id, ExperimentState::Cancelled).await?;
        let _ = settle::remove_leftovers(&*self.queue, &id).await;
        Ok(())
    }

    async fn set_state(&mut self, id: &str, state: ExperimentState) -> Result<(), DistributedError> {
        let id = id.to_owned();
        self.reached(|queue| {
            let id = id.clone();
            async move { control::set_state(&*queue, &id, state).await }
        })
        .await?;
        Ok(())
    }

    /// Ends a complete experiment, and removes the artifacts that no result needs.
    async fn finish(&mut self, submission: &StoredSubmission) -> Result<(), DistributedError> {
        self.set_state(&submission.id, ExperimentState::Finished).await?;
        // Whatever stays is removed with the experiment.
        let _ = import::remove_orphans(&*self.queue, &submission.id).await;
        Ok(())
    }

    /// Repeats a request until the queue can be reached.
    async fn reached<T, F: Future<Output = Result<T, QueueError>>>(
        &mut self,
        request: impl Fn(Arc<dyn Queue>) -> F,
    ) -> Result<T, DistributedError> {
        loop {
            match request(Arc::clone(&self.queue)).await {
                Err(error) if error.is_temporary() => self.unreachable(&error).await?,
                ended => {
                    self.is_back();
                    return Ok(ended?);
                }
            }
        }
    }

    /// Reports that the queue cannot be reached, and waits a moment.
    async fn unreachable(&mut self, error: &QueueError) -> Result<(), DistributedError> {
        if std::mem::replace(&mut self.is_reachable, false) {
            let _ = self.events.send(BatchEvent::Unreachable(error_chain(error)));
        }
        let mut stop = self.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = stop.changed() => {}
        }
        if *self.stop.borrow() == BatchShutdown::None {
            Ok(())
        } else {
            Err(DistributedError::Queue(QueueError::Unavailable(error_chain(error))))
        }
    }

    fn is_back(&mut self) {
        if !std::mem::replace(&mut self.is_reachable, true) {
            let _ = self.events.send(BatchEvent::Reconnected);
        }
    }
}
