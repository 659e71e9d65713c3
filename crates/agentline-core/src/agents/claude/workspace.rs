//! Settings that Claude Code loads from a workspace although its session is opened with user settings only.
//!
//! The adapter runs `claude auth status` at its start and at every prompt to get the account. That process runs in the
//! workspace and loads the project's settings regardless of the session's options. It runs no commands from these
//! settings, except session-end hooks when a signal ends it. This cannot be disabled, so such a workspace is refused.

use crate::{
    FileSystem, LaunchContext,
    agents::adapter::{may_mention, workspace_dirs},
};
use std::path::{Path, PathBuf};

/// The project settings files.
const SETTINGS: &[&str] = &[".claude/settings.json", ".claude/settings.local.json"];

/// Returns the first project settings file, in the workspace or above it, that may have a session-end hook.
pub(super) fn session_end_hooks(context: &LaunchContext, fs: &dyn FileSystem) -> Option<PathBuf> {
    let own = context.env.get("CLAUDE_CONFIG_DIR").filter(|path| !path.is_empty()).map(Path::new);
    let own = own.and_then(|path| fs.canonical(path));
    let files = workspace_dirs(&context.cwd, &context.home)
        .flat_map(|dir| SETTINGS.iter().map(|name| dir.join(name)));
    let is_own = |path: &Path| own.is_some() && path.parent().and_then(|dir| fs.canonical(dir)) == own;
    files.into_iter().find(|path| may_mention(path, &["SessionEnd"], fs) && !is_own(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, memory_fs::MemoryFs};

    #[test]
    fn session_end_hooks_are_found_in_every_spelling() {
        let found = |path: &str, text: &str, own: &str| {
            let program = Program { path: "/bin/x".into(), args: vec![], version: None };
            let mut context = LaunchContext::new(program, "/u/repo/ws".into(), "/u".into(), "/p".into());
            context.env.insert("CLAUDE_CONFIG_DIR".into(), own.into());
            session_end_hooks(&context, &MemoryFs::default().plain(path, text)).is_some()
        };
        let hook = r#"{"hooks": {"SessionEnd": []}}"#;
        assert!(found("/u/repo/ws/.claude/settings.json", hook, ""));
        assert!(found("/u/repo/.claude/settings.local.json", hook, ""));
        assert!(found("/u/repo/ws/.claude/settings.json", r#"{"hooks": {"\u0053essionEnd": []}}"#, ""));
        assert!(!found("/u/repo/ws/.claude/settings.json", r#"{"hooks": {"SessionStart": []}}"#, ""));
        assert!(!found("/u/.claude/settings.json", hook, ""), "the user's own");
        assert!(!found("/u/repo/.claude/settings.json", hook, "/u/repo/.claude"), "the user's own");
    }
}
