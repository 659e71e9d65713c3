//! Kills the tree of an agent from any thread, when the thread that owns its process does not.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::kill::Hunt;
use super::{Signal, unix};

/// How long it tries to kill what does not die.
const PATIENCE: Duration = Duration::from_secs(1);

/// The rest between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(2);

/// A way to kill an agent and all that it started.
#[derive(Debug)]
pub(crate) struct Killer {
    /// The supervisor's process, and a second hold on the socket to it.
    supervisor: Option<(u32, UnixStream)>,
    mark: String,
}

impl Killer {
    pub(super) fn new(supervisor: Option<(u32, UnixStream)>, mark: &str) -> Self {
        Self { supervisor, mark: mark.to_owned() }
    }

    /// Kills the tree. Blocks for a second at most.
    pub(crate) fn kill(&self) {
        if let Some((pid, socket)) = &self.supervisor {
            // A supervisor that is gone is replaced by the hunt below; one that is stopped is woken.
            let _ = (&*socket).write(&[Signal::KillTree.order()]);
            unix::signal_group(pid.cast_signed(), libc::SIGCONT);
        }
        let mut hunt = Hunt::by_mark(&self.mark);
        let until = Instant::now() + PATIENCE;
        while hunt.kill_marked() > 0 && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }
}
