//! Carries a launch out: the private folder, its files and links.

use crate::error::Error;
use agentline_core::Launch;
use std::{fs, path::Path};

/// Makes a private folder that is removed with the run.
pub(crate) fn private_folder(parent: &Path) -> Result<tempfile::TempDir, Error> {
    // The default of `tempfile` is a folder that only its owner may enter.
    tempfile::Builder::new()
        .prefix("agentline-")
        .tempdir_in(parent)
        .map_err(Error::io("make a private folder in", parent))
}

/// Writes everything that the launch wants to find.
pub(crate) fn carry_out(launch: &Launch) -> Result<(), Error> {
    for folder in &launch.folders {
        fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
    }
    for file in &launch.files {
        if let Some(parent) = file.path.parent() {
            fs::create_dir_all(parent).map_err(Error::io("make the folder", parent))?;
        }
        fs::write(&file.path, &file.content).map_err(Error::io("write", &file.path))?;
    }
    for (at, to) in &launch.links {
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent).map_err(Error::io("make the folder", parent))?;
        }
        link(to, at).map_err(Error::io("link", at))?;
    }
    Ok(())
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// Links need a right on Windows that few users have; a folder is joined, a file is copied. Not tested there.
#[cfg(windows)]
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    if to.is_dir() {
        std::os::windows::fs::symlink_dir(to, at)
    } else {
        std::os::windows::fs::symlink_file(to, at).or_else(|_| fs::copy(to, at).map(|_| ()))
    }
}
