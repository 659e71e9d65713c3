//! The changes of the runs as a SWE-bench prediction file: one JSON object per line.

use super::ExperimentReport;
use agentline::Outcome;
use serde_json::json;
use std::path::Path;

/// Renders the first attempt of each case and variant. The id of a case is the id of the instance.
pub(super) fn render(report: &ExperimentReport) -> String {
    let mut lines = String::new();
    for run in report.cases.iter().flat_map(|case| &case.runs).filter(|run| run.attempt == 0) {
        let line = json!({
            "instance_id": run.case,
            "model_name_or_path": run.variant,
            "model_patch": report.run_dir(run).map(|dir| patch(&dir)).unwrap_or_default(),
        });
        lines += &format!("{line}\n");
    }
    lines
}

/// Joins the diffs of the changed files.
fn patch(dir: &Path) -> String {
    let read = agentline_fs::regular_file::read_regular(&dir.join("outcome.json"), 64 << 20);
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
