//! Restores the state of a workspace from the original and the stored changes of a copy.

use crate::fs::remove::remove_tree;
use crate::workspace::change_in_copy::ChangeInCopy;
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// Writes changes into a directory with the files of the original, and nowhere else. Blocks.
///
/// Repositories are restored as well: their hooks and settings are the work of the agent, so let nothing use the directory
/// that would not also execute its other files.
///
/// # Errors
/// Fails if a file cannot be written, or if a path leaves the directory.
pub fn restore(changes: &[ChangeInCopy], workspace: &Path) -> io::Result<()> {
    let mut changes: Vec<&ChangeInCopy> = changes.iter().collect();
    changes.sort_by_key(|change| change.path());
    // What is inside a directory before the directory.
    for change in changes.iter().rev().filter(|change| matches!(change, ChangeInCopy::Missing { .. })) {
        remove(&inside(workspace, change.path())?)?;
    }
    let mut modes = Vec::new();
    for change in &changes {
        if let ChangeInCopy::Directory { path, mode } = change {
            let at = inside(workspace, path)?;
            create_dir(&at)?;
            modes.extend(mode.map(|mode| (at, mode)));
        }
    }
    for change in &changes {
        if matches!(change, ChangeInCopy::Missing { .. } | ChangeInCopy::Directory { .. }) {
            continue;
        }
        let at = inside(workspace, change.path())?;
        if at.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            remove_tree(&at);
        }
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent)?;
        }
        change.state()?.put(&at)?;
    }
    // Last, because a directory may not be writable.
    for (dir, mode) in modes.into_iter().rev() {
        set_mode(&dir, mode)?;
    }
    Ok(())
}

/// Returns a path in the workspace that does not pass through a link.
fn inside(workspace: &Path, path: &Path) -> io::Result<PathBuf> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not inside", path.display()));
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || path.as_os_str().is_empty() {
        return Err(refused());
    }
    let mut dir = workspace.to_owned();
    for part in path.parent().unwrap_or(Path::new("")).components() {
        dir.push(part);
        if dir.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(refused());
        }
    }
    Ok(workspace.join(path))
}

fn remove(at: &Path) -> io::Result<()> {
    use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
    let removed = match at.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(at),
        Ok(_) => fs::remove_file(at),
        Err(error) => Err(error),
    };
    match removed {
        // A directory may still have files that were not stored.
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | DirectoryNotEmpty) => Ok(()),
        removed => removed,
    }
}

/// Creates a directory in place of whatever else is there.
fn create_dir(at: &Path) -> io::Result<()> {
    match at.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(at)?,
        Err(_) => {}
    }
    fs::create_dir_all(at)
}

#[cfg(unix)]
fn set_mode(dir: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode & 0o777))
}

#[cfg(not(unix))]
fn set_mode(_dir: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changes(list: &[serde_json::Value]) -> Vec<ChangeInCopy> {
        list.iter().map(|change| serde_json::from_value(change.clone()).expect("a change")).collect()
    }

    #[test]
    fn file_takes_the_place_of_a_directory_and_vice_versa() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("dir/sub")).expect("a directory");
        fs::write(at("dir/sub/old.txt"), "old").expect("a file");
        fs::write(at("file"), "old").expect("a file");
        let changes = changes(&[
            json!({"kind": "text", "path": "dir", "mode": null, "text": "new"}),
            json!({"kind": "missing", "path": "dir/sub/old.txt"}),
            json!({"kind": "text", "path": "file/inside", "mode": null, "text": "new"}),
            json!({"kind": "missing", "path": "file"}),
        ]);
        restore(&changes, dir.path()).expect("changes");
        assert_eq!(fs::read_to_string(at("dir")).expect("a file"), "new");
        assert_eq!(fs::read_to_string(at("file/inside")).expect("a file"), "new");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_restored_outside_the_workspace() {
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = dir.path().join("workspace");
        fs::create_dir(&workspace).expect("a directory");
        std::os::unix::fs::symlink(dir.path(), workspace.join("out")).expect("a link");
        for path in ["../a.txt", "/a.txt", "out/a.txt", "", "dir/../../a.txt"] {
            for change in [
                json!({"kind": "text", "path": path, "mode": null, "text": "x"}),
                json!({"kind": "directory", "path": path, "mode": null}),
                json!({"kind": "missing", "path": path}),
            ] {
                restore(&changes(&[change]), &workspace).expect_err(path);
            }
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }
}
