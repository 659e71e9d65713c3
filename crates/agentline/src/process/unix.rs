//! Safe wrappers around the system calls that Linux and macOS share.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::io::{self, PipeReader};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ProcessExit;
use super::tail::{READ, append};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns this process's id as the system calls expect it.
pub(super) fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// Stops a process. No-op if it is already gone.
pub(super) fn stop(pid: i32) {
    let _ = send(pid, libc::SIGSTOP);
}

/// Kills a process.
pub(super) fn kill(pid: i32) -> io::Result<()> {
    send(pid, libc::SIGKILL)
}

/// Sends a signal to the group that `leader` leads, as a terminal does, or to `leader` alone if it leads none.
pub(super) fn signal_group(leader: i32, signal: libc::c_int) {
    // SAFETY: kill takes no pointers. The check avoids the special meanings of 0, -1 and process 1.
    if leader <= 1 || unsafe { libc::kill(-leader, signal) } != 0 {
        let _ = send(leader, signal);
    }
}

/// Kills the process group of `leader`, even if the leader itself is gone.
pub(super) fn kill_group(leader: i32) {
    if leader > 1 {
        // SAFETY: as above.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Lets the command's process be interrupted and terminated even if this process ignores those signals, as a
/// process that a script starts with `&` does.
pub(super) fn accept_signals(command: &mut Command) {
    const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
    let is_ignored = |signal| {
        // SAFETY: an all-zero sigaction is valid, and the call only fills it in.
        let mut current: libc::sigaction = unsafe { zeroed() };
        // SAFETY: as above.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut current) } == 0;
        known && current.sa_sigaction == libc::SIG_IGN
    };
    if SIGNALS.into_iter().any(is_ignored) {
        let before_exec = || {
            for signal in SIGNALS {
                // SAFETY: the default handler is always valid.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(before_exec) };
    }
}

fn send(pid: i32, signal: libc::c_int) -> io::Result<()> {
    if pid <= 1 {
        return Ok(());
    }
    // SAFETY: kill takes no pointers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Starts a new session, so that signals to the caller's terminal and process group no longer reach this process.
pub(super) fn new_session() {
    // SAFETY: setsid takes no arguments. It fails only if this process already leads a process group.
    unsafe { libc::setsid() };
}

/// Returns the CPU time that this process has used.
pub(super) fn own_cpu() -> Duration {
    // SAFETY: rusage consists of integers, for which zero is valid, and getrusage fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(u64::try_from(t.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(t.tv_usec).unwrap_or(0))
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Returns the time since the system started, including the time in which it was suspended.
pub(super) fn time_since_boot() -> Duration {
    // SAFETY: timespec consists of integers, for which zero is valid, and clock_gettime fills it in.
    let now = unsafe {
        let mut now: libc::timespec = zeroed();
        libc::clock_gettime(super::os::BOOT_CLOCK, &raw mut now);
        now
    };
    Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0))
        + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The result of [`reap`].
#[derive(Debug)]
pub(super) enum Reaped {
    /// This child was dead and has been reaped.
    Child(i32, ProcessExit),
    /// There are children, and all of them are alive.
    AllAlive,
    /// There are no children.
    NoChildren,
}

/// Reaps one dead child, if there is one.
pub(super) fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: status outlives the call.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Reaped::AllAlive,
        pid if pid > 0 && libc::WIFSIGNALED(status) => {
            Reaped::Child(pid, ProcessExit::Signal(libc::WTERMSIG(status)))
        }
        pid if pid > 0 => Reaped::Child(pid, ProcessExit::Code(libc::WEXITSTATUS(status))),
        _ => Reaped::NoChildren,
    }
}

/// Waits until this child is dead and reaps it.
pub(super) fn reap_child(pid: i32) {
    if pid > 1 {
        // SAFETY: without a pointer for the status, waitpid takes plain numbers.
        while unsafe { libc::waitpid(pid, null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Waits until this child is dead, reaps it and returns how it exited.
#[cfg(target_os = "linux")]
pub(super) fn wait_for(pid: i32) -> io::Result<ProcessExit> {
    let mut status = 0;
    // SAFETY: status outlives the call.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(if libc::WIFSIGNALED(status) {
        ProcessExit::Signal(libc::WTERMSIG(status))
    } else {
        ProcessExit::Code(libc::WEXITSTATUS(status))
    })
}

/// Reaps this process if it is a dead child of this process.
pub(super) fn reap_if_dead(pid: i32) {
    if pid > 1 {
        // SAFETY: as above.
        unsafe { libc::waitpid(pid, null_mut(), libc::WNOHANG) };
    }
}

/// Resumes a child that was stopped since the last call and returns whether it was.
pub(super) fn resume_if_stopped(child: i32) -> bool {
    if child <= 1 {
        return false;
    }
    // SAFETY: siginfo_t is plain data, for which zero is valid, and outlives the call.
    let stopped = unsafe {
        let mut info: libc::siginfo_t = zeroed();
        let options = libc::WSTOPPED | libc::WNOHANG;
        libc::waitid(libc::P_PID, child.cast_unsigned() as libc::id_t, &raw mut info, options) == 0
            && info.si_code == libc::CLD_STOPPED
    };
    if stopped {
        signal_group(child, libc::SIGCONT);
    }
    stopped
}

/// Resumes a stopped process.
pub(super) fn resume(pid: i32) {
    let _ = send(pid, libc::SIGCONT);
}

/// Exits immediately. For a forked child, which must not run its parent's exit handlers.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes `other` and replaces standard input with standard output. For a forked child that uses neither descriptor.
pub(super) fn close_standard_input_and(other: RawFd) {
    // SAFETY: the calls take plain numbers, and nothing in this process uses either descriptor any more.
    unsafe {
        libc::dup2(libc::STDOUT_FILENO, libc::STDIN_FILENO);
        libc::close(other);
    }
}

/// Returns the session id of this process.
pub(super) fn own_session() -> i32 {
    // SAFETY: getsid takes a number.
    unsafe { libc::getsid(0) }
}

static SIGNAL_PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note_signal(signal: libc::c_int) {
    let byte = u8::try_from(signal).unwrap_or(0);
    // SAFETY: write is safe in a signal handler, and byte outlives the call. A full pipe wakes the reader anyway. errno
    // is restored, because the interrupted code may be about to read it.
    unsafe {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        libc::write(SIGNAL_PIPE.load(Ordering::Relaxed), (&raw const byte).cast(), 1);
        super::os::set_errno(errno);
    }
}

/// Redirects these signals, from now on, as bytes into a non-blocking pipe.
///
/// Handled signals are reset to the default in child programs, so the agent does not inherit an ignored SIGINT.
pub(super) fn signals_as_pipe(signals: &[libc::c_int]) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    for fd in [reader.as_raw_fd(), writer.as_raw_fd()] {
        // SAFETY: fcntl with these commands takes plain numbers.
        check(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) })?;
    }
    SIGNAL_PIPE.store(std::os::fd::IntoRawFd::into_raw_fd(writer), Ordering::Relaxed);
    for signal in signals {
        // SAFETY: the action is zeroed plain data with a handler that is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = note_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            check(libc::sigaction(*signal, &raw const action, null_mut()))?;
        }
    }
    Ok(reader)
}

/// Waits until one of these descriptors is readable or closed, and returns which. With `None`, there is no time limit.
pub(super) fn wait_readable<const N: usize>(descriptors: [RawFd; N], time: Option<Duration>) -> [bool; N] {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let millis = time.map_or(-1, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: the array has `N` entries. poll skips negative descriptors.
    if unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, millis) } <= 0 {
        return [false; N];
    }
    polled.map(|entry| entry.revents != 0)
}

