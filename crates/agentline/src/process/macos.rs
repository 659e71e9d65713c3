//! macOS-specific code to find and inspect processes. Written from the documentation; not tested yet.
//!
//! There is no subreaper: an orphan becomes a child of process 1, and only its group and its mark lead back to the run.
//! A daemon that left its group and cleared its environment is not found.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::mem::zeroed;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;

use super::kill::Listed;

/// Orphans become children of process 1, so "no children left" does not mean "no descendants left".
pub(super) const IS_SUBREAPER: bool = false;

/// No flag closes received descriptors in child programs; this is done after they are received.
pub(super) const RECEIVE_FLAGS: libc::c_int = 0;

/// The clock that also counts the time in which the system is suspended.
pub(super) const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Returns the path of the running program.
pub(super) fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Does nothing: there is no subreaper.
pub(super) fn adopt_orphans() {}

/// Does nothing: a process cannot change its name.
pub(super) fn name_process(_name: &CStr) {}

/// Does nothing: there is no parent-death signal.
pub(super) fn kill_with_parent(_command: &mut Command) {}

/// Does nothing: there is no parent-death signal.
pub(super) fn resume_at_parent_death() {}

/// Returns `None`: there are no pidfds.
pub(super) fn open_parent() -> Option<OwnedFd> {
    None
}

/// Replacements for pid namespaces, which macOS does not have. A process has the same pid everywhere.
pub(super) mod namespace {
    use super::super::Isolation;
    use std::io::{self, Read as _, Write as _};
    use std::os::fd::{BorrowedFd, RawFd};
    use std::os::unix::net::UnixStream;

    /// An empty type: there are no namespaces.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in super::super) enum Namespace {}

    /// Returns an empty list.
    pub(in super::super) fn candidates(_isolation: Isolation) -> Vec<Namespace> {
        Vec::new()
    }

    /// Forks this process, which must be single-threaded.
    pub(in super::super) fn fork(_namespace: Option<Namespace>) -> io::Result<Option<i32>> {
        // SAFETY: there is only one thread, so the child can continue to run ordinary code.
        match unsafe { libc::fork() } {
            0 => Ok(None),
            pid if pid > 0 => Ok(Some(pid)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Cannot be called.
    pub(in super::super) fn enter(namespace: Namespace) -> io::Result<()> {
        match namespace {}
    }

    /// Does nothing: there is no parent-death signal.
    pub(in super::super) fn die_with_parent() {}

    /// Does nothing: messages carry no pids.
    pub(in super::super) fn receive_pids(_socket: &UnixStream) -> io::Result<()> {
        Ok(())
    }

    /// Sends the bytes without the pid.
    pub(in super::super) fn send_with_pid(
        mut socket: &UnixStream,
        bytes: &[u8],
        _pid: i32,
    ) -> io::Result<()> {
        socket.write_all(bytes)
    }

    /// Receives bytes without a pid.
    pub(in super::super) fn receive_with_pid(
        socket: RawFd,
        bytes: &mut [u8],
    ) -> io::Result<(usize, Option<i32>)> {
        // SAFETY: the caller keeps the socket open.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let mut socket = UnixStream::from(socket.try_clone_to_owned()?);
        Ok((socket.read(bytes)?, None))
    }
}

/// Closes every descriptor above stderr. Only for a single-threaded process that uses none of them.
pub(super) fn close_other_files() {
    let entries = fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: nothing in this process refers to those descriptors; closing one that is already closed only fails.
        unsafe { libc::close(fd) };
    }
}

/// Restores errno.
pub(super) fn set_errno(errno: libc::c_int) {
    // SAFETY: the location is valid in every thread.
    unsafe { *libc::__error() = errno };
}

/// Returns the ids of all processes.
pub(super) fn pids() -> Vec<i32> {
    // SAFETY: the first call only counts; the second gets a buffer and its size.
    unsafe {
        // Room for processes that start between the two calls.
        let count = usize::try_from(libc::proc_listallpids(null_mut(), 0)).unwrap_or(0) + 64;
        let mut pids = vec![0_i32; count];
        let size = libc::c_int::try_from(count * size_of::<i32>()).unwrap_or(0);
        let filled = libc::proc_listallpids(pids.as_mut_ptr().cast(), size);
        pids.truncate(usize::try_from(filled).unwrap_or(0));
        pids
    }
}

/// Returns all processes with their parents.
pub(super) fn processes() -> Vec<Listed> {
    pids().into_iter().filter_map(listed).collect()
}

fn listed(pid: i32) -> Option<Listed> {
    const SIZE: libc::c_int = size_of::<libc::proc_bsdinfo>() as libc::c_int;
    // SAFETY: the record consists of integers, for which zero is valid, and its size is passed.
    let info = unsafe {
        let mut info: libc::proc_bsdinfo = zeroed();
        let filled = libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), SIZE);
        (filled == SIZE).then_some(info)?
    };
    let parent = i32::try_from(info.pbi_ppid).ok()?;
    Some(Listed { pid, parent, session: 0, zombie: info.pbi_status == libc::SZOMB })
}

