//! A time limit for tests that read the output of a process, which cannot be given a limit itself.

use std::{
    io::Write as _,
    process::{Child, Command},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::Duration,
};

/// Kills a process after a time, with a message that says what was awaited, unless it is dropped before. The read that
/// waits for the process then returns, and the test fails.
#[derive(Debug)]
pub struct Watchdog {
    _until: Sender<()>,
}

impl Watchdog {
    /// Watches a child of this test.
    #[must_use]
    pub fn over(child: &Child, limit: Duration, awaited: &str) -> Self {
        let (until, ended) = channel();
        let (pid, awaited) = (child.id().to_string(), awaited.to_owned());
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // A print macro would be captured by the test runner.
                let _ = writeln!(std::io::stderr(), "waited {limit:?} for {awaited}; killing process {pid}");
                let _ = Command::new("kill").args(["-9", &pid]).status();
            }
        });
        Self { _until: until }
    }
}
