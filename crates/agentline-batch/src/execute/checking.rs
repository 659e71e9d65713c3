//! Evaluates the checks of a case in a directory that the agent cannot see.

use super::commands::{self, CommandEnd, FilesBy};
use super::lane::{FilledWorkspace, Lane};
use crate::check::{CheckResultRow, Condition, JudgeSpec, Judgement, RunEvidence, ToolCount};
use crate::suite::TestCase;
use agentline::Outcome;
use std::io;
use std::path::Path;

/// Decides about the checks that need a judge.
pub(super) trait Judging {
    /// Returns the decision about a result. `label` is the description of the check.
    ///
    /// # Errors
    /// Returns why there is no decision.
    async fn judge(&mut self, judge: &JudgeSpec, label: &str) -> Result<Judgement, String>;
}

/// Evaluates all checks of a case on the workspace of a run. `ignored` are the changed files that Git ignores.
///
/// # Errors
/// Returns why a check could not be evaluated, which says nothing about the agent.
pub(super) async fn evaluate(
    case: &TestCase,
    lane: &Lane<'_>,
    workspace: &FilledWorkspace,
    outcome: &Outcome,
    tools: &[ToolCount],
    ignored: &[String],
    judging: &mut impl Judging,
) -> Result<Vec<CheckResultRow>, String> {
    if !case.checks.iter().any(|check| check.condition.reads_files()) {
        return evaluate_in(case, lane, &workspace.path, outcome, tools, ignored, judging).await;
    }
    let prepared = tokio::task::block_in_place(|| lane.for_checks(workspace, &case.hidden));
    let workspace = match prepared {
        Ok(workspace) => workspace,
        Err(error) if is_of_the_host(&error) => {
            return Err(format!("the checks cannot be prepared: {error}"));
        }
        // The files are as the agent left them.
        Err(error) => {
            let reason = format!("the files of the run cannot be copied: {error}");
            let rows = case.checks.iter().map(|check| CheckResultRow::failed(check, reason.clone()));
            return Ok(rows.collect());
        }
    };
    let hidden = tokio::task::block_in_place(|| lane.add_hidden(&workspace, &case.hidden));
    let checked = match hidden {
        Ok(()) => evaluate_in(case, lane, &workspace, outcome, tools, ignored, judging).await,
        Err(error) => Err(format!("the hidden files cannot be copied: {error}")),
    };
    lane.forget_checks();
    checked
}

/// Returns whether a failure of the file system says nothing about the agent.
fn is_of_the_host(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    // A file that is too large to copy is the agent's, and so are files for which there is no space left.
    matches!(error.kind(), StorageFull | QuotaExceeded | OutOfMemory | ReadOnlyFilesystem)
}

async fn evaluate_in(
    case: &TestCase,
    lane: &Lane<'_>,
    workspace: &Path,
    outcome: &Outcome,
    tools: &[ToolCount],
    ignored: &[String],
    judging: &mut impl Judging,
) -> Result<Vec<CheckResultRow>, String> {
    let mut rows = Vec::new();
    let mut failure = None;
    for check in &case.checks {
        let evidence = RunEvidence::new(outcome, tools, workspace).with_ignored_changes(ignored);
        let found = match (evidence.evaluate(check), &check.condition) {
            (Some(row), _) => {
                rows.push(row);
                continue;
            }
            (None, Condition::Command { line, timeout }) => {
                match commands::run(line, workspace, *timeout, FilesBy::Agent, lane.kill_deadline()).await {
                    CommandEnd::Succeeded => Ok(()),
                    CommandEnd::Failed(reason) => Err(reason),
                    CommandEnd::TimedOut(reason) if !check.is_negated => Err(reason),
                    CommandEnd::TimedOut(reason) | CommandEnd::NotStarted(reason) => {
                        failure = Some(format!("the check {} cannot be evaluated: {reason}", check.label));
                        continue;
                    }
                }
            }
            (None, Condition::Judge(judge)) => match judging.judge(judge, &check.label).await {
                Ok(judgement) if judgement.passed => Ok(()),
                Ok(judgement) => Err(judgement.reason),
                Err(message) => {
                    failure = Some(format!("the judge did not answer: {message}"));
                    continue;
                }
            },
            (None, _) => continue,
        };
        rows.push(CheckResultRow::new(check, found));
    }
    failure.map_or(Ok(rows), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_too_large_are_those_of_the_agent() {
        for (kind, expected) in [
            (io::ErrorKind::FileTooLarge, false),
            (io::ErrorKind::PermissionDenied, false),
            (io::ErrorKind::StorageFull, true),
            (io::ErrorKind::QuotaExceeded, true),
        ] {
            assert_eq!(is_of_the_host(&kind.into()), expected, "{kind}");
        }
    }
}
