//! The files that OpenCode 1.18.33 loads from a workspace although the project's configuration is disabled.
//!
//! `OPENCODE_DISABLE_PROJECT_CONFIG` disables the project's settings, MCP servers, providers, permissions, tools,
//! commands and agents. Plugins are loaded by a second configuration service, which ignores both that variable and
//! `OPENCODE_PURE`: a plugin runs as soon as a session is opened. This cannot be disabled, so such a workspace is
//! refused.

use crate::{
    FileSystem,
    agents::adapter::{may_mention, workspace_dirs},
};
use std::path::{Path, PathBuf};

/// Configuration files that are read in a directory and in its `.opencode`.
const CONFIGURATION: &[&str] = &["opencode.json", "opencode.jsonc"];

/// Directories below `.opencode` whose scripts are run.
const PLUGINS: &[&str] = &["plugin", "plugins"];

/// Returns the first file or directory that gives a workspace a plugin.
pub(super) fn plugin_source(cwd: &Path, home: &Path, fs: &dyn FileSystem) -> Option<PathBuf> {
    workspace_dirs(cwd, home).find_map(|dir| {
        let own = dir.join(".opencode");
        let scripts = PLUGINS.iter().map(|name| own.join(name)).find(|path| {
            // A directory that cannot be listed may contain plugins.
            fs.exists(path) && fs.list(path).is_none_or(|names| !names.is_empty())
        });
        let files = [dir, &own].into_iter().flat_map(|dir| CONFIGURATION.iter().map(|name| dir.join(name)));
        // This matches the keys `plugin` and `plugins`.
        scripts.or_else(|| files.into_iter().find(|path| may_mention(path, &["plugin"], fs)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_fs::MemoryFs;

    fn found(files: &[(&str, &str)]) -> Option<PathBuf> {
        let fs = files.iter().fold(MemoryFs::default(), |fs, (path, text)| fs.plain(path, text));
        plugin_source(Path::new("/u/repo/ws"), Path::new("/u"), &fs)
    }

    #[test]
    fn plugins_are_found_in_every_location() {
        for (path, text) in [
            ("/u/repo/ws/opencode.json", r#"{"plugin": ["x"]}"#),
            ("/u/repo/ws/opencode.jsonc", r#"{/* c */ "plugins": ["x"],}"#),
            ("/u/repo/ws/opencode.json", r#"{"\u0070lugin": ["x"]}"#),
            ("/u/repo/ws/.opencode/opencode.json", r#"{"plugin": ["x"]}"#),
            ("/u/repo/ws/.opencode/plugin/a.js", ""),
            ("/u/repo/ws/.opencode/plugins/a.ts", ""),
            ("/u/repo/opencode.json", r#"{"plugin": ["x"]}"#),
            ("/opencode.json", r#"{"plugin": ["x"]}"#),
            ("/u/repo/.opencode/plugin/a.js", ""),
        ] {
            let source = found(&[(path, text)]);
            assert!(source.is_some_and(|source| Path::new(path).starts_with(&source)), "{path} {text}");
        }
    }

    #[test]
    fn settings_without_plugins_and_user_plugins_are_accepted() {
        assert_eq!(
            found(&[
                ("/u/repo/ws/opencode.json", r#"{"mcp": {}, "model": "a/b"}"#),
                ("/u/repo/ws/.opencode/command/x.md", "plugin"),
                ("/u/.opencode/plugin/own.js", ""),
                ("/u/opencode.json", r#"{"plugin": ["own"]}"#),
            ]),
            None
        );
    }
}