/// Registers `file` with the runtime, which then reports when it is readable.
pub(super) fn readable_by_runtime<T: AsRawFd + Into<OwnedFd>>(file: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: a type that converts into an owned descriptor has one open descriptor that never changes, and no code
    // replaces the value inside.
    Ok(unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?)
}

/// A pipe that an agent writes to.
#[derive(Debug)]
pub(super) struct Pipe {
    reader: AsyncFd<PipeReader>,
    /// The number of bytes known to be unread. It is cached, because each query is a system call.
    known: u64,
    /// Whether all writers have closed the pipe and all of it was read.
    ended: bool,
}

impl Pipe {
    /// Creates a pipe and the write end for the agent.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        super::os::widen_pipe(writer.as_raw_fd());
        // SAFETY: fcntl with this command takes plain numbers.
        check(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
        Ok((Self { reader: readable_by_runtime(reader)?, known: 0, ended: false }, writer.into()))
    }

    /// Appends bytes that are known to be unread to `into`, at most [`READ`], and returns their number.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> usize {
        if self.known == 0 {
            return 0;
        }
        let read = append(self.reader.get_mut(), self.known.min(READ), into);
        self.known -= (read as u64).min(self.known);
        read
    }

    /// Returns whether there are bytes known to be unread.
    pub(super) fn has_unread(&self) -> bool {
        self.known > 0
    }

    /// Queries the number of unread bytes.
    pub(super) fn query_unread(&mut self) {
        self.known = self.waiting();
    }

    /// Waits until there is something to read. The end of the pipe is reported once.
    pub(super) async fn readable(&mut self) {
        while !self.ended
            && let Ok(mut ready) = self.reader.readable_mut().await
        {
            self.known = bytes_waiting(ready.get_inner());
            if self.known > 0 {
                return;
            }
            // The runtime reports a closed pipe as readable forever.
            if ready.ready().is_read_closed() {
                self.ended = true;
                return;
            }
            ready.clear_ready();
        }
        std::future::pending().await
    }

    /// Returns whether all writers have closed the pipe and all of it was read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns the number of unread bytes.
    pub(super) fn waiting(&self) -> u64 {
        bytes_waiting(self.reader.get_ref())
    }
}

