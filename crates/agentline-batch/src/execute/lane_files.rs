//! The files of a lane, which an agent may have replaced by links.

use agentline_fs::readable::make_readable;
use agentline_fs::remove::remove_tree;
use std::io;
use std::path::{Path, PathBuf};

/// Copies hidden files over a workspace: the content of a directory, or one file. Whatever the agent put in their place,
/// such as a link to another directory, is removed first.
pub(super) fn copy_hidden(source: &Path, target: &Path) -> io::Result<()> {
    if !source.is_dir() {
        let name = source.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        remove_tree(&target.join(name));
        std::fs::copy(source, target.join(name))?;
        return Ok(());
    }
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        let inside = target.join(&dir);
        if !std::fs::symlink_metadata(&inside).is_ok_and(|metadata| metadata.is_dir()) {
            remove_tree(&inside);
            std::fs::create_dir(&inside)?;
        }
        for entry in std::fs::read_dir(source.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                waiting.push(path);
                continue;
            }
            remove_tree(&target.join(&path));
            std::fs::copy(entry.path(), target.join(&path))?;
        }
    }
    Ok(())
}

/// Empties a directory below `root` and creates it if necessary. An agent may have put a link in its place, or in that of
/// a directory above it: the link is removed, and its target stays.
pub(super) fn clear(root: &Path, dir: &Path) -> io::Result<()> {
    make_real(root, dir)?;
    for entry in std::fs::read_dir(dir)? {
        remove_tree(&entry?.path());
    }
    match std::fs::read_dir(dir)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::other(format!("`{}` cannot be emptied", dir.display()))),
    }
}

/// Makes sure that `dir` and the directories above it, up to `root`, are directories and no links, and that this user can
/// use them. Whatever else is in their place is removed.
pub(super) fn make_real(root: &Path, dir: &Path) -> io::Result<()> {
    let inside = dir.strip_prefix(root).map_err(io::Error::other)?;
    let mut path = root.to_owned();
    for part in inside.components() {
        path.push(part);
        if !std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            remove_tree(&path);
            agentline_fs::private_file::create_dir_all(&path)?;
        }
        make_readable(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn hidden_files_stay_in_the_workspace() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["hidden/tests", "workspace/one.txt", "elsewhere"] {
            std::fs::create_dir_all(at(name)).expect("a directory");
        }
        std::fs::write(at("hidden/tests/answer.txt"), "42").expect("a file");
        std::fs::write(at("hidden/one.txt"), "1").expect("a file");
        // The agent put a link and a directory in the place of the hidden files.
        std::os::unix::fs::symlink(at("elsewhere"), at("workspace/tests")).expect("a link");
        copy_hidden(&at("hidden"), &at("workspace")).expect("copied");
        assert_eq!(std::fs::read_to_string(at("workspace/tests/answer.txt")).expect("a file"), "42");
        assert_eq!(std::fs::read_to_string(at("workspace/one.txt")).expect("a file"), "1");
        assert_eq!(std::fs::read_dir(at("elsewhere")).expect("a directory").count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn link_in_the_place_of_a_workspace_is_removed_and_its_target_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("elsewhere/workspace")).expect("a directory");
        std::fs::write(at("elsewhere/workspace/kept.txt"), "x").expect("a file");
        std::fs::create_dir_all(at("root/lane-0")).expect("a directory");
        for (target, link) in [
            ("elsewhere/workspace", "root/lane-0/workspace"),
            ("elsewhere", "root/lane-1"),
            ("elsewhere/workspace/kept.txt", "root/lane-0/judge"),
        ] {
            std::os::unix::fs::symlink(at(target), at(link)).expect("a link");
        }
        for name in ["root/lane-0/workspace", "root/lane-1/workspace", "root/lane-0/judge"] {
            clear(&at("root"), &at(name)).expect("an empty directory");
            assert_eq!(std::fs::read_dir(at(name)).expect("a directory").count(), 0, "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("elsewhere/workspace/kept.txt")).expect("a file"), "x");
        assert!(clear(&at("root"), &at("elsewhere")).is_err(), "the directory is not below the root");
    }
}
