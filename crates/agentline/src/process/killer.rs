//! Kills the tree of an agent from any thread, for when the thread that owns the process is stuck.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::kill::ProcessSearch;
use super::{ProcessSignal, unix};

/// How long a kill keeps trying to end processes that do not die.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between two searches for remaining processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// A handle that kills an agent and everything it started.
#[derive(Debug)]
pub(crate) struct Killer {
    /// The pid of the supervisor, and a clone of the socket to it.
    supervisor: Option<(u32, UnixStream)>,
    mark: String,
}

impl Killer {
    pub(super) fn new(supervisor: Option<(u32, UnixStream)>, mark: &str) -> Self {
        Self { supervisor, mark: mark.to_owned() }
    }

    /// Kills the tree. Blocks for about a second at most.
    pub(crate) fn kill(&self) {
        if let Some((pid, socket)) = &self.supervisor {
            // A stopped supervisor is resumed. If it is gone, the search below does its work.
            let _ = (&*socket).write(&[ProcessSignal::KillTree.order()]);
            unix::signal_group(pid.cast_signed(), libc::SIGCONT);
        }
        let mut search = ProcessSearch::by_mark(&self.mark);
        let until = Instant::now() + KILL_TIMEOUT;
        while search.kill_marked() > 0 && Instant::now() < until {
            std::thread::sleep(SEARCH_INTERVAL);
        }
    }
}
