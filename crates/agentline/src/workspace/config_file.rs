//! Finds the configuration file of a workspace.

use crate::fs::disk_fs::canonicalize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The name of a workspace's configuration file.
pub const WORKSPACE_FILE: &str = "agentline.toml";

/// Returns the workspace's `agentline.toml`, or the nearest one above it. The search ends at the user's home directory.
#[must_use]
pub fn workspace_file(workspace: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let resolve = |path: &Path| {
        canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into())
    };
    let workspace = resolve(workspace);
    let home = home.map(resolve);
    for folder in workspace.ancestors() {
        let file = folder.join(WORKSPACE_FILE);
        if fs::symlink_metadata(&file).is_ok() && (folder == workspace || is_ours(&file, &workspace)) {
            return Some(file);
        }
        if home.as_deref() == Some(folder) {
            break;
        }
    }
    None
}

/// Returns whether a file above the workspace belongs to the workspace's owner or to root. In a directory such as
/// `/tmp`, any user could have created it. A file with an unknown owner is accepted.
#[cfg(unix)]
fn is_ours(file: &Path, workspace: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = |path: &Path| fs::metadata(path).map(|found| found.uid()).ok();
    owner(file).is_none_or(|uid| uid == 0 || Some(uid) == owner(workspace))
}

#[cfg(not(unix))]
fn is_ours(_file: &Path, _workspace: &Path) -> bool {
    true
}
