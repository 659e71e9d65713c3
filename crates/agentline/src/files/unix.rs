//! Folders by their handles: each name is opened from the folder above it, and never through a link.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own argument")]

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

/// To pass through a folder one need not be able to list it, where the system can tell the two apart.
#[cfg(target_os = "linux")]
const PASS: libc::c_int = libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const PASS: libc::c_int = libc::O_RDONLY;

/// Neither waits for the other end of a pipe nor takes a terminal.
const CAREFUL: libc::c_int = libc::O_NONBLOCK | libc::O_NOCTTY;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder by its path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = PASS | libc::O_DIRECTORY;
        Ok(Self(OpenOptions::new().read(true).custom_flags(flags).open(path)?.into()))
    }

    /// Opens a folder in this one.
    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        self.open_at(name, PASS | libc::O_DIRECTORY, 0).map(Self)
    }

    /// Makes a folder in this one.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the handle is open and the name ends in NUL.
        done(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o777) })
    }

    /// Opens an ordinary file to read it.
    pub(super) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, libc::O_RDONLY)
    }

    /// Opens an ordinary file that is there to write it; nothing of it is changed.
    pub(super) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.ordinary(name, libc::O_WRONLY)
    }

    /// Makes a file that was not there.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open_at(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o666).map(File::from)
    }

    /// Renames a file within this folder; one that has the name already is replaced.
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

    /// Looks before it opens, because to open a device can do something, and once more behind it.
    fn ordinary(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        self.refuse_others(name)?;
        let file = File::from(self.open_at(name, flags | CAREFUL, 0)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::IsADirectory.into()) }
    }

    fn refuse_others(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        let (at, flags) = (self.0.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: the handle is open, the name ends in NUL, and there is room for the answer.
        done(unsafe { libc::fstatat(at, name.as_ptr(), stat.as_mut_ptr(), flags) })?;
        // SAFETY: the call succeeded, so it was written.
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
        // SAFETY: the system just gave it to us, and to nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Gives a file the mode and, where we may, the owner of another one.
pub(super) fn make_alike(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // An ordinary user may not give files away, and need not.
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(old.permissions())
}

/// A link was in the way. A link that should be a folder is reported as what it is not.
pub(super) fn is_link(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR))
}

/// What was opened is not an ordinary file: a socket, or a pipe that nobody reads.
pub(super) fn is_not_a_file(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO))
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
