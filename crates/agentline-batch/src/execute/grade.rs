//! Applies the checks of a suite to stored results, without running agents.

use super::checking::{Judging, evaluate};
use super::covers::Covers;
use super::lane::{FilledWorkspace, Lane, Lanes};
use super::run_files::read_ignored;
use super::suite_runs::{DEFAULTS, REVISIONS};
use super::{BatchError, BatchSummary};
use crate::check::{Check, CheckResultRow, JudgeSpec, Judgement};
use crate::class::{Class, Classification};
use crate::key;
use crate::result::{CHANGES, RunResult};
use crate::store::Experiment;
use crate::suite::{RunIndex, Suite, SuiteInput, TestCase, load};
use crate::template::{self, PinnedRevision};
use agentline::isolate::{self, ChangeInCopy, IsolationMethod};
use agentline::{Outcome, Problem};
use agentline_fs::regular_file::read_unlinked;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// The size of the largest file of a run that is read, in bytes.
const LARGEST_FILE: u64 = 4 << 30;

/// Loads a suite for [`grade`]: with the flags of the batch that was run in an experiment, and with the commits that its
/// branches and tags had then.
///
/// # Errors
/// Returns every mistake of the suite.
pub fn load_for_grading(input: &SuiteInput, experiment: &Experiment) -> Result<Suite, BatchError> {
    let defaults = experiment.meta(DEFAULTS)?.and_then(|text| serde_json::from_str(&text).ok());
    let mut suite = load(input, &defaults.unwrap_or_default())?;
    let repeat = experiment.meta("repeat")?.and_then(|repeat| repeat.parse().ok());
    suite.repeat = repeat.unwrap_or(suite.repeat);
    let pinned: Option<Vec<PinnedRevision>> =
        experiment.meta(REVISIONS)?.and_then(|text| serde_json::from_str(&text).ok());
    template::use_pinned(&mut suite, &pinned.unwrap_or_default());
    Ok(suite)
}

/// Applies the checks of a suite to the results in an experiment. A result that changes is replaced; the earlier one is
/// kept.
///
/// # Errors
/// Fails if the experiment cannot be used, or if it has no result of the suite.
pub async fn grade(suite: &Suite, experiment: &Experiment) -> Result<BatchSummary, BatchError> {
    let identities = key::keys(suite, |_| Ok(None))
        .map_err(|error| BatchError::Io("a workspace cannot be read".into(), error))?;
    let keys = experiment.suite_runs()?.unwrap_or_default();
    let stored = experiment.results()?;
    let result_of = |run: &RunIndex| stored.get(keys.get(&identities.identity(*run))?);
    if suite.runs().all(|run| result_of(&run).is_none()) {
        let message = format!(
            "matches none of the {} results in `{}`: its ids, prompts, settings, workspaces or setup commands are others",
            stored.len(),
            experiment.dir().display()
        );
        let problem = Problem::new("SUITE", message);
        return Err(BatchError::Invalid(problem.hint("run the batch with this suite first").into()));
    }
    let lanes = Lanes::create(experiment, Path::new("/"), Some(IsolationMethod::Copy), &Covers::default())?;
    let lane = lanes.take();
    let mut counts: HashMap<Class, usize> = HashMap::new();
    let mut remaining = 0;
    for run in suite.runs() {
        let Some(result) = result_of(&run) else {
            remaining += 1;
            continue;
        };
        let graded = grade_run(suite, &suite.cases[run.case], result, experiment.dir(), &lane).await;
        *counts.entry(graded.class).or_default() += 1;
        if graded != *result {
            experiment.replace(&graded)?;
        }
    }
    drop(lane);
    lanes.remove(experiment);
    Ok(BatchSummary {
        counts,
        remaining,
        limit: None,
        stopped_by: None,
        is_decided: false,
        is_cancelled: false,
    })
}

