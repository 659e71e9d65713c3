//! Removes files and directories that an agent may have protected.

use std::{fs, path::Path};

/// Removes a file or a directory as far as possible, also a directory whose files are write-protected. Does not follow
/// links.
pub fn remove_tree(path: &Path) {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if !is_dir {
        let _ = fs::remove_file(path);
        return;
    }
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}
