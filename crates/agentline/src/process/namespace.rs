//! Pid namespaces: when the first process of a namespace dies, the kernel kills every other process in it.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};

use super::super::Isolation;

/// A kind of namespace that an agent can be started in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Namespace {
    /// Pids and mounts. Requires `CAP_SYS_ADMIN`, which root usually has.
    Pid,
    /// Pids and mounts inside a user namespace, which many systems allow for unprivileged users.
    User {
        /// The user id, the same outside and inside.
        uid: u32,
        /// The group id, the same outside and inside.
        gid: u32,
    },
}

/// Returns the namespaces to try, in order of preference.
pub(in super::super) fn candidates(isolation: Isolation) -> Vec<Namespace> {
    // SAFETY: neither function takes an argument or can fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    match isolation {
        Isolation::Namespace if uid == 0 => vec![Namespace::Pid],
        Isolation::Namespace => vec![Namespace::User { uid, gid }],
        Isolation::Auto if uid == 0 => vec![Namespace::Pid],
        _ => Vec::new(),
    }
}

/// Forks this process and returns `None` in the child, which is the first process of the namespace, if one is given.
///
/// Call it only in a single-threaded process: the child gets a copy of everything except other threads.
pub(in super::super) fn fork(namespace: Option<Namespace>) -> io::Result<Option<i32>> {
    let flags = match namespace {
        None => 0,
        Some(Namespace::Pid) => libc::CLONE_NEWPID | libc::CLONE_NEWNS,
        Some(Namespace::User { .. }) => libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS,
    };
    let child = if flags == 0 {
        // SAFETY: there is only one thread, so the child can continue to run ordinary code.
        libc::c_long::from(unsafe { libc::fork() })
    } else {
        // SAFETY: as above; `clone_args` consists of integers, for which zero is valid, and its size is passed.
        unsafe {
            let mut args: libc::clone_args = zeroed();
            args.flags = u64::from(flags.cast_unsigned());
            args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
            libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>())
        }
    };
    match i32::try_from(child) {
        Ok(0) => Ok(None),
        Ok(pid @ 1..) => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets up a new namespace from inside: maps user and group ids to themselves and mounts a `/proc` of its processes.
pub(in super::super) fn enter(namespace: Namespace) -> io::Result<()> {
    if let Namespace::User { uid, gid } = namespace {
        map_ids(uid, gid)?;
    }
    // SAFETY: all strings are NUL-terminated and outlive the calls.
    unsafe {
        // Only `/proc` is made private. Other mounts of the agent propagate as they would without a namespace.
        if libc::mount(null(), c"/proc".as_ptr(), null(), libc::MS_PRIVATE, null()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let options = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let kind = c"proc".as_ptr();
        if libc::mount(kind, c"/proc".as_ptr(), kind, options, null()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Maps the user and group of this process, which has a new user namespace, to themselves.
pub(in super::super) fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Makes the kernel kill this process when its parent dies. Only for a child of a single-threaded process.
pub(in super::super) fn die_with_parent() {
    // SAFETY: prctl with this option takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// A buffer for a control message with credentials, aligned for its header.
#[repr(align(16))]
struct Control([u8; 64]);

const CREDENTIALS_SIZE: u32 = size_of::<libc::ucred>() as u32;

/// Makes a socket receive the pids that are sent with messages.
pub(in super::super) fn receive_pids(socket: &UnixStream) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is one int that outlives the call, and its size is passed.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends bytes with the pid of a process, which the kernel translates into the receiver's namespace.
pub(in super::super) fn send_with_pid(socket: &UnixStream, bytes: &[u8], pid: i32) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: everything the header points to outlives sendmsg; the control buffer is larger than CMSG_SPACE of
    // credentials (32 bytes), and the first header lies inside it.
    let sent = unsafe {
        let credentials = libc::ucred { pid, uid: libc::geteuid(), gid: libc::getegid() };
        let mut message = message(&mut part, &mut control);
        message.msg_controllen = libc::CMSG_SPACE(CREDENTIALS_SIZE) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_CREDENTIALS;
        (*header).cmsg_len = libc::CMSG_LEN(CREDENTIALS_SIZE) as _;
        std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), credentials);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives bytes and the pid that was sent with them.
pub(in super::super) fn receive_with_pid(
    socket: RawFd,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<i32>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: as in `send_with_pid`. Credentials are read only from a message of the right type and length.
    unsafe {
        let mut message = message(&mut part, &mut control);
        let received = libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC);
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let has_pid = !header.is_null()
            && (*header).cmsg_type == libc::SCM_CREDENTIALS
            && (*header).cmsg_len as usize == libc::CMSG_LEN(CREDENTIALS_SIZE) as usize;
        let pid = has_pid
            .then(|| std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::ucred>()).pid)
            .filter(|pid| *pid > 0);
        Ok((received, pid))
    }
}

/// Builds a message header for one buffer and its control buffer.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: the header consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = null_mut();
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    message
}
