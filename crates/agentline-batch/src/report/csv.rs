//! The report as CSV: one line per run.

use super::ExperimentReport;
use crate::class::Class;
use crate::result::RunResult;

const COLUMNS: [&str; 17] = [
    "case",
    "variant",
    "attempt",
    "class",
    "verdict",
    "kind",
    "message",
    "agent",
    "agent_version",
    "model",
    "cost_usd",
    "judge_cost_usd",
    "tokens",
    "turns",
    "tool_calls",
    "duration_ms",
    "dir",
];

pub(super) fn render(report: &ExperimentReport) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for run in report.cases.iter().flat_map(|case| &case.runs) {
        let kind = run.kind.and_then(|kind| serde_json::to_value(kind).ok());
        let text = |value: Option<&str>| cell(value.unwrap_or_default());
        let number = |value: Option<f64>| value.map(|cost| cost.to_string()).unwrap_or_default();
        writer.write_record([
            cell(&run.case),
            cell(&run.variant),
            run.attempt.to_string(),
            run.class.name().to_owned(),
            run.verdict.name().to_owned(),
            text(kind.as_ref().and_then(serde_json::Value::as_str)),
            reason(run),
            cell(&run.agent),
            text(run.agent_version.as_deref()),
            text(run.model.as_deref()),
            number(run.cost_usd),
            number(run.judge_cost_usd),
            run.tokens.map(|tokens| tokens.to_string()).unwrap_or_default(),
            run.turns.to_string(),
            run.tool_calls.to_string(),
            run.duration_ms.to_string(),
            run.dir.clone(),
        ])?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a text that a spreadsheet does not take for a formula: agents wrote some of them.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if is_formula { format!("'{text}") } else { text.to_owned() }
}

/// Returns why a run did not pass, or else its message.
fn reason(run: &RunResult) -> String {
    if run.class == Class::Passed {
        return cell(run.message.as_deref().unwrap_or_default());
    }
    cell(&run.reason())
}
