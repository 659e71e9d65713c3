//! What one caller may start: where, how deep, with which permissions and at which cost. An inner caller never gets
//! more than the run that it belongs to.

use crate::{budget::NestedBudget, question::QuestionBoard};
use agentline::{PermissionMode, Problem, Rule, RunRequest};
use agentline_fs::disk_fs::canonicalize;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a caller may start.
#[derive(Clone, Debug)]
pub(crate) struct CallerScope {
    /// The depth of the caller: 0 for a client, and its own depth for an agent.
    pub(crate) depth: u32,
    /// The directories, with links resolved, that workspaces may be in. The first one is the default.
    pub(crate) roots: Vec<PathBuf>,
    /// The mode of the agent that starts others.
    pub(crate) mode: Option<PermissionMode>,
    /// Rules of the agent that starts others, which also apply to those.
    pub(crate) deny: Vec<Rule>,
    /// As `deny`.
    pub(crate) ask: Vec<Rule>,
    /// What its runs may cost together; for an agent, also with its own cost.
    pub(crate) budget: NestedBudget,
    /// Where permission requests of its runs go: to the client of the outermost run, never to the agent that starts
    /// others. A client itself has none.
    pub(crate) board: Option<Arc<QuestionBoard>>,
}

impl CallerScope {
    /// Creates the scope of a client.
    pub(crate) fn of_client(roots: Vec<PathBuf>, budget: NestedBudget) -> Self {
        Self { depth: 0, roots, mode: None, deny: Vec::new(), ask: Vec::new(), budget, board: None }
    }

    /// Returns the scope of the agent that runs this request in this directory with this budget.
    pub(crate) fn of_run(
        &self,
        request: &RunRequest,
        workspace: &Path,
        budget: NestedBudget,
        board: Option<Arc<QuestionBoard>>,
    ) -> Self {
        Self {
            depth: self.depth + 1,
            roots: vec![workspace.to_owned()],
            mode: Some(request.permission_mode),
            deny: request.deny.clone(),
            ask: request.ask.clone(),
            budget,
            board,
        }
    }

    /// Returns the directory of a run, with links resolved.
    ///
    /// # Errors
    /// Fails if there is no such directory or it is not in the roots.
    pub(crate) fn workspace(&self, named: Option<&Path>) -> Result<PathBuf, Problem> {
        let first = self.roots.first().cloned().unwrap_or_default();
        let wanted = named.map_or_else(|| first.clone(), |named| first.join(named));
        let outside = || {
            let roots: Vec<String> = self.roots.iter().map(|root| root.display().to_string()).collect();
            Problem::new("cwd", format!("`{}` is not in the directories of this server", wanted.display()))
                .hint(format!("use a directory in {}", roots.join(" or ")))
        };
        // Outside the roots, existing and missing directories get the same answer.
        let found = canonicalize(&wanted).map_err(|_| {
            if self.contains(&wanted) {
                Problem::new("cwd", format!("`{}` does not exist", wanted.display()))
                    .hint("use an existing directory")
            } else {
                outside()
            }
        })?;
        if !self.contains(&found) {
            return Err(outside());
        }
        if !found.is_dir() {
            let message = format!("`{}` is not a directory", wanted.display());
            return Err(Problem::new("cwd", message).hint("use an existing directory"));
        }
        Ok(found)
    }

    /// Returns whether a path with its links resolved is in the roots.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
        !climbs && self.roots.iter().any(|root| path.starts_with(root))
    }

    /// Applies the limits of an agent to the request of another one that it starts, and the mode that it asked for.
    ///
    /// # Errors
    /// Fails if the mode allows more than the caller may.
    pub(crate) fn restrict(
        &self,
        request: &mut RunRequest,
        mode: Option<PermissionMode>,
    ) -> Result<(), Problem> {
        if let Some(own) = self.mode {
            request.permission_mode = within(request.permission_mode, own).unwrap_or(own);
        }
        request.deny.extend(self.deny.iter().cloned());
        request.ask.extend(self.ask.iter().cloned());
        if let Some(mode) = mode {
            let most = request.permission_mode;
            request.permission_mode = within(mode, most).ok_or_else(|| {
                Problem::new(
                    "permission_mode",
                    format!("`{}` allows more than `{}`, the mode of this server", mode.name(), most.name()),
                )
                .hint("leave it out, or use a stricter mode such as `plan`")
            })?;
        }
        Ok(())
    }
}

