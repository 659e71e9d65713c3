//! The supervisor: a small process of its own that starts the agent, outlives the host and leaves nothing behind.
//!
//! It is our own program, executed again. Its stdin is a socket to the host, which is also its lifeline: when the host
//! dies, however it dies, the socket ends.

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::kill::Hunt;
use super::unix::{self, Reaped};
use super::wire::Report;
use super::{Ended, Exit, Signal, Spawn, os};

/// The first argument that turns a program into a supervisor.
pub(super) const ARGUMENT: &str = "__supervise";

/// How long the supervisor tries to kill what does not die.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it waits between two looks at what is left, unless a death wakes it.
const PAUSE: Duration = Duration::from_millis(2);

/// Whether this program was started as a supervisor.
pub(super) fn asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == OsStr::new(ARGUMENT))
}

/// The whole life of a supervisor.
pub(super) fn run() -> io::Result<()> {
    unix::new_session();
    os::close_other_files();
    os::adopt_orphans();
    std::env::set_current_dir("/")?;
    let mut host = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let signals = unix::signals_as_pipe(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let (mark, started) = start(&mut host)?;
    let report = match &started {
        Ok(pid) => Report::Started(*pid),
        Err(error) => Report::Refused(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    // A host that is gone cannot be told, but what it started must still be ended.
    let _ = host.write_all(&report.encode());
    let Ok(root) = started else { return Ok(()) };
    let root = root.cast_signed();
    let mut watch = Watch {
        hunt: Hunt::new(&mark, unix::own_pid(), root),
        root,
        exit: None,
        host,
        signals,
        host_gone: false,
    };
    watch.until_the_end();
    watch.clear_up();
    let ended = Ended {
        exit: watch.exit.unwrap_or(Exit::Lost),
        killed: watch.hunt.killed(),
        left: watch.hunt.refused() + u32::from(watch.exit.is_none()),
        supervisor_cpu: unix::own_cpu(),
    };
    let _ = watch.host.write_all(&Report::Done(ended).encode());
    Ok(())
}

/// Receives the plan and starts the agent. The agent's files are ours only for as long as that takes.
fn start(host: &mut UnixStream) -> io::Result<(String, io::Result<u32>)> {
    let mut length = [0; 8];
    let (received, [stdin, stdout, stderr]) = unix::receive_streams(host, &mut length)?;
    host.read_exact(&mut length[received..])?;
    let mut bytes = Vec::new();
    host.take(u64::from_le_bytes(length)).read_to_end(&mut bytes)?;
    let plan = Spawn::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    let started = Command::new(&plan.program)
        .args(&plan.args)
        .env_clear()
        .envs(&plan.env)
        .current_dir(&plan.cwd)
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        .spawn();
    Ok((plan.mark, started.map(|child| child.id())))
}

/// The supervisor while the agent runs, and while it is cleared away.
struct Watch {
    hunt: Hunt,
    root: i32,
    exit: Option<Exit>,
    host: UnixStream,
    host_gone: bool,
    signals: PipeReader,
}

impl Watch {
    /// Waits until the agent has exited, or the host wants it killed, or nobody is there to want anything.
    fn until_the_end(&mut self) {
        loop {
            let (told, signalled) = self.wait(None);
            let end = (told && self.follow_orders()) || (signalled && self.asked_to_leave());
            self.reap();
            if end || self.exit.is_some() {
                return;
            }
        }
    }

    fn wait(&self, time: Option<Duration>) -> (bool, bool) {
        let host: RawFd = if self.host_gone { -1 } else { self.host.as_raw_fd() };
        unix::wait_readable(host, self.signals.as_raw_fd(), time)
    }

    /// Does what the host wants, and says whether that is the end.
    fn follow_orders(&mut self) -> bool {
        let mut orders = [0; 64];
        let count = self.host.read(&mut orders).unwrap_or(0);
        self.host_gone = count == 0;
        let mut end = self.host_gone;
        for order in orders[..count].iter().filter_map(|order| Signal::from_order(*order)) {
            match order {
                Signal::Interrupt => unix::signal_group(self.root, libc::SIGINT),
                Signal::Terminate => unix::signal_group(self.root, libc::SIGTERM),
                Signal::KillTree => end = true,
            }
        }
        end
    }

    /// Whether somebody told the supervisor itself to end: a shutdown, or a user with `kill`.
    fn asked_to_leave(&mut self) -> bool {
        let mut numbers = [0; 64];
        let mut leave = false;
        while let Ok(count @ 1..) = self.signals.read(&mut numbers) {
            leave |= numbers[..count].iter().any(|number| i32::from(*number) != libc::SIGCHLD);
        }
        leave
    }

    /// Reaps all that is dead, and says whether anything may be left that is not.
    fn reap(&mut self) -> bool {
        loop {
            match unix::reap() {
                Reaped::Child(pid, exit) if pid == self.root && self.exit.is_none() => {
                    self.exit = Some(exit);
                    self.hunt.root_reaped();
                }
                Reaped::Child(..) => {}
                Reaped::AllAlive => return true,
                Reaped::NoChildren => return !os::ORPHANS_COME_TO_US,
            }
        }
    }

    /// Kills what is left, first by descent, then by the mark.
    fn clear_up(&mut self) {
        let patience = Instant::now() + PATIENCE;
        let mut quiet_rounds = 0;
        if !os::ORPHANS_COME_TO_US {
            unix::kill_group(self.root);
        }
        // Three rounds without a find: what is left are processes that we may not kill.
        while self.reap() && quiet_rounds < 3 && Instant::now() < patience {
            quiet_rounds = if self.hunt.kill_descendants() == 0 { quiet_rounds + 1 } else { 0 };
            self.pause();
        }
        while self.hunt.kill_marked() > 0 && Instant::now() < patience {
            self.pause();
        }
        self.reap();
    }

    /// A short rest that ends early when something dies.
    fn pause(&mut self) {
        if self.wait(Some(PAUSE)).1 {
            self.asked_to_leave();
        } else if !self.host_gone {
            self.host_gone = self.host_closed();
        }
    }

    /// Drops orders that come too late, so that they do not keep waking us.
    fn host_closed(&mut self) -> bool {
        let (told, _) = unix::wait_readable(self.host.as_raw_fd(), -1, Some(Duration::ZERO));
        told && self.host.read(&mut [0; 64]).unwrap_or(0) == 0
    }
}