fn bytes_waiting(pipe: &PipeReader) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which outlives the call.
    unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    u64::try_from(count).unwrap_or(0)
}

/// The number of descriptors that may be sent with a plan: stdin, stdout and stderr of the agent, and the file of its
/// deadline.
const MOST_FILES: usize = 4;

/// A buffer for a control message with descriptors, aligned for its header.
#[repr(align(16))]
struct Control([u8; 64]);

/// Returns the size of this number of descriptors in a control message.
const fn files_size(count: usize) -> u32 {
    (count * size_of::<RawFd>()) as u32
}

/// Sends bytes together with at most four open descriptors.
pub(super) fn send_files(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).take(MOST_FILES).collect();
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: everything the header points to outlives sendmsg; the control buffer is larger than CMSG_SPACE of four
    // descriptors (32 bytes at most), and the first header lies inside it.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(files_size(raw.len())) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(files_size(raw.len())) as _;
        std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), raw.len());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes together with at most four open descriptors, which are closed in child programs.
pub(super) fn receive_files(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: as in `send_files`. The descriptors are read only from a message of the right type and length, and then
    // have no other owner.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, super::os::RECEIVE_FLAGS);
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let length = (*header).cmsg_len as usize;
        let count = (1..=MOST_FILES).find(|count| length == libc::CMSG_LEN(files_size(*count)) as usize);
        let count = count.ok_or(io::ErrorKind::InvalidData)?;
        let mut raw = vec![-1; count];
        std::ptr::copy_nonoverlapping(libc::CMSG_DATA(header).cast(), raw.as_mut_ptr(), count);
        for fd in &raw {
            libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        Ok((received, raw.into_iter().map(|fd| OwnedFd::from_raw_fd(fd)).collect()))
    }
}
