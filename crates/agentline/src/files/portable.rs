//! Folders by their paths, for systems without handles of folders: each name is looked at before and behind its opening.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// A folder, without links.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Opens a folder by its path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if fs::metadata(path)?.is_dir() { Ok(Self(path.to_owned())) } else { Err(is_link_error()) }
    }

    /// Opens a folder in this one.
    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let path = self.join(name)?;
        if !fs::symlink_metadata(&path)?.is_dir() {
            return Err(is_link_error());
        }
        self.still(&path)?;
        Ok(Self(path))
    }

    /// Makes a folder in this one.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<()> {
        fs::create_dir(self.join(name)?)
    }

    /// Opens an ordinary file to read it.
    pub(super) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, OpenOptions::new().read(true))
    }

    /// Opens an ordinary file that is there to write it; nothing of it is changed.
    pub(super) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, OpenOptions::new().write(true))
    }

    /// Makes a file that was not there.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let path = self.join(name)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        self.still(&path)?;
        Ok(file)
    }

    /// Renames a file within this folder; one that has the name already is replaced.
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
            return Err(is_link_error());
        }
        if !meta.is_file() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = options.open(&path)?;
        self.still(&path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::IsADirectory.into()) }
    }

    /// A name with a colon is a drive or a second stream of a file, not a file.
    fn join(&self, name: &OsStr) -> io::Result<PathBuf> {
        if name.as_encoded_bytes().contains(&b':') {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(self.0.join(name))
    }

    /// The path still leads into this folder.
    fn still(&self, path: &Path) -> io::Result<()> {
        let inside = path.canonicalize()?.parent().is_some_and(|parent| parent == self.0);
        if inside { Ok(()) } else { Err(is_link_error()) }
    }
}

/// Gives a file the permissions of another one.
pub(super) fn make_alike(file: &File, old: &Metadata) -> io::Result<()> {
    file.set_permissions(old.permissions())
}

/// A link was in the way.
pub(super) fn is_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotADirectory
}

/// What was opened is not an ordinary file.
pub(super) fn is_not_a_file(_: &io::Error) -> bool {
    false
}

fn is_link_error() -> io::Error {
    io::ErrorKind::NotADirectory.into()
}
