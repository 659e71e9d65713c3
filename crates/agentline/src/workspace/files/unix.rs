//! Directories by handle: each component is opened relative to its parent and never through a link.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::{
    ffi::{CString, OsStr},
    fs::{File, Metadata, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt, fchown},
        },
    },
    path::Path,
};

/// Opens a directory without requiring read permission, where the system supports it.
#[cfg(target_os = "linux")]
const SEARCH_ONLY: libc::c_int = libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const SEARCH_ONLY: libc::c_int = libc::O_RDONLY;

/// Does not block on pipes and does not acquire a controlling terminal.
const NON_BLOCKING: libc::c_int = libc::O_NONBLOCK | libc::O_NOCTTY;

/// An open directory.
#[derive(Debug)]
pub(super) struct DirHandle(OwnedFd);

impl DirHandle {
    /// Opens a directory by its path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = SEARCH_ONLY | libc::O_DIRECTORY;
        Ok(Self(OpenOptions::new().read(true).custom_flags(flags).open(path)?.into()))
    }

    /// Opens a subdirectory.
    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        self.open_at(name, SEARCH_ONLY | libc::O_DIRECTORY, 0).map(Self)
    }

    /// Creates a subdirectory.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the handle is open and the name ends in NUL.
        done(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o777) })
    }

    /// Opens a regular file for reading.
    pub(super) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, libc::O_RDONLY)
    }

    /// Opens an existing regular file for writing without changing it.
    pub(super) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, libc::O_WRONLY)
    }

    /// Creates a file that must not exist.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open_at(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o666).map(File::from)
    }

    /// Renames a file within this directory, replacing an existing file.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to, at) = (c_string(from)?, c_string(to)?, self.0.as_raw_fd());
        // SAFETY: the handle is open and both names end in NUL.
        done(unsafe { libc::renameat(at, from.as_ptr(), at, to.as_ptr()) })
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the handle is open and the name ends in NUL.
        done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// Opens a regular file. Checks the type before the open, because opening a device can have side effects, and again
    /// after it.
    fn ordinary(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        self.refuse_others(name)?;
        let file = File::from(self.open_at(name, flags | NON_BLOCKING, 0)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::IsADirectory.into()) }
    }

    fn refuse_others(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        let (at, flags) = (self.0.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: the handle is open, the name ends in NUL, and `stat` has room for the result.
        done(unsafe { libc::fstatat(at, name.as_ptr(), stat.as_mut_ptr(), flags) })?;
        // SAFETY: the call succeeded, so `stat` is initialized.
        let mode = unsafe { stat.assume_init() }.st_mode & libc::S_IFMT;
        match mode {
            libc::S_IFREG => Ok(()),
            libc::S_IFLNK => Err(io::Error::from_raw_os_error(libc::ELOOP)),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn open_at(&self, name: &OsStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<OwnedFd> {
        let name = c_string(name)?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the handle is open and the name ends in NUL.
        let fd = unsafe { libc::openat(self.0.as_raw_fd(), name.as_ptr(), flags, mode) };
        done(fd)?;
        // SAFETY: `openat` has just returned this descriptor, and it has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Copies the mode and, if permitted, the owner of the old file to the new one.
pub(super) fn copy_permissions(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // An ordinary user may not change the owner; that is not an error.
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(old.permissions())
}

/// Returns whether an operation failed because of a link. A link in place of a directory is reported as `ENOTDIR`.
pub(super) fn is_link(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR))
}

/// Returns whether an operation failed because the path is not a regular file: a socket, or a pipe without a reader.
pub(super) fn is_not_a_file(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO))
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
