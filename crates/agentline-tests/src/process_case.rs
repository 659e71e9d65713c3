//! The processes of one test of the process layer.

use crate::{running_with, survivors, wait_until};
use agentline::{
    internals::process::{Process, Spawn},
    supervisor::Supervisor,
};
use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// A test's unique words, by which its processes are found. They are killed with it.
#[derive(Debug)]
pub struct ProcessCase {
    /// The mark in the environment of every process that does not remove it.
    pub mark: String,
    /// A unique duration for `sleep`. Scripts get it as `$TAG`.
    pub tag: String,
}

impl ProcessCase {
    /// Creates a case with unique words.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { mark: format!("test-{pid}-{count}."), tag: format!("600.{pid:08}{count:03}") }
    }

    /// Returns a shell that runs this script.
    #[must_use]
    pub fn spawn(&self, script: &str, supervisor: Supervisor) -> Spawn {
        let mut spawn = Spawn::new("/bin/sh", "/", &self.mark);
        spawn.args = ["-c", script].map(Into::into).to_vec();
        let path = std::env::var_os("PATH").unwrap_or_default();
        spawn.env =
            [("PATH", path), ("TAG", self.tag.clone().into())].map(|(key, value)| (key.into(), value)).into();
        spawn.supervisor = supervisor;
        spawn
    }

    /// Returns all live processes with the mark or the tag.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<u32> {
        let own = std::process::id();
        let all = survivors(&self.mark).into_iter().chain(running_with(&self.tag));
        all.filter(|pid| *pid != own).collect()
    }

    /// Starts a shell that runs this script.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn start(&self, script: &str, supervisor: Supervisor) -> Process {
        let process = Process::spawn(self.spawn(script, supervisor)).expect("the shell starts");
        assert!(process.pid().is_some_and(|pid| pid > 1));
        process
    }

    /// Waits until this many processes exist.
    ///
    /// # Panics
    /// Panics if they do not start.
    pub fn await_processes(&self, count: usize) {
        wait_until(&format!("the start of {count} processes"), || self.processes().len() >= count);
    }

    /// Asserts that none of its processes is alive.
    ///
    /// # Panics
    /// Panics if one is alive.
    #[track_caller]
    pub fn assert_no_survivors(&self) {
        let left = self.processes();
        let names: Vec<_> =
            left.iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline"))).collect();
        assert!(left.is_empty(), "survivors: {left:?} {names:?}");
    }

    /// Waits until all processes have exited, if another process kills them, and returns how long that took.
    ///
    /// # Panics
    /// Panics if they do not exit in time.
    #[track_caller]
    pub fn time_to_silence(&self, at_most: Duration) -> Duration {
        let from = Instant::now();
        while !self.processes().is_empty() {
            if from.elapsed() > at_most {
                self.assert_no_survivors();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        from.elapsed()
    }
}

impl Default for ProcessCase {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ProcessCase {
    fn drop(&mut self) {
        for pid in self.processes() {
            drop(Command::new("kill").args(["-9", &pid.to_string()]).output());
        }
    }
}
