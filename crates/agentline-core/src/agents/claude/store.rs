//! Where Claude Code keeps its sessions.

use crate::agents::adapter::home_folder;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Returns the directory in which Claude Code keeps its files.
pub(super) fn home(env: &BTreeMap<String, String>, home: &Path) -> PathBuf {
    home_folder(env, home, "CLAUDE_CONFIG_DIR", ".claude")
}

/// Returns the name of the directory that holds the sessions of a workspace.
pub(super) fn project_dir(cwd: &Path) -> String {
    let name = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    cwd.to_string_lossy().chars().map(name).collect()
}
