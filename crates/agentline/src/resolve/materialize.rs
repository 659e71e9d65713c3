//! Carries out a launch: creates the private directory, its files and links.

use crate::{error::Error, fs::private_dir, resolve::spec::ProcessSpec};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Creates all files, links and directories of a process.
pub(crate) fn create_files(process: &ProcessSpec) -> Result<(), Error> {
    for dir in &process.dirs {
        private_dir::create_dir_all(dir).map_err(Error::io("create the directory", dir))?;
    }
    for file in &process.files {
        if let Some(parent) = file.path.parent() {
            private_dir::create_dir_all(parent).map_err(Error::io("create the directory", parent))?;
        }
        private_dir::write_new(&file.path, &file.content).map_err(Error::io("write", &file.path))?;
    }
    for (at, to) in &process.links {
        if let Some(parent) = at.parent() {
            private_dir::create_dir_all(parent).map_err(Error::io("create the directory", parent))?;
        }
        link(to, at).map_err(Error::io("link", at))?;
    }
    for file in process.files.iter().filter(|file| is_read_only(process, &file.path)) {
        private_dir::set_mode(&file.path, 0o400).map_err(Error::io("protect", &file.path))?;
    }
    for dir in read_only_dirs(process) {
        private_dir::set_mode(dir, 0o500).map_err(Error::io("protect", dir))?;
    }
    Ok(())
}

/// Returns whether the agent only reads this path.
pub(crate) fn is_read_only(process: &ProcessSpec, path: &Path) -> bool {
    process.read_only.iter().any(|dir| path.starts_with(dir))
}

/// Returns all directories of the launch that the agent only reads.
pub(crate) fn read_only_dirs(process: &ProcessSpec) -> impl Iterator<Item = &PathBuf> {
    let inner = process.dirs.iter().filter(|dir| !process.read_only.contains(dir));
    process.read_only.iter().chain(inner.filter(|dir| is_read_only(process, dir)))
}

/// Copies files back to the user that the agent has written in place of links.
pub(crate) fn copy_back_files(files: &[(PathBuf, PathBuf)]) {
    for (ours, theirs) in files {
        if fs::symlink_metadata(ours).is_ok_and(|found| found.is_file()) {
            // The rename makes the copy atomic. On failure, the user's file stays unchanged.
            let temporary = theirs.with_extension("agentline-new");
            if fs::copy(ours, &temporary).and_then(|_| fs::rename(&temporary, theirs)).is_err() {
                let _ = fs::remove_file(&temporary);
            }
        }
    }
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// Creates a link. On Windows few users may create links, so a file is copied if linking fails. Not tested.
#[cfg(windows)]
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    if to.is_dir() {
        std::os::windows::fs::symlink_dir(to, at)
    } else {
        std::os::windows::fs::symlink_file(to, at).or_else(|_| fs::copy(to, at).map(|_| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn only_files_that_replaced_a_link_are_copied_back() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["linked", "replaced"] {
            fs::write(at(&format!("user-{name}")), "old").unwrap();
            link(&at(&format!("user-{name}")), &at(name)).unwrap();
        }
        fs::write(at("new"), "new").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        let pair = |name: &str| (at(name), at(&format!("user-{name}")));
        copy_back_files(&[pair("linked"), pair("replaced"), pair("missing")]);
        let read = |name: &str| fs::read_to_string(at(&format!("user-{name}"))).unwrap();
        assert_eq!((read("linked").as_str(), read("replaced").as_str()), ("old", "new"));
        assert!(!at("user-missing").exists());
    }
}
