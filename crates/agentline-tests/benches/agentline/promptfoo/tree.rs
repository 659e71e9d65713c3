//! Processor time of everything that was started, also of those whose parents have gone.

/// Processor time of all children that have ended, with all of theirs, in seconds. From the first call on, orphans become children.
#[expect(unsafe_code, reason = "there is no safe call for it")]
pub(super) fn cpu() -> f64 {
    // SAFETY: the first call changes a flag of this process; the struct is plain data that the second fills in.
    let usage = unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Waits until no child is left.
#[expect(unsafe_code, reason = "there is no safe call for it")]
pub(super) fn reap() {
    // SAFETY: no status is asked for; it ends with an error when there is no child any more.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
}
