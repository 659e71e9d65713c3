//! Brings results from a queue into the directory of an experiment.

use crate::distributed::spec::{ExperimentRecord, JobResult};
use crate::distributed::{DistributedError, control};
use crate::execute::{BatchError, now_ms};
use crate::result::{RunResult, try_dir};
use crate::store::{Experiment, TryCost};
use agentline::Problem;
use agentline_core::error_chain;
use agentline_fs::remove::remove_tree;
use agentline_queue::{Cursor, Queue, QueueError, TreeError, TreeLimits, TreeRef, check_part, download_tree};
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of results that are read at once.
const PAGE: usize = 100;

/// Brings results into an experiment's directory.
pub(super) struct Importer<'a> {
    pub(super) queue: &'a dyn Queue,
    /// The name of the experiment in the queue.
    pub(super) id: &'a str,
    pub(super) experiment: &'a Mutex<Experiment>,
}

impl Importer<'_> {
    fn experiment(&self) -> MutexGuard<'_, Experiment> {
        self.experiment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Downloads the files of a run, and returns its result as this experiment has it. The run is named by the submitter,
    /// because a worker is not trusted with that.
    pub(super) async fn import(
        &self,
        key: &str,
        (case, variant, attempt): (&str, &str, u32),
        stored: JobResult,
    ) -> Result<RunResult, DistributedError> {
        let JobResult { mut result, files, tries, .. } = stored;
        for (ending, cost) in tries {
            let (number, _) = self.experiment().begin_try(key, now_ms()).map_err(BatchError::from)?;
            let cost = TryCost::of_agent(cost);
            self.experiment().end_try(key, number, &ending, cost, now_ms()).map_err(BatchError::from)?;
        }
        let (number, dir) = self.experiment().begin_try(key, now_ms()).map_err(BatchError::from)?;
        if let Some(files) = files {
            remove_tree(&dir);
            match self.download(&files, &dir).await {
                Ok(()) => {}
                Err(TreeError::Queue(error)) if error.is_temporary() => return Err(error.into()),
                Err(error) => result.not_stored = Some(error_chain(&error)),
            }
        }
        result.key = key.to_owned();
        case.clone_into(&mut result.case);
        variant.clone_into(&mut result.variant);
        (result.attempt, result.tries) = (attempt, number);
        result.dir = try_dir(key, number);
        Ok(result)
    }

    async fn download(&self, tree: &TreeRef, target: &Path) -> Result<(), TreeError> {
        let artifacts = self.queue.artifacts();
        // A worker is not trusted with links to files of this machine.
        let mut limits = TreeLimits::default();
        limits.outer_links = false;
        download_tree(&*artifacts, self.id, tree, target, limits).await
    }
}

/// Makes an experiment in an empty directory from what a queue has, for a report.
///
/// # Errors
/// Fails if the queue does not have the experiment.
pub async fn fetch_results(queue: &dyn Queue, id: &str, dir: &Path) -> Result<(), DistributedError> {
    let Some((record, _)) = control::read(queue, id).await? else {
        let problem = Problem::new("EXPERIMENT", format!("the queue has no experiment `{id}`"));
        return Err(DistributedError::Invalid(
            problem.hint("`agentline batch status --queue URL` lists those that it has").into(),
        ));
    };
    let experiment = Experiment::open(dir).map_err(BatchError::from)?;
    let experiment = Mutex::new(experiment);
    let values = stored_values(queue, id, &record).await?;
    for (name, value) in values {
        let stored = experiment.lock().unwrap_or_else(PoisonError::into_inner).set_meta(&name, &value);
        stored.map_err(BatchError::from)?;
    }
    let importer = Importer { queue, id, experiment: &experiment };
    let mut cursor = Cursor::default();
    loop {
        let page = queue.results(id, &cursor, PAGE).await?;
        if page.results.is_empty() {
            return Ok(());
        }
        for stored in page.results {
            check_part(&stored.job)?;
            let Ok(result) = serde_json::from_slice::<JobResult>(&stored.result) else { continue };
            let row = &result.result;
            let (case, variant, attempt) = (row.case.clone(), row.variant.clone(), row.attempt);
            let result = importer.import(&stored.job, (&case, &variant, attempt), result).await?;
            let committed = experiment.lock().unwrap_or_else(PoisonError::into_inner).commit(&result);
            committed.map_err(BatchError::from)?;
        }
        cursor = page.next;
    }
}

async fn stored_values(
    queue: &dyn Queue,
    id: &str,
    record: &ExperimentRecord,
) -> Result<Vec<(String, String)>, DistributedError> {
    let failed = |error: std::io::Error| DistributedError::Files(error.to_string());
    let dir = tempfile::tempdir().map_err(failed)?;
    let path = dir.path().join("suite.json");
    download_tree(&*queue.artifacts(), id, &record.suite, &path, TreeLimits::default()).await?;
    let text = std::fs::read(&path).map_err(failed)?;
    let values: Vec<(String, String)> = serde_json::from_slice(&text)
        .map_err(|error| DistributedError::Files(format!("the suite cannot be read: {error}")))?;
    // What belongs to the submitting directory stays there.
    let own = [crate::distributed::submission::META, "lanes", "rerun"];
    Ok(values.into_iter().filter(|(name, _)| !own.contains(&name.as_str())).collect())
}

/// Removes the artifacts of a finished experiment that no result needs: templates, cases, and what lost workers left.
pub(super) async fn remove_orphans(queue: &dyn Queue, id: &str) -> Result<(), QueueError> {
    let mut needed: HashSet<u64> = HashSet::new();
    if let Some((record, _)) = control::read(queue, id).await? {
        needed.extend(record.suite.pieces.iter().filter_map(|name| shortened(name)));
    }
    let mut cursor = Cursor::default();
    loop {
        let page = queue.results(id, &cursor, PAGE).await?;
        if page.results.is_empty() {
            break;
        }
        for stored in page.results {
            if let Ok(result) = serde_json::from_slice::<JobResult>(&stored.result) {
                let pieces = result.files.iter().flat_map(|files| &files.pieces);
                needed.extend(pieces.filter_map(|name| shortened(name)));
            }
        }
        cursor = page.next;
    }
    let artifacts = queue.artifacts();
    let mut orphans = Vec::new();
    let mut visit = |name: &str| {
        if shortened(name).is_none_or(|name| !needed.contains(&name)) {
            orphans.push(name.to_owned());
        }
    };
    artifacts.for_each_name(id, &mut visit).await?;
    for name in orphans {
        artifacts.remove(id, &name).await?;
    }
    Ok(())
}

/// Shortens the name of an artifact, so that many names need little memory. If two are shortened to the same number, an
/// artifact that no result needs stays until its experiment is deleted.
fn shortened(name: &str) -> Option<u64> {
    u64::from_str_radix(name.get(..16)?, 16).ok()
}
