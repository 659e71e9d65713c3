//! Calls to the operating system: signals, sessions and file descriptors.

use std::sync::atomic::{AtomicBool, Ordering};

static SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Returns whether a signal arrived since [`notice_signals`].
pub(crate) fn signalled() -> bool {
    SIGNALLED.load(Ordering::SeqCst)
}

#[cfg(unix)]
pub(crate) use unix::*;

#[cfg(unix)]
mod unix {
    #![expect(unsafe_code, reason = "the standard library has no safe alternative")]

    use std::ffi::CString;
    use std::fs::OpenOptions;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use super::SIGNALLED;

    /// The signals with which a driver asks an agent to stop.
    const POLITE: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    /// Ignores these signals from now on.
    pub(crate) fn ignore_signals() -> io::Result<()> {
        POLITE.into_iter().try_for_each(|signal| handle(signal, libc::SIG_IGN))
    }

    /// Records these signals from now on instead of ending the process.
    pub(crate) fn notice_signals() -> io::Result<()> {
        extern "C" fn note(_: libc::c_int) {
            SIGNALLED.store(true, Ordering::SeqCst);
        }
        let note = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        POLITE.into_iter().try_for_each(|signal| handle(signal, note))
    }

    /// Ends this process with a signal that its own fault would cause.
    pub(crate) fn die_by(signal: i32) -> io::Result<()> {
        handle(signal, libc::SIG_DFL)
            .or_else(|error| if signal == libc::SIGKILL { Ok(()) } else { Err(error) })?;
        // SAFETY: sends a signal to this process; no memory is involved.
        check(unsafe { libc::kill(libc::getpid(), signal) })?;
        // The signal may reach another thread first; it ends this one too.
        std::thread::sleep(std::time::Duration::from_secs(60));
        Ok(())
    }

    /// Leaves the session and the process group of the parent process.
    pub(crate) fn own_session() -> io::Result<()> {
        // SAFETY: uses no memory.
        check(unsafe { libc::setsid() })
    }

    /// Kills every process of a group by the id of its leader.
    pub(crate) fn kill_group(leader: u32) -> io::Result<()> {
        let group = libc::pid_t::try_from(leader).map_err(io::Error::other)?;
        // SAFETY: sends a signal; no memory is involved.
        check(unsafe { libc::kill(-group, libc::SIGKILL) })
    }

    /// Closes a standard stream for the other side. The descriptor stays in use, so that no file opened later gets it.
    pub(crate) fn close_standard(number: i32) -> io::Result<()> {
        let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        // SAFETY: both descriptors are open, and `nowhere` stays open until the call returns.
        check(unsafe { libc::dup2(nowhere.as_raw_fd(), number) })
    }

    /// Creates a named pipe, on which a careless reader blocks forever.
    pub(crate) fn make_fifo(path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the string ends with a NUL and lives until the call returns.
        check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) })
    }

    fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
        // SAFETY: every handler used here is a constant of libc or a function that only stores an atomic.
        let before = unsafe { libc::signal(signal, handler) };
        if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn check(returned: libc::c_int) -> io::Result<()> {
        if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The numbers of the signals that an agent's own fault causes.
pub(crate) mod signal {
    pub(crate) const KILL: i32 = 9;
    pub(crate) const SEGV: i32 = 11;
    pub(crate) const ABRT: i32 = 6;
    pub(crate) const TERM: i32 = 15;
}

#[cfg(not(unix))]
pub(crate) use elsewhere::*;

#[cfg(not(unix))]
mod elsewhere {
    use std::io;
    use std::path::Path;

    fn unsupported() -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this fault requires Unix"))
    }

    pub(crate) fn ignore_signals() -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn notice_signals() -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn die_by(_signal: i32) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn own_session() -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn kill_group(_leader: u32) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn close_standard(_number: i32) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn make_fifo(_path: &Path) -> io::Result<()> {
        unsupported()
    }
}
