//! Brings results from a queue into the directory of an experiment.

use crate::distributed::spec::{ExperimentRecord, JobResult};
use crate::distributed::{DistributedError, control};
use crate::execute::{BatchError, now_ms};
use crate::result::{RunResult, try_dir};
use crate::sequence::SEQUENCE_VALUES;
use crate::store::{DESCRIPTION, Experiment, ImportedRun, SELECTED, VARIANT_SETTINGS, is_runs};
use agentline::Problem;
use agentline_core::error_chain;
use agentline_fs::remove::remove_tree;
use agentline_queue::{
    Artifacts, Cursor, Queue, QueueError, TreeError, TreeLimits, TreeRef, check_part, download_tree,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of results that are read at once.
const PAGE: usize = 100;

/// The values of an experiment's store that a report needs, besides those of a comparison and the names of the runs. What
/// else the store has may name what belongs to the submitting machine.
const FOR_REPORT: [&str; 7] =
    ["name", DESCRIPTION, VARIANT_SETTINGS, "cases", SELECTED, "variants", "repeat"];

/// Returns whether a report needs a value of an experiment's store.
pub(super) fn is_for_report(name: &str) -> bool {
    FOR_REPORT.contains(&name) || SEQUENCE_VALUES.contains(&name) || is_runs(name)
}

/// Returns the message of a result that cannot be read.
pub(super) fn unreadable(error: &serde_json::Error) -> String {
    format!("the result of the run cannot be read: {error}")
}

/// Brings results into an experiment's directory.
pub(super) struct Importer<'a> {
    pub(super) artifacts: &'a dyn Artifacts,
    /// The name of the experiment in the queue.
    pub(super) id: &'a str,
    pub(super) experiment: &'a Mutex<Experiment>,
}

impl Importer<'_> {
    fn experiment(&self) -> MutexGuard<'_, Experiment> {
        locked(self.experiment)
    }

    /// Downloads the files of a run, and returns its result as this experiment has it, to be committed. Nothing else is
    /// stored before, so that this can be repeated. The run is named by the submitter, because a worker is not trusted
    /// with that.
    pub(super) async fn import(
        &self,
        key: &str,
        (case, variant, attempt): (&str, &str, u32),
        stored: JobResult,
    ) -> Result<ImportedRun, DistributedError> {
        let JobResult { mut result, files, tries, .. } = stored;
        let received = self.experiment().dir().join("received");
        remove_tree(&received);
        if let Some(files) = files {
            match self.download(&files, &received).await {
                Ok(()) => {}
                // What the submitter cannot read now is not lost.
                Err(TreeError::Queue(error @ QueueError::Storage(_))) => return Err(error.into()),
                Err(TreeError::Queue(error)) if error.is_temporary() => return Err(error.into()),
                Err(error) => {
                    remove_tree(&received);
                    result.not_stored = Some(error_chain(&error));
                }
            }
        }
        let number = self.experiment().place_files(key, tries.len(), &received).map_err(BatchError::from)?;
        result.key = key.to_owned();
        case.clone_into(&mut result.case);
        variant.clone_into(&mut result.variant);
        (result.attempt, result.tries) = (attempt, number);
        result.dir = try_dir(key, number);
        Ok(ImportedRun { result, tries })
    }

    async fn download(&self, tree: &TreeRef, target: &Path) -> Result<(), TreeError> {
        // A worker is not trusted with links to files of this machine.
        let mut limits = TreeLimits::default();
        limits.outer_links = false;
        download_tree(self.artifacts, self.id, tree, target, limits).await
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
        locked(&experiment).set_meta(&name, &value).map_err(BatchError::from)?;
    }
    let names = locked(&experiment).run_names().map_err(BatchError::from)?;
    let artifacts = queue.artifacts();
    let importer = Importer { artifacts: &*artifacts, id, experiment: &experiment };
    let mut cursor = Cursor::default();
    loop {
        let page = queue.results(id, &cursor, PAGE).await?;
        if page.results.is_empty() {
            return Ok(());
        }
        for stored in page.results {
            check_part(&stored.job)?;
            let read = serde_json::from_slice::<JobResult>(&stored.result);
            // As in the submitter's directory, the names are those of the suite. An older submitter has not stored them.
            let named = match (&names, &read) {
                (Some(names), _) => names.find(&stored.job),
                (None, Ok(JobResult { result, .. })) => {
                    Some((result.case.clone(), result.variant.clone(), result.attempt))
                }
                (None, Err(_)) => None,
            };
            let Some((case, variant, attempt)) = named else { continue };
            let imported = match read {
                Ok(result) => importer.import(&stored.job, (&case, &variant, attempt), result).await?,
                Err(error) => {
                    let broken = RunResult::broken(&stored.job, 1, unreadable(&error));
                    let result = RunResult { case, variant, attempt, finished_ms: now_ms(), ..broken };
                    ImportedRun { result, tries: Vec::new() }
                }
            };
            locked(&experiment).commit_imported(&imported, false).map_err(BatchError::from)?;
        }
        cursor = page.next;
    }
}

fn locked(experiment: &Mutex<Experiment>) -> MutexGuard<'_, Experiment> {
    experiment.lock().unwrap_or_else(PoisonError::into_inner)
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
    // An older submitter has stored all values.
    Ok(values.into_iter().filter(|(name, _)| is_for_report(name)).collect())
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
