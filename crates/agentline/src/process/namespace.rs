//! Pid namespaces: when the first process of one dies, the kernel kills every other process in it.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own argument")]

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
    /// Pids and mounts. Takes `CAP_SYS_ADMIN`, which root has as a rule.
    Pid,
    /// The same inside a user namespace, which many systems allow to everybody.
    User {
        /// The user outside, and inside.
        uid: u32,
        /// The group outside, and inside.
        gid: u32,
    },
}

/// Returns the namespaces to try, the best one first.
pub(in super::super) fn candidates(isolation: Isolation) -> Vec<Namespace> {
    // SAFETY: neither takes an argument or can fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    match isolation {
        Isolation::Namespace if uid == 0 => vec![Namespace::Pid],
        Isolation::Namespace => vec![Namespace::User { uid, gid }],
        Isolation::Auto if uid == 0 => vec![Namespace::Pid],
        _ => Vec::new(),
    }
}

/// Forks this process. The child, for which this returns `None`, is the first process of the namespace, if there is one.
///
/// For a process with one thread: the child has a copy of everything else.
pub(in super::super) fn fork(namespace: Option<Namespace>) -> io::Result<Option<i32>> {
    let flags = match namespace {
        None => 0,
        Some(Namespace::Pid) => libc::CLONE_NEWPID | libc::CLONE_NEWNS,
        Some(Namespace::User { .. }) => libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS,
    };
    let child = if flags == 0 {
        // SAFETY: there is one thread, so that the child can go on as the parent would.
        libc::c_long::from(unsafe { libc::fork() })
    } else {
        // SAFETY: as above; the arguments are plain numbers, for which zero is a value, and their size is given.
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

/// Makes a new namespace fit to live in, from inside: user ids as outside, and a `/proc` that shows its processes.
pub(in super::super) fn enter(namespace: Namespace) -> io::Result<()> {
    if let Namespace::User { uid, gid } = namespace {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    // SAFETY: all strings end in NUL and outlive the calls.
    unsafe {
        // Only `/proc` is made private: what the agent mounts elsewhere is seen outside as it would be without us.
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

/// Has the kernel kill this process when its parent dies. For a child of a process with one thread.
pub(in super::super) fn die_with_parent() {
    // SAFETY: prctl with this option takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Room for a control message with credentials, aligned as its header wants it.
#[repr(align(16))]
struct Control([u8; 64]);

const CREDENTIALS_SIZE: u32 = size_of::<libc::ucred>() as u32;

/// Lets a socket tell the pids that come with messages.
pub(in super::super) fn receive_pids(socket: &UnixStream) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is one int, which outlives the call, and its size is given.
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

/// Sends bytes with the pid of a process. The kernel translates it into the receiver's namespace.
pub(in super::super) fn send_with_pid(socket: &UnixStream, bytes: &[u8], pid: i32) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all that the header points to outlives sendmsg; the control room is larger than CMSG_SPACE of credentials
    // (32 bytes), and the first header lies inside it.
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

/// Receives bytes, with the pid that came with them.
pub(in super::super) fn receive_with_pid(
    socket: RawFd,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<i32>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: as for sending. Credentials are read only from a message of the right kind and length.
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

/// A message header for one part and its control room.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: the header is plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = null_mut();
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    message
}
