//! Evaluates the checks of a case in a directory that the agent cannot see.

use super::{commands, lane::Lane};
use crate::check::{CheckResultRow, Condition, JudgeSpec, Judgement, RunEvidence, ToolCount};
use crate::suite::TestCase;
use agentline::Outcome;
use std::path::Path;

/// Decides about the checks that need a judge.
pub(super) trait Judging {
    /// Returns the decision about a result. `label` is the description of the check.
    ///
    /// # Errors
    /// Returns why there is no decision.
    async fn judge(&mut self, judge: &JudgeSpec, label: &str) -> Result<Judgement, String>;
}

/// Evaluates all checks of a case on the workspace of a run.
///
/// # Errors
/// Returns why a check could not be evaluated, which says nothing about the agent.
pub(super) async fn evaluate(
    case: &TestCase,
    lane: &Lane<'_>,
    workspace: &Path,
    outcome: &Outcome,
    tools: &[ToolCount],
    judging: &mut impl Judging,
) -> Result<Vec<CheckResultRow>, String> {
    let prepared = tokio::task::block_in_place(|| lane.for_checks(workspace, &case.hidden));
    let workspace = prepared.map_err(|error| format!("the checks cannot be prepared: {error}"))?;
    let mut rows = Vec::new();
    let mut failure = None;
    for check in &case.checks {
        let evidence = RunEvidence::new(outcome, tools, &workspace);
        let row = match (evidence.evaluate(check), &check.condition) {
            (Some(row), _) => row,
            (None, Condition::Command { line, timeout }) => {
                CheckResultRow::new(check, commands::run(line, &workspace, *timeout).await)
            }
            (None, Condition::Judge(judge)) => match judging.judge(judge, &check.label).await {
                Ok(judgement) => {
                    let found = if judgement.passed { Ok(()) } else { Err(judgement.reason) };
                    CheckResultRow::new(check, found)
                }
                Err(message) => {
                    failure = Some(format!("the judge did not answer: {message}"));
                    continue;
                }
            },
            (None, _) => continue,
        };
        rows.push(row);
    }
    lane.forget_checks();
    match failure {
        Some(message) => Err(message),
        None => Ok(rows),
    }
}
