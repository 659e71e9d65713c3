//! Directories by path, for systems without directory handles. Each path is checked before and after it is opened.

use crate::fs::disk_fs::canonicalize;
use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// The path of a directory with all links resolved.
#[derive(Debug)]
pub(super) struct DirHandle(PathBuf);

impl DirHandle {
    /// Opens a directory by its path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if fs::metadata(path)?.is_dir() { Ok(Self(path.to_owned())) } else { Err(link_error()) }
    }

    /// Opens a subdirectory.
    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let path = self.join(name)?;
        if !fs::symlink_metadata(&path)?.is_dir() {
            return Err(link_error());
        }
        self.still(&path)?;
        Ok(Self(path))
    }

    /// Creates a subdirectory.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<()> {
        fs::create_dir(self.join(name)?)
    }

    /// Opens a regular file for reading.
    pub(super) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, OpenOptions::new().read(true))
    }

    /// Opens an existing regular file for writing without changing it.
    pub(super) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, OpenOptions::new().write(true))
    }

    /// Creates a file that must not exist.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let path = self.join(name)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        self.still(&path)?;
        Ok(file)
    }

    /// Renames a file within this directory, replacing an existing file.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.join(from)?, self.join(to)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.join(name)?)
    }

    fn ordinary(&self, name: &OsStr, options: &OpenOptions) -> io::Result<File> {
        let path = self.join(name)?;
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_symlink() {
            return Err(link_error());
        }
        if !meta.is_file() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = options.open(&path)?;
        self.still(&path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::IsADirectory.into()) }
    }

    /// Joins a name. A name with a colon is refused, because it means a drive or an alternate data stream.
    fn join(&self, name: &OsStr) -> io::Result<PathBuf> {
        if name.as_encoded_bytes().contains(&b':') {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(self.0.join(name))
    }

    /// Checks that the path still leads into this directory.
    fn still(&self, path: &Path) -> io::Result<()> {
        let inside = canonicalize(path)?.parent().is_some_and(|parent| parent == self.0);
        if inside { Ok(()) } else { Err(link_error()) }
    }
}

/// Copies the permissions of the old file to the new one.
pub(super) fn copy_permissions(file: &File, old: &Metadata) -> io::Result<()> {
    file.set_permissions(old.permissions())
}

/// Returns whether an operation failed because of a link.
pub(super) fn is_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotADirectory
}

/// Returns whether an operation failed because the path is not a regular file.
pub(super) fn is_not_a_file(_: &io::Error) -> bool {
    false
}

fn link_error() -> io::Error {
    io::ErrorKind::NotADirectory.into()
}
