//! Where Codex keeps its sessions.

use crate::agents::adapter::home_folder;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Returns the directory in which Codex keeps its files.
pub(super) fn home(env: &BTreeMap<String, String>, home: &Path) -> PathBuf {
    home_folder(env, home, "CODEX_HOME", ".codex")
}
