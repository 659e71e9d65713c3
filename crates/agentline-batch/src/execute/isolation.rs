//! Whether the workspaces of a suite can be isolated by the method that the caller demands.

use crate::suite::{Suite, WorkspaceSource};
use crate::worktree;
use agentline::isolate::{IsolationMethod, fits_overlay};
use agentline::{Problem, Problems};
use std::collections::HashSet;
use std::path::Path;

/// Checks that every workspace can be isolated by the method that the caller demands.
pub(super) fn check_isolation(
    suite: &Suite,
    method: Option<IsolationMethod>,
    home: &Path,
) -> Result<(), Problems> {
    let temporary = std::env::temp_dir();
    let mut problems = Vec::new();
    let mut seen = HashSet::new();
    for case in &suite.cases {
        let Some(source) = case.workspace.as_ref().filter(|source| seen.insert(format!("{source:?}"))) else {
            continue;
        };
        let refusal = match (method, source) {
            (Some(IsolationMethod::Worktree), source) => {
                worktree::repository(source).err().map(|error| error.to_string())
            }
            (Some(IsolationMethod::Overlay), WorkspaceSource::Directory(path)) => {
                match fits_overlay(path, &[home, &temporary]) {
                    Ok(true) => None,
                    Ok(false) => Some(unfit(path)),
                    Err(error) => Some(format!("`{}` cannot be read: {error}", path.display())),
                }
            }
            _ => None,
        };
        problems.extend(refusal.map(|message| {
            Problem::new("isolate", message).source(case.source.clone()).hint("use `--isolate copy`")
        }));
    }
    Problems(problems).into_result()
}

/// Returns why a template cannot be that of an overlay.
pub(super) fn unfit(template: &Path) -> String {
    format!(
        "`{}` has files of other users, links that lead back to it, or the home or temporary directory, so it cannot be \
         an overlay",
        template.display()
    )
}
