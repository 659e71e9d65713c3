//! Lists directories, for tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns everything below a directory. Links are not followed.
#[must_use]
pub fn paths_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(paths_below(&path));
        }
        found.push(path);
    }
    found
}
