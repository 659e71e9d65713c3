//! Sets the signal handling of this process, because `nohup` and `&` in a script leave some signals ignored.

/// Restores the default handling of hang-ups and interrupts. Programs that tests kill call it first.
pub fn restore_signals() {
    #[cfg(unix)]
    set([libc::SIGHUP, libc::SIGINT], libc::SIG_DFL);
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
