//! The changes of the runs as a SWE-bench prediction file: one JSON object per line.

use super::ExperimentReport;
use crate::result::{PATCH, RunResult};
use agentline::Outcome;
use agentline_fs::regular_file::read_unlinked;
use serde_json::json;
use std::path::Path;

/// The size of the largest file that is read, in bytes.
const LARGEST: u64 = 1 << 30;

/// Renders the first attempt of each case and variant. The id of a case is the id of the instance. A run that says
/// nothing about the agent is no prediction.
pub(super) fn render(report: &ExperimentReport) -> String {
    let is_prediction = |run: &&RunResult| run.attempt == 0 && run.is_valid();
    let mut lines = String::new();
    for run in report.cases.iter().flat_map(|case| &case.runs).filter(is_prediction) {
        let line = json!({
            "instance_id": run.case,
            "model_name_or_path": run.variant,
            "model_patch": report.run_dir(run).map(|dir| patch(&dir)).unwrap_or_default(),
        });
        lines += &format!("{line}\n");
    }
    lines
}

/// Returns the patch of a run.
fn patch(dir: &Path) -> String {
    match read_unlinked(&dir.join(PATCH), LARGEST) {
        Ok(patch) => String::from_utf8_lossy(&patch).into_owned(),
        Err(_) => joined_diffs(dir),
    }
}

/// Joins the diffs of the changed files, which is what a run in a shared workspace has.
fn joined_diffs(dir: &Path) -> String {
    let read = read_unlinked(&dir.join("outcome.json"), LARGEST);
    let outcome = read.ok().and_then(|bytes| serde_json::from_slice::<Outcome>(&bytes).ok());
    let files = outcome.map(|outcome| outcome.files).unwrap_or_default();
    let mut patch = String::new();
    for diff in files.iter().filter_map(|row| row.diff.as_deref()) {
        patch += diff;
        if !patch.ends_with('\n') {
            patch.push('\n');
        }
    }
    patch
}
