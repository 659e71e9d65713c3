//! Safe words for the system calls that Linux and macOS share.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own argument")]

use std::io::{self, PipeReader};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Exit;
use super::tail::{READ, append};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Our own process id, as the system calls want it.
pub(super) fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// Freezes a process; one that is gone already is none of our concern.
pub(super) fn stop(pid: i32) {
    let _ = send(pid, libc::SIGSTOP);
}

/// Kills a process.
pub(super) fn kill(pid: i32) -> io::Result<()> {
    send(pid, libc::SIGKILL)
}

/// Sends a signal to the group that `leader` leads, as a terminal would; to `leader` alone if it leads none.
pub(super) fn signal_group(leader: i32, signal: libc::c_int) {
    // SAFETY: kill takes no pointers. The guard keeps us from the meanings of 0, -1 and process 1.
    if leader <= 1 || unsafe { libc::kill(-leader, signal) } != 0 {
        let _ = send(leader, signal);
    }
}

/// Kills the group that `leader` leads or led.
pub(super) fn kill_group(leader: i32) {
    if leader > 1 {
        // SAFETY: as above.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

fn send(pid: i32, signal: libc::c_int) -> io::Result<()> {
    if pid <= 1 {
        return Ok(());
    }
    // SAFETY: kill takes no pointers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Leaves the session of whoever started us, so that its terminal and its group no longer reach us.
pub(super) fn new_session() {
    // SAFETY: setsid takes no arguments; it fails only if we lead a group, and then we are out already.
    unsafe { libc::setsid() };
}

/// The processor time that this process itself has used.
pub(super) fn own_cpu() -> Duration {
    // SAFETY: rusage is plain numbers, for which zero is a value, and getrusage fills it.
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

/// What asking for dead children brought.
#[derive(Debug)]
pub(super) enum Reaped {
    /// This child is dead, and now gone.
    Child(i32, Exit),
    /// There are children, and all are alive.
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
            Reaped::Child(pid, Exit::Signal(libc::WTERMSIG(status)))
        }
        pid if pid > 0 => Reaped::Child(pid, Exit::Code(libc::WEXITSTATUS(status))),
        _ => Reaped::NoChildren,
    }
}

/// Waits until this child is dead, and reaps it.
pub(super) fn reap_child(pid: i32) {
    if pid > 1 {
        // SAFETY: without a place for the status, waitpid takes plain numbers.
        while unsafe { libc::waitpid(pid, null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Reaps this process if it is a dead child of ours.
pub(super) fn reap_if_dead(pid: i32) {
    if pid > 1 {
        // SAFETY: as above.
        unsafe { libc::waitpid(pid, null_mut(), libc::WNOHANG) };
    }
}

/// Tells whether a child was stopped since the last call, and lets it go on if so.
pub(super) fn resume_if_stopped(child: i32) -> bool {
    if child <= 1 {
        return false;
    }
    // SAFETY: siginfo_t is plain data, for which zero is a value; it outlives the call.
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

/// Lets a stopped process go on.
pub(super) fn resume(pid: i32) {
    let _ = send(pid, libc::SIGCONT);
}

/// Ends this process at once. For a forked child, which must not run what its parent has set up for its own exit.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes `other`, and puts what standard output is in the place of standard input. For a forked child that uses neither.
pub(super) fn close_standard_input_and(other: RawFd) {
    // SAFETY: these take plain numbers, and nothing in this process uses either descriptor any more.
    unsafe {
        libc::dup2(libc::STDOUT_FILENO, libc::STDIN_FILENO);
        libc::close(other);
    }
}

/// The session of this process.
pub(super) fn own_session() -> i32 {
    // SAFETY: getsid takes a number.
    unsafe { libc::getsid(0) }
}

static SIGNAL_PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note_signal(signal: libc::c_int) {
    let byte = u8::try_from(signal).unwrap_or(0);
    // SAFETY: write is safe in a signal handler, and byte outlives the call. A full pipe wakes the reader anyway.
    // errno is put back, because the interrupted code may be about to read it.
    unsafe {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        libc::write(SIGNAL_PIPE.load(Ordering::Relaxed), (&raw const byte).cast(), 1);
        super::os::set_errno(errno);
    }
}

/// The signals that arrive from now on, as bytes in a pipe that never blocks.
///
/// Handled signals become default ones in a program that we start, so the agent does not inherit an ignored SIGINT.
pub(super) fn signals_as_pipe(signals: &[libc::c_int]) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    for fd in [reader.as_raw_fd(), writer.as_raw_fd()] {
        // SAFETY: fcntl with these commands takes plain numbers.
        check(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) })?;
    }
    SIGNAL_PIPE.store(std::os::fd::IntoRawFd::into_raw_fd(writer), Ordering::Relaxed);
    for signal in signals {
        // SAFETY: the action is zeroed plain data, then given our handler, which does only what a handler may do.
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

/// Waits until one of these can be read (or has ended), and says which; `None` as time waits for ever.
pub(super) fn wait_readable<const N: usize>(descriptors: [RawFd; N], time: Option<Duration>) -> [bool; N] {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let millis = time.map_or(-1, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: the array has as many entries as we say. A negative descriptor is skipped by poll.
    if unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, millis) } <= 0 {
        return [false; N];
    }
    polled.map(|entry| entry.revents != 0)
}

/// Lets the runtime tell when `file` can be read.
pub(super) fn readable_by_runtime<T: AsRawFd + Into<OwnedFd>>(file: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: what can become an owned descriptor has one open descriptor, always the same; nobody here replaces the
    // value inside.
    Ok(unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?)
}

/// A pipe that an agent writes to.
#[derive(Debug)]
pub(super) struct Pipe {
    reader: AsyncFd<PipeReader>,
    /// How many bytes are known to wait: each look is a call of the system.
    known: u64,
    /// Nobody can write to it any more, and all of it was read.
    ended: bool,
}

impl Pipe {
    /// A pipe, and the end of it that the agent gets.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        super::os::widen_pipe(writer.as_raw_fd());
        // SAFETY: fcntl with this command takes plain numbers.
        check(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
        Ok((Self { reader: readable_by_runtime(reader)?, known: 0, ended: false }, writer.into()))
    }

    /// Appends what is known to be there to `into`, up to [`READ`] bytes, and says how much that was.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> usize {
        if self.known == 0 {
            return 0;
        }
        let read = append(self.reader.get_mut(), self.known.min(READ), into);
        self.known -= (read as u64).min(self.known);
        read
    }

    /// Whether bytes are known to wait.
    pub(super) fn has_known(&self) -> bool {
        self.known > 0
    }

    /// Looks how much is there.
    pub(super) fn look(&mut self) {
        self.known = self.waiting();
    }

    /// Waits until there is something to read. The end counts as that once.
    pub(super) async fn readable(&mut self) {
        while !self.ended
            && let Ok(mut ready) = self.reader.readable_mut().await
        {
            self.known = bytes_waiting(ready.get_inner());
            if self.known > 0 {
                return;
            }
            // To the runtime the end counts as readable for ever.
            if ready.ready().is_read_closed() {
                self.ended = true;
                return;
            }
            ready.clear_ready();
        }
        std::future::pending().await
    }

    /// Whether nobody can write to it any more, and all of it was read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// How many bytes wait to be read.
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

/// How many descriptors travel with a plan: stdin, stdout and stderr of the agent.
const STREAMS: usize = 3;

/// Room for a control message with the three descriptors, aligned as its header wants it.
#[repr(align(16))]
struct Control([u8; 64]);

const STREAMS_SIZE: u32 = (STREAMS * size_of::<RawFd>()) as u32;

/// Sends bytes together with three open files.
pub(super) fn send_streams(
    socket: &UnixStream,
    bytes: &[u8],
    streams: [BorrowedFd<'_>; STREAMS],
) -> io::Result<usize> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all that the header points to outlives sendmsg; the control room is larger than CMSG_SPACE of three
    // descriptors (32 bytes at most), and the first header lies inside it.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(STREAMS_SIZE) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(STREAMS_SIZE) as _;
        let raw = streams.map(|stream| stream.as_raw_fd());
        std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), STREAMS);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes together with three open files, which no program that we start inherits by itself.
pub(super) fn receive_streams(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<(usize, [OwnedFd; STREAMS])> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: as for sending. The descriptors are read only from a message of the right kind and length, and are ours
    // from then on.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, super::os::RECEIVE_FLAGS);
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null()
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || (*header).cmsg_len as usize != libc::CMSG_LEN(STREAMS_SIZE) as usize
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut raw = [-1; STREAMS];
        std::ptr::copy_nonoverlapping(libc::CMSG_DATA(header).cast(), raw.as_mut_ptr(), STREAMS);
        for fd in raw {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        Ok((received, raw.map(|fd| OwnedFd::from_raw_fd(fd))))
    }
}
