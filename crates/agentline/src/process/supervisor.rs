//! The supervisor: a small separate process that starts the agent, outlives the host and kills the whole tree.
//!
//! It is the host's own program, executed again. Its stdin is a socket to the host, which also serves as its lifeline:
//! the socket closes when the host dies for any reason. The agent is a child of an init (`init.rs`), and the init is a
//! child of the supervisor. If any of the three is killed, another one ends the rest. A host that is stopped cannot end
//! anything: the supervisor and the init also hold its deadline (`deadline.rs`).

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::init::{HostLink, Init, InitError, InitMessage};
use super::kill::ProcessSearch;
use super::unix::{self, Reaped};
use super::wire::{StartedAgent, SupervisorReport};
use super::{KillDeadline, ProcessEnd, ProcessExit, ProcessSignal, Spawn, os};
use crate::fs::private_dir;

/// The first argument that makes a program run as a supervisor.
pub(super) const ARGUMENT: &str = "__supervise";

/// How long the supervisor keeps trying to kill processes that do not die.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an init may take to exit before it is killed.
const INIT_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two searches for remaining processes, unless a death ends it early.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// Returns whether this program was started as a supervisor.
pub(super) fn is_requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == OsStr::new(ARGUMENT))
}

/// Runs the supervisor from start to exit.
pub(super) fn run() -> io::Result<()> {
    unix::new_session();
    os::close_other_files();
    os::adopt_orphans();
    os::resume_at_parent_death();
    os::name_process(c"agentline-super");
    let mut host = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (plan, started) = start(&mut host)?;
    let signals = unix::signals_as_pipe(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let errno = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let report = match &started {
        Ok(init) => SupervisorReport::Started(StartedAgent {
            agent: init.agent.cast_unsigned(),
            init: init.pid.cast_unsigned(),
            has_namespace: init.has_namespace,
        }),
        Err(InitError::Refused(error)) => SupervisorReport::Refused(errno(error)),
        Err(InitError::NoInit(error)) => SupervisorReport::NoNamespace(errno(error)),
    };
    // The host may be gone and not receive this, but the processes that it started must still be killed.
    let _ = host.write_all(&report.encode());
    let Ok(init) = started else { return Ok(()) };
    let mut watch = Watch {
        search: ProcessSearch::new(&plan.mark, unix::own_pid(), init.agent).excluding(init.pid),
        root: init.agent,
        init,
        exit: None,
        has_children: true,
        host,
        signals,
        host_exited: false,
        deadline: plan.kill_deadline.clone(),
    };
    // Locks these directories while any process of the run lives, so that no other process removes them as abandoned.
    // The init was started earlier and does not inherit the locks.
    let _held: Vec<_> = plan.remove_on_host_death.iter().map(|path| private_dir::hold(path)).collect();
    watch.wait_for_end();
    watch.kill_remaining();
    if watch.host_exited {
        plan.remove_on_host_death.iter().for_each(|path| private_dir::remove_of_dead(path));
    }
    let left = if watch.init.has_namespace { 0 } else { watch.search.refused() };
    let ended = ProcessEnd {
        exit: watch.exit.unwrap_or(ProcessExit::Lost),
        killed: watch.search.killed(),
        left: left + u32::from(watch.exit.is_none()),
        supervisor_cpu: unix::own_cpu(),
    };
    let _ = watch.host.write_all(&SupervisorReport::Done(ended).encode());
    Ok(())
}

/// Receives the plan and starts the agent. The supervisor holds the agent's stream descriptors only during this call.
fn start(host: &mut UnixStream) -> io::Result<(Spawn, Result<Init, InitError>)> {
    let mut length = [0; 8];
    let (received, files) = unix::receive_files(host, &mut length)?;
    let mut files = files.into_iter();
    let mut file = || files.next().ok_or(io::ErrorKind::InvalidData);
    let streams = [file()?, file()?, file()?];
    host.read_exact(&mut length[received..])?;
    let mut bytes = Vec::new();
    host.take(u64::from_le_bytes(length)).read_to_end(&mut bytes)?;
    let mut plan = Spawn::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    plan.kill_deadline = files.next().map(KillDeadline::from);
    // An agent in an overlay starts in the directory in which the supervisor was started.
    if !plan.starts_below() {
        std::env::set_current_dir("/")?;
    }
    let started =
        Init::start(&plan, streams, &HostLink { socket: host.as_raw_fd(), process: os::open_parent() });
    std::env::set_current_dir("/")?;
    Ok((plan, started))
}

/// The state of the supervisor while the agent runs and while its tree is killed.
struct Watch {
    search: ProcessSearch,
    /// The pid of the agent.
    root: i32,
    init: Init,
    exit: Option<ProcessExit>,
    /// Whether the init has any children.
    has_children: bool,
    host: UnixStream,
    host_exited: bool,
    signals: PipeReader,
    /// When to end the run, unless the host extends the deadline.
    deadline: Option<KillDeadline>,
}

impl Watch {
    /// Waits until the agent exits, the host orders a kill, dies or misses its deadline, the supervisor is signalled, or
    /// the init is lost.
    fn wait_for_end(&mut self) {
        loop {
            let next_check = self.deadline.as_ref().map(|deadline| deadline.next_check(Duration::ZERO));
            if next_check == Some(Duration::ZERO) {
                return;
            }
            let [host_ready, signalled, reported] = self.wait(next_check);
            // The agent's pid is valid only until the agent is reaped, so this precedes any order to signal it.
            let lost = reported && self.listen_to_init();
            let end = (host_ready && self.handle_host_messages())
                || (signalled && self.received_termination())
                || lost;
            if end || self.exit.is_some() {
                return;
            }
        }
    }

    fn wait(&self, time: Option<Duration>) -> [bool; 3] {
        let host: RawFd = if self.host_exited { -1 } else { self.host.as_raw_fd() };
        unix::wait_readable([host, self.signals.as_raw_fd(), self.init.descriptor()], time)
    }

    /// Handles one message from the init and returns whether the init is gone.
    fn listen_to_init(&mut self) -> bool {
        match self.init.receive() {
            Ok((InitMessage::Exited(exit), _)) => {
                self.exit = Some(exit);
                self.search.root_reaped();
            }
            Ok((InitMessage::Alone, _)) => self.has_children = false,
            Ok(_) => {}
            Err(_) => return true,
        }
        false
    }

    /// Carries out the orders of the host and returns whether the run must end.
    fn handle_host_messages(&mut self) -> bool {
        let mut orders = [0; 64];
        let count = self.host.read(&mut orders).unwrap_or(0);
        self.host_exited = count == 0;
        let mut end = self.host_exited;
        for order in orders[..count].iter().filter_map(|order| ProcessSignal::from_code(*order)) {
            match order {
                _ if self.exit.is_some() => {}
                ProcessSignal::Interrupt => unix::signal_group(self.root, libc::SIGINT),
                ProcessSignal::Terminate => unix::signal_group(self.root, libc::SIGTERM),
                ProcessSignal::KillTree => end = true,
            }
        }
        end
    }

    /// Returns whether the supervisor itself received a termination signal, from a shutdown or from a user with `kill`.
    fn received_termination(&mut self) -> bool {
        let mut numbers = [0; 64];
        let mut leave = false;
        while let Ok(count @ 1..) = self.signals.read(&mut numbers) {
            leave |= numbers[..count].iter().any(|number| i32::from(*number) != libc::SIGCHLD);
        }
        // The agent may have stopped its init, and then its exit would never be reported.
        unix::resume_if_stopped(self.init.pid);
        leave
    }

    /// Kills the remaining processes, first by descent, then by mark.
    fn kill_remaining(&mut self) {
        let deadline = Instant::now() + KILL_TIMEOUT;
        self.drain_init_messages();
        if !os::IS_SUBREAPER {
            unix::kill_group(self.root);
        }
        // A process that starts during the search can be missed here. The end of the init kills it.
        while self.has_children && self.search.kill_descendants() > 0 && Instant::now() < deadline {
            self.pause();
        }
        self.end_init(deadline);
        while self.search.kill_marked() > 0 && Instant::now() < deadline {
            self.pause();
        }
        self.reap();
    }

    /// Ends the init, and the processes that it could not end itself.
    fn end_init(&mut self, deadline: Instant) {
        self.collect_exit();
        self.init.release();
        unix::resume(self.init.pid);
        let init_deadline = Instant::now() + INIT_EXIT_TIMEOUT;
        let mut quiet_rounds = 0;
        // After three rounds that find nothing, only processes that the supervisor may not kill are left.
        while self.reap() && quiet_rounds < 3 && Instant::now() < deadline {
            if self.search.is_excluded(self.init.pid) {
                if Instant::now() > init_deadline {
                    let _ = unix::kill(self.init.pid);
                }
            } else {
                quiet_rounds = if self.search.kill_descendants() == 0 { quiet_rounds + 1 } else { 0 };
            }
            self.pause();
        }
    }

    /// Waits for the agent's exit status if the agent was just killed.
    fn collect_exit(&mut self) {
        let until = Instant::now() + INIT_EXIT_TIMEOUT;
        while self.exit.is_none() && self.init.descriptor() >= 0 && Instant::now() < until {
            let [reported] = unix::wait_readable([self.init.descriptor()], Some(SEARCH_INTERVAL));
            if reported {
                self.listen_to_init();
            }
            unix::resume_if_stopped(self.init.pid);
        }
    }

    /// Handles all messages that the init has already sent.
    fn drain_init_messages(&mut self) {
        while unix::wait_readable([self.init.descriptor()], Some(Duration::ZERO)) == [true] {
            if self.listen_to_init() {
                return;
            }
        }
    }

    /// Reaps all dead children and returns whether living children may remain.
    fn reap(&mut self) -> bool {
        loop {
            match unix::reap() {
                Reaped::Child(pid, _) if pid == self.init.pid => self.search.clear_exclusion(),
                Reaped::Child(pid, exit) if pid == self.root && self.exit.is_none() => {
                    // The agent became a child of the supervisor because the init was killed.
                    self.exit = Some(exit);
                    self.search.root_reaped();
                }
                Reaped::Child(..) => {}
                Reaped::AllAlive => return true,
                Reaped::NoChildren => return false,
            }
        }
    }

    /// Pauses briefly; a death ends the pause early.
    fn pause(&mut self) {
        let [_, signalled, reported] = self.wait(Some(SEARCH_INTERVAL));
        if reported {
            self.listen_to_init();
        }
        if signalled {
            self.received_termination();
        } else if !self.host_exited {
            self.host_exited = self.host_closed();
        }
    }

    /// Discards late orders, which would otherwise keep waking the supervisor, and returns whether the host has closed
    /// its socket.
    fn host_closed(&mut self) -> bool {
        let [is_readable] = unix::wait_readable([self.host.as_raw_fd()], Some(Duration::ZERO));
        is_readable && self.host.read(&mut [0; 64]).unwrap_or(0) == 0
    }
}