/// Returns the mode if it is this one or stricter.
fn within(mode: PermissionMode, most: PermissionMode) -> Option<PermissionMode> {
    (mode == most || mode.is_stricter_than(most)).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::PermissionMode::{AcceptEdits, Bypass, Default, Plan};

    fn scope(mode: Option<PermissionMode>) -> CallerScope {
        let unlimited = NestedBudget::new(None);
        CallerScope { mode, ..CallerScope::of_client(vec!["/".into()], unlimited) }
    }

    fn restricted(own: Option<PermissionMode>, configured: PermissionMode) -> PermissionMode {
        let mut request = RunRequest::new("x").permission_mode(configured);
        scope(own).restrict(&mut request, None).unwrap();
        request.permission_mode
    }

    #[test]
    fn inner_agent_has_at_most_the_mode_of_the_outer_one() {
        assert_eq!(restricted(None, Bypass), Bypass);
        assert_eq!(restricted(Some(Plan), Bypass), Plan);
        assert_eq!(restricted(Some(AcceptEdits), Bypass), AcceptEdits);
        assert_eq!(restricted(Some(Bypass), Default), Default);
    }

    #[test]
    fn caller_can_choose_only_a_stricter_mode() {
        let mut request = RunRequest::new("x").permission_mode(AcceptEdits);
        let problem = scope(None).restrict(&mut request, Some(Bypass)).unwrap_err();
        assert_eq!(problem.key, "permission_mode");
        scope(None).restrict(&mut request, Some(Plan)).unwrap();
        assert_eq!(request.permission_mode, Plan);
    }

    #[test]
    fn rules_of_the_outer_agent_apply_to_the_inner_one() {
        let outer = RunRequest::new("x").deny("Bash(git *)");
        let scope = scope(None).of_run(&outer, Path::new("/w"), NestedBudget::new(None), None);
        let mut inner = RunRequest::new("y").deny("WebFetch");
        scope.restrict(&mut inner, None).unwrap();
        assert_eq!(inner.deny.len(), 2);
        assert_eq!((scope.depth, scope.roots.as_slice()), (1, [PathBuf::from("/w")].as_slice()));
    }

    #[cfg(unix)]
    #[test]
    fn workspaces_are_in_the_roots_with_links_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let base = canonicalize(dir.path()).unwrap();
        let (root, secret) = (base.join("root"), base.join("secret"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::write(root.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("a"), base.join("into")).unwrap();
        let scope = CallerScope::of_client(vec![root.clone()], NestedBudget::new(None));
        let found = |path: &str| scope.workspace(Some(Path::new(path))).map_err(|problem| problem.message);
        assert_eq!(scope.workspace(None).unwrap(), root);
        assert_eq!(found("a/b").unwrap(), root.join("a/b"));
        assert_eq!(found("a/../a").unwrap(), root.join("a"));
        assert_eq!(found(&base.join("into").to_string_lossy()).unwrap(), root.join("a"));
        let outside = "is not in the directories of this server";
        let absent = base.join("absent").to_string_lossy().into_owned();
        let other = secret.to_string_lossy().into_owned();
        for path in ["..", "link", "../secret", "/", &other, "a/../../secret", "../absent", &absent] {
            let message = found(path).unwrap_err();
            assert!(message.contains(outside), "{path}: {message}");
        }
        assert!(found("missing").unwrap_err().contains("does not exist"));
        assert!(found("file").unwrap_err().contains("is not a directory"));
    }
}
