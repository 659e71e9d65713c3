//! System calls of tests: signals, which `nohup` and `&` in a script leave ignored, processor time and namespaces.

use std::time::Duration;

/// Restores the default handling of hang-ups and interrupts. Programs that tests kill call it first.
pub fn restore_signals() {
    #[cfg(unix)]
    set([libc::SIGHUP, libc::SIGINT], libc::SIG_DFL);
}

/// Restores the default handling of interrupts, also for programs that are started from now on: one that is interrupted
/// before its first instruction would ignore it.
pub(crate) fn restore_interrupts() {
    #[cfg(unix)]
    set([libc::SIGINT], libc::SIG_DFL);
}

/// Ignores interrupts, as in a program that a script started with `&`.
pub fn ignore_interrupts() {
    #[cfg(unix)]
    set([libc::SIGINT], libc::SIG_IGN);
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "one system call")]
fn set<const N: usize>(signals: [libc::c_int; N], handler: libc::sighandler_t) {
    for signal in signals {
        // SAFETY: both handlers are constants of the system.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Returns the number of unread bytes in a pipe.
#[cfg(unix)]
#[must_use]
pub fn unread_bytes(pipe: impl std::os::fd::AsFd) -> usize {
    use std::os::fd::AsRawFd as _;
    let mut bytes: libc::c_int = 0;
    #[expect(unsafe_code, reason = "one system call")]
    // SAFETY: the descriptor is open while it is borrowed, and the call fills in the number that it is given.
    unsafe {
        libc::ioctl(pipe.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut bytes)
    };
    usize::try_from(bytes).unwrap_or(0)
}

/// Returns the processor time of this process, which does not depend on the load of the machine.
#[must_use]
pub fn cpu_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        #[expect(unsafe_code, reason = "one system call")]
        // SAFETY: the call fills in the structure that it is given.
        unsafe {
            libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time)
        };
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
    #[cfg(not(unix))]
    {
        use std::{sync::OnceLock, time::Instant};
        static STARTED_AT: OnceLock<Instant> = OnceLock::new();
        STARTED_AT.get_or_init(Instant::now).elapsed()
    }
}

/// Moves this thread into a new network namespace, and turns on its loopback device.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "system calls")]
pub(crate) fn enter_network_namespace() -> std::io::Result<()> {
    // SAFETY: unshare takes a number.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // Any socket will do for the request.
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    // SAFETY: all bytes of the structure may be 0.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    let socket = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the descriptor is open, and the call reads the structure that it is given.
    if unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
