//! Processor time of all started processes, including orphans.

/// Returns the processor time of all exited children and their descendants in seconds. From the first call on, orphans
/// become children.
#[expect(unsafe_code, reason = "there is no safe alternative")]
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

/// Waits until no child remains.
#[expect(unsafe_code, reason = "there is no safe alternative")]
pub(super) fn reap() {
    // SAFETY: no status is requested; the call fails when there are no more children.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
}
