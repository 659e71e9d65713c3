//! The settings that Codex loads from a workspace, and how to prevent it.
//!
//! Codex reads `.codex/` of a project (settings, MCP servers, hooks, rules) if the project is trusted. On its own
//! surfaces, each run says which directories are trusted ([`trust`]).
//!
//! Its ACP adapter declares every workspace trusted: it opens the thread with
//! `projects = { <cwd> = { trust_level = "trusted" } }`, where `<cwd>` is the unresolved directory of `session/new`. This
//! overrides the user's configuration and `-c`. Codex resolves the directory before it looks up its trust. So a path with
//! a last component `.` opens a session in the same directory that only has the trust given by the user.

use crate::{
    FileSystem, LaunchContext, Plan, Trust, Version,
    agents::adapter::{home_folder, workspace_dirs},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The adapter version whose Codex is known to resolve the directory.
const KNOWN_ADAPTER: Version = Version(2, 6, 0);

/// The variable that makes the adapter start a Codex other than the included one.
const OTHER_PROGRAM: &str = "CODEX_PATH";

/// The size limit of a `.git` file, which contains only the path of a directory.
const LONGEST_LINK: usize = 64 * 1024;

/// Returns a path of the workspace to which the adapter's declaration of trust does not apply, if that is known to
/// work.
pub(super) fn undeclared(plan: &Plan, context: &LaunchContext) -> Option<String> {
    let known = context.program.version == Some(KNOWN_ADAPTER) && !cfg!(windows);
    let other = [&plan.request.env, &context.env].iter().any(|env| env.contains_key(OTHER_PROGRAM));
    (known && !other).then(|| context.cwd.join(".").to_string_lossy().into_owned())
}

/// Returns the project settings that a session in the workspace would load.
pub(super) fn loaded_settings(plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> Option<PathBuf> {
    let settings = project_settings(context, fs)?;
    (undeclared(plan, context).is_none() || user_trusts(context, fs)).then_some(settings)
}

/// Returns the trust that a thread gives to the workspace and its parent directories, in the format of Codex's
/// configuration. It overrides that of the user's configuration, for every directory that this one names.
///
/// Codex also looks up the root of the repository, and the main worktree of a linked one.
pub(super) fn trust(plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> Value {
    let (level, others) = match plan.request.trust {
        Trust::Full => ("trusted", Vec::new()),
        _ => ("untrusted", trusted_projects(context, fs)),
    };
    let workspace = workspace_dirs(&context.cwd, &context.home).filter(|dir| dir.parent().is_some());
    let dirs = workspace.map(|dir| dir.to_string_lossy().into_owned()).chain(others);
    Value::Object(dirs.map(|dir| (dir, json!({"trust_level": level}))).collect())
}

/// Returns the directories that the user's configuration trusts, as it spells them.
fn trusted_projects(context: &LaunchContext, fs: &dyn FileSystem) -> Vec<String> {
    let projects = user_config(context, fs).remove("projects");
    let projects = projects.as_ref().and_then(toml::Value::as_table).into_iter().flatten();
    let is_trusted =
        |project: &toml::Value| project.get("trust_level").and_then(toml::Value::as_str) == Some("trusted");
    projects.filter(|(_, project)| is_trusted(project)).map(|(path, _)| path.clone()).collect()
}

/// Returns the names of the MCP servers in the user's configuration.
pub(super) fn user_servers(context: &LaunchContext, fs: &dyn FileSystem) -> Vec<String> {
    let servers = user_config(context, fs).remove("mcp_servers");
    let servers = servers.as_ref().and_then(toml::Value::as_table).into_iter().flatten();
    servers.map(|(name, _)| name.clone()).collect()
}

/// Returns the directory with Codex's own files.
pub(super) fn codex_home(context: &LaunchContext) -> PathBuf {
    home_folder(&context.env, &context.home, "CODEX_HOME", ".codex")
}

/// Returns the user's configuration, or an empty one if it cannot be read.
pub(super) fn user_config(context: &LaunchContext, fs: &dyn FileSystem) -> toml::Table {
    let text = fs.text(&codex_home(context).join("config.toml"));
    text.and_then(|text| toml::from_str(&text).ok()).unwrap_or_default()
}

/// Returns whether the user's Codex configuration may trust the workspace. Codex would then load project settings even
/// if they have changed since. `agentline trust` is the alternative, because it detects changes.
fn user_trusts(context: &LaunchContext, fs: &dyn FileSystem) -> bool {
    let trusted: Vec<PathBuf> = trusted_projects(context, fs)
        .into_iter()
        .map(|path| fs.canonical(Path::new(&path)).unwrap_or_else(|| PathBuf::from(path)))
        .collect();
    // A linked worktree, whose `.git` is a file, inherits the trust of its main worktree, which may be anywhere.
    let linked = || context.cwd.ancestors().any(|dir| fs.small(&dir.join(".git"), LONGEST_LINK).is_some());
    trusted.iter().any(|path| context.cwd.starts_with(path)) || (!trusted.is_empty() && linked())
}

/// Returns the first settings directory in the workspace or above it that is not the user's own.
fn project_settings(context: &LaunchContext, fs: &dyn FileSystem) -> Option<PathBuf> {
    let own = context.env.get("CODEX_HOME").filter(|path| !path.is_empty()).map(Path::new);
    let own = own.and_then(|path| fs.canonical(path));
    workspace_dirs(&context.cwd, &context.home).map(|dir| dir.join(".codex")).find(|dir| {
        fs.exists(dir) && fs.list(dir).is_none_or(|names| !names.is_empty()) && fs.canonical(dir) != own
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, RunRequest, Surface, memory_fs::MemoryFs};

    fn context(version: Option<Version>) -> LaunchContext {
        let program = Program { path: "/bin/x".into(), args: vec![], version };
        LaunchContext::new(program, "/u/repo/ws".into(), "/u".into(), "/p".into())
    }

    #[test]
    #[cfg(not(windows))]
    fn path_spelling_is_used_only_with_the_known_adapter_and_bundled_codex() {
        let plan = Plan::new(RunRequest::new("x"), Surface::Acp);
        let known = context(Some(KNOWN_ADAPTER));
        assert_eq!(undeclared(&plan, &known).as_deref(), Some("/u/repo/ws/."));
        assert_eq!(undeclared(&plan, &context(None)), None);
        assert_eq!(undeclared(&plan, &context(Some(Version(2, 7, 0)))), None);
        let other = Plan::new(RunRequest::new("x").env("CODEX_PATH", "/bin/codex"), Surface::Acp);
        assert_eq!(undeclared(&other, &known), None);
        let mut ambient = known;
        ambient.env.insert("CODEX_PATH".into(), "/bin/codex".into());
        assert_eq!(undeclared(&plan, &ambient), None);
    }

    #[test]
    fn project_settings_are_found_at_or_above_the_workspace_but_not_in_home() {
        let found = |path: &str, codex_home: &str| {
            let mut context = context(None);
            context.env.insert("CODEX_HOME".into(), codex_home.into());
            project_settings(&context, &MemoryFs::default().plain(path, ""))
        };
        assert_eq!(found("/u/repo/ws/.codex/config.toml", ""), Some("/u/repo/ws/.codex".into()));
        assert_eq!(found("/u/repo/.codex/hooks.json", ""), Some("/u/repo/.codex".into()));
        assert_eq!(found("/u/.codex/config.toml", ""), None);
        assert_eq!(found("/u/repo/.codex/config.toml", "/u/repo/.codex"), None);
    }

    #[test]
    #[cfg(not(windows))]
    fn trust_in_codex_settings_is_not_agentline_trust() {
        let plan = Plan::new(RunRequest::new("x"), Surface::Acp);
        let loaded = |config: &str, more: &[(&str, &str)]| {
            let fs = MemoryFs::default()
                .plain("/u/.codex/config.toml", config)
                .plain("/u/repo/.codex/config.toml", "");
            let fs = more.iter().fold(fs, |fs, (path, text)| fs.plain(path, text));
            loaded_settings(&plan, &context(Some(KNOWN_ADAPTER)), &fs).is_some()
        };
        let trusted = |path: &str| format!("[projects.\"{path}\"]\ntrust_level = \"trusted\"\n");
        assert!(!loaded("model = \"m\"", &[]));
        assert!(loaded(&trusted("/u/repo"), &[]));
        assert!(loaded(&trusted("/u/repo/ws"), &[]));
        assert!(!loaded(&trusted("/u/other"), &[]));
        assert!(!loaded("[projects.\"/u/repo\"]\ntrust_level = \"untrusted\"\n", &[]));
        assert!(loaded(&trusted("/u/other"), &[("/u/repo/.git", "gitdir: /u/other/.git/worktrees/repo")]));
    }
}