/// Returns the result of a run by the checks of a case.
async fn grade_run(
    suite: &Suite,
    case: &TestCase,
    result: &RunResult,
    dir: &Path,
    lane: &Lane<'_>,
) -> RunResult {
    let mut graded = result.clone();
    let dir = dir.join(&result.dir);
    let Some(outcome) = read_outcome(&dir) else { return graded };
    let classification = suite.classes.classify(&outcome);
    let must_check = match classification {
        Classification::ByChecks => true,
        Classification::FailedUnlessExpected => case.checks.iter().any(Check::is_verdict),
        Classification::Fixed(class) => {
            graded.class = class;
            false
        }
        Classification::NotCommitted => false,
    };
    if classification == Classification::FailedUnlessExpected && !must_check {
        graded.class = Class::Failed;
        graded.checks.clear();
    }
    if !must_check {
        return graded;
    }
    let restored = tokio::task::block_in_place(|| restore(case, lane, &dir, result));
    let mut judging = StoredJudgements { rows: result };
    let rows = match restored {
        Ok(workspace) => {
            let (tools, ignored) = (&result.tools, read_ignored(&dir));
            let rows = evaluate(case, lane, &workspace, &outcome, tools, &ignored, &mut judging).await;
            rows.and_then(|rows| match &result.not_stored {
                Some(reason) => decided_without_ignored(&case.checks, rows, reason),
                None => Ok(rows),
            })
        }
        Err(error) => Err(format!("the workspace cannot be restored: {error}")),
    };
    match rows {
        Ok(rows) => {
            graded.class = if rows.iter().all(|row| row.passed) { Class::Passed } else { Class::Failed };
            graded.message = outcome.error.map(|error| error.message);
            graded.checks = rows;
        }
        Err(message) => {
            graded.class = Class::Infrastructure;
            graded.message = Some(message);
        }
    }
    graded
}

fn read_outcome(dir: &Path) -> Option<Outcome> {
    let text = read_unlinked(&dir.join("outcome.json"), LARGEST_FILE).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Restores the final workspace of a run: the files of the case, then its changes.
fn restore(case: &TestCase, lane: &Lane<'_>, dir: &Path, result: &RunResult) -> io::Result<FilledWorkspace> {
    let workspace = lane.fill(case.workspace.as_ref(), false, false)?;
    let text = match read_unlinked(&dir.join(CHANGES), LARGEST_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The state of the files is not known. Other checks do not need it.
            if case.checks.iter().any(|check| check.condition.reads_files()) {
                let reason = result.not_stored.as_deref().unwrap_or("the run shared its workspace");
                return Err(io::Error::other(format!("its changes are not stored: {reason}")));
            }
            return Ok(workspace);
        }
        text => String::from_utf8(text?).map_err(io::Error::other)?,
    };
    let changes = text.lines().map(serde_json::from_str).collect::<Result<Vec<ChangeInCopy>, _>>()?;
    // As before the checks of the batch, what the template protects is readable.
    lane.settle(&workspace.path)?;
    isolate::restore(&changes, &workspace.path)?;
    Ok(workspace)
}

/// Returns the results of checks in a workspace without the changed files that Git ignores. A check of files that fails
/// may need them, and so may one that passes if something is not there.
fn decided_without_ignored(
    checks: &[Check],
    rows: Vec<CheckResultRow>,
    reason: &str,
) -> Result<Vec<CheckResultRow>, String> {
    let is_open = |(check, row): &(&Check, &CheckResultRow)| {
        check.condition.reads_files() && (check.is_negated || !row.passed)
    };
    match checks.iter().zip(&rows).find(is_open) {
        Some((check, _)) => Err(format!("the check {} cannot be evaluated: {reason}", check.label)),
        None => Ok(rows),
    }
}

/// The decisions of judges that are already stored.
struct StoredJudgements<'a> {
    rows: &'a RunResult,
}

impl Judging for StoredJudgements<'_> {
    async fn judge(&mut self, judge: &JudgeSpec, _label: &str) -> Result<Judgement, String> {
        // Descriptions are cut, so they do not identify a rubric.
        let digest = judge.digest();
        let row = self.rows.checks.iter().find(|row| row.judge.as_ref() == Some(&digest));
        row.map(|row| Judgement { reason: row.detail.clone(), passed: row.passed }).ok_or_else(|| {
            "the judge or its rubric is new; run the batch with `--rerun` to ask it".to_owned()
        })
    }
}