/// Returns whether this process exists and is not a zombie.
pub(super) fn is_alive(pid: i32) -> bool {
    listed(pid).is_some_and(|process| !process.zombie)
}

/// Nothing is kept open between two searches on this system.
#[derive(Debug, Default)]
pub(super) struct ChildLists;

/// A placeholder: the system does not report births of processes.
#[derive(Debug)]
pub(super) struct BirthDetector;

impl BirthDetector {
    pub(super) fn open() -> Option<Self> {
        None
    }

    #[expect(clippy::unused_self, reason = "same signature as on systems that detect births")]
    pub(super) fn now(&self) -> Option<BirthMark> {
        None
    }

    #[expect(clippy::unused_self, reason = "same signature as on systems that detect births")]
    pub(super) fn none_since(&self, moment: &BirthMark) -> bool {
        match *moment {}
    }

    #[expect(clippy::unused_self, reason = "same signature as on systems that detect births")]
    pub(super) fn is_since(&self, _pid: i32, moment: &BirthMark) -> bool {
        match *moment {}
    }
}

/// An empty type: births are not reported.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BirthMark {}

/// Returns all descendants of these processes.
pub(super) fn descendants_of(roots: &BTreeSet<i32>, _lists: &mut ChildLists) -> BTreeSet<i32> {
    super::kill::descendants(&processes(), roots)
}

/// Returns `None`: memory is not measured on this system.
pub(super) fn memory_of(_root: i32) -> Option<u64> {
    None
}

/// Applies `ask` to the initial environment of a process; returns `false` if it cannot be read.
///
/// The system returns program, arguments and environment in one buffer, each terminated by NUL.
pub(super) fn environment_matches(pid: i32, ask: impl FnOnce(&[u8]) -> bool) -> bool {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut size = 0;
    // SAFETY: the name has three parts; the first call only queries the size, the second gets a buffer of that size.
    unsafe {
        if libc::sysctl(name.as_mut_ptr(), 3, null_mut(), &raw mut size, null_mut(), 0) != 0 {
            return false;
        }
        let mut bytes = vec![0_u8; size];
        if libc::sysctl(name.as_mut_ptr(), 3, bytes.as_mut_ptr().cast(), &raw mut size, null_mut(), 0) != 0 {
            return false;
        }
        bytes.truncate(size);
        ask(&bytes)
    }
}

/// Creates a file, and returns a handle to read from it and one to append to it.
pub(super) fn unnamed_file() -> io::Result<(File, File)> {
    super::tail::file_with_passing_name()
}

/// Does nothing: the file keeps its disk space until the end of the run.
pub(super) fn release(_file: &File, _from: u64, _to: u64) {}

/// Does nothing: pipes grow by themselves on this system.
pub(super) fn widen_pipe(_pipe: RawFd) {}

/// An empty type: there is no watch, and the files are polled every few milliseconds.
#[derive(Debug)]
pub(super) enum FileWatch {}

impl FileWatch {
    /// Returns `None`.
    pub(super) fn new(_files: &[&File]) -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(super) fn take_notifications(&mut self) -> usize {
        match *self {}
    }

    /// Cannot be called.
    pub(super) async fn written(&mut self) {
        match *self {}
    }
}
