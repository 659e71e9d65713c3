//! Applies the checks of a suite to stored results, without running agents.

use super::checking::{Judging, evaluate};
use super::covers::Covers;
use super::lane::{Lane, Lanes};
use super::{BatchError, BatchSummary};
use crate::check::{Check, JudgeSpec, Judgement};
use crate::class::{Class, Classification};
use crate::key;
use crate::result::RunResult;
use crate::store::Experiment;
use crate::suite::{Suite, TestCase};
use agentline::Outcome;
use agentline::isolate::{ChangeInCopy, IsolationMethod};
use std::collections::HashMap;
use std::path::Path;

/// Applies the checks of a suite to the results in an experiment. A result that changes is replaced; the earlier one is
/// kept.
///
/// # Errors
/// Fails if the experiment cannot be used.
pub async fn grade(suite: &Suite, experiment: &Experiment) -> Result<BatchSummary, BatchError> {
    let keys =
        key::keys(suite).map_err(|error| BatchError::Io("a workspace cannot be read".into(), error))?;
    let stored = experiment.results()?;
    let lanes = Lanes::create(experiment, Path::new("/"), Some(IsolationMethod::Copy), &Covers::default())?;
    let lane = lanes.take();
    let mut counts: HashMap<Class, usize> = HashMap::new();
    let mut remaining = 0;
    for run in suite.runs() {
        let Some(result) = stored.get(&keys[&run]) else {
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
    Ok(BatchSummary { counts, remaining, limit: None, stopped_by: None, is_decided: false })
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
    let restored = tokio::task::block_in_place(|| restore(case, lane, &dir));
    let mut judging = StoredJudgements { rows: result };
    let rows = match restored {
        Ok(()) => evaluate(case, lane, &lane.workspace(), &outcome, &result.tools, &mut judging).await,
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
    let text = std::fs::read_to_string(dir.join("outcome.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// Restores the final workspace of a run: the files of the case, then its changes.
fn restore(case: &TestCase, lane: &Lane<'_>, dir: &Path) -> std::io::Result<()> {
    lane.fill(case.workspace.as_ref(), false, false)?;
    let text = match std::fs::read_to_string(dir.join("changes.jsonl")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    for line in text.lines() {
        let change: ChangeInCopy = serde_json::from_str(line)?;
        change.write(&lane.workspace())?;
    }
    Ok(())
}

/// The decisions of judges that are already stored.
struct StoredJudgements<'a> {
    rows: &'a RunResult,
}

impl Judging for StoredJudgements<'_> {
    async fn judge(&mut self, _judge: &JudgeSpec, label: &str) -> Result<Judgement, String> {
        let row = self.rows.checks.iter().find(|row| row.check == label);
        row.map(|row| Judgement { reason: row.detail.clone(), passed: row.passed })
            .ok_or_else(|| "this rubric is new; run the batch with `--rerun` to ask a judge".to_owned())
    }
}
