//! The init: a minimal process between the supervisor and the agent that is the agent's parent.
//!
//! It starts the agent, reaps orphans and reports the agent's exit. Its socket to the supervisor is its lifeline. It
//! also watches the host: when the host dies, the init resumes a stopped supervisor and ends the run itself if the
//! supervisor does not act soon. It does the same when the deadline of the host passes. When the supervisor releases the init or dies, no process of the run remains:
//!
//! - In a pid namespace, the init is the first process. It exits, and the kernel kills the rest. A parent-death signal
//!   also kills it with the supervisor, so this works even if the init cannot run.
//! - Without a namespace, it is a subreaper, so everything the agent started descends from it. It kills its
//!   descendants.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::kill::ProcessSearch;
use super::os::{self, namespace, namespace::Namespace};
use super::unix::{self, Reaped};
use super::{Isolation, KillDeadline, ProcessExit, Spawn, mounts};

/// How long an init without a namespace keeps trying to kill processes that do not die.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause between two searches for remaining processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// How long the supervisor may take to end the run after the host has died, before the init ends it.
const HOST_PATIENCE: Duration = Duration::from_secs(2);

/// How long the supervisor may take to end the run after the deadline of the host, before the init ends it.
const DEADLINE_PATIENCE: Duration = Duration::from_secs(1);

/// The size of every message, in bytes.
const MESSAGE: usize = 2 * 4;

/// The byte that the supervisor sends before it closes the socket. Without it, the supervisor was killed.
const RELEASE: [u8; 1] = [b'r'];

/// A message from an init to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitMessage {
    /// The namespace, if one was requested, is ready.
    Ready,
    /// The namespace could not be created; contains the system's error number.
    Unavailable(i32),
    /// The agent runs. The pid is the one in the init's namespace.
    Started(i32),
    /// The agent could not be started; contains the system's error number.
    Refused(i32),
    /// The agent exited.
    Exited(ProcessExit),
    /// The init has no children left.
    Alone,
}

impl InitMessage {
    fn encode(self) -> [u8; MESSAGE] {
        let (kind, value): (u32, i32) = match self {
            Self::Ready => (1, 0),
            Self::Unavailable(errno) => (2, errno),
            Self::Started(pid) => (3, pid),
            Self::Refused(errno) => (4, errno),
            Self::Exited(ProcessExit::Code(code)) => (5, code),
            Self::Exited(ProcessExit::Signal(signal)) => (6, signal),
            Self::Exited(ProcessExit::Lost) => (7, 0),
            Self::Alone => (8, 0),
        };
        let mut bytes = [0; MESSAGE];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; MESSAGE]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let value = i32::from_le_bytes([e, f, g, h]);
        Some(match u32::from_le_bytes([a, b, c, d]) {
            1 => Self::Ready,
            2 => Self::Unavailable(value),
            3 => Self::Started(value),
            4 => Self::Refused(value),
            5 => Self::Exited(ProcessExit::Code(value)),
            6 => Self::Exited(ProcessExit::Signal(value)),
            7 => Self::Exited(ProcessExit::Lost),
            8 => Self::Alone,
            _ => return None,
        })
    }
}

/// The supervisor's descriptors of the host.
pub(super) struct HostLink {
    /// The socket to the host, which the init closes.
    pub(super) socket: RawFd,
    /// A pidfd that becomes readable when the host dies.
    pub(super) process: Option<OwnedFd>,
}

/// The reason why the agent was not started.
#[derive(Debug)]
pub(super) enum InitError {
    /// The init could not be started, for example because namespaces are not available.
    NoInit(io::Error),
    /// The system refused to start the agent.
    Refused(io::Error),
}

impl From<io::Error> for InitError {
    fn from(error: io::Error) -> Self {
        Self::NoInit(error)
    }
}

/// The supervisor's handle to an init and its agent.
#[derive(Debug)]
pub(super) struct Init {
    /// The pid of the init.
    pub(super) pid: i32,
    /// The pid of the agent in the supervisor's namespace.
    pub(super) agent: i32,
    /// Whether the kernel kills all remaining processes when the init dies.
    pub(super) has_namespace: bool,
    socket: Option<UnixStream>,
}

impl Init {
    /// Starts an init and the agent below it, in a namespace where one is requested and available.
    ///
    /// The outer error means that no init could be started, the inner one that the init could not start the agent.
    pub(super) fn start(plan: &Spawn, streams: [OwnedFd; 3], host: &HostLink) -> Result<Self, InitError> {
        let mut streams = Some(streams);
        let mut refusal = InitError::NoInit(io::ErrorKind::Unsupported.into());
        for namespace in namespace::candidates(plan.isolation) {
            match Self::start_in(Some(namespace), plan, &mut streams, host) {
                Err(error @ InitError::NoInit(_)) => refusal = error,
                started => return started,
            }
        }
        if plan.isolation == Isolation::Namespace {
            return Err(refusal);
        }
        Self::start_in(None, plan, &mut streams, host)
    }

    fn start_in(
        namespace: Option<Namespace>,
        plan: &Spawn,
        streams: &mut Option<[OwnedFd; 3]>,
        host: &HostLink,
    ) -> Result<Self, InitError> {
        let (ours, theirs) = UnixStream::pair()?;
        if namespace.is_some() {
            namespace::receive_pids(&ours)?;
        }
        let Some(pid) = namespace::fork(namespace)? else {
            drop(ours);
            let ended = streams.take().map(|streams| be_init(namespace, plan, streams, theirs, host));
            unix::exit_now(i32::from(!matches!(ended, Some(Ok(())))));
        };
        drop(theirs);
        let mut init = Self { pid, agent: 0, has_namespace: namespace.is_some(), socket: Some(ours) };
        let failed = match init.receive() {
            Ok((InitMessage::Ready, _)) => match init.receive()? {
                (InitMessage::Started(inner), outer) => {
                    init.agent = outer.unwrap_or(inner);
                    return Ok(init);
                }
                (InitMessage::Refused(errno), _) => InitError::Refused(io::Error::from_raw_os_error(errno)),
                _ => InitError::NoInit(io::ErrorKind::InvalidData.into()),
            },
            Ok((InitMessage::Unavailable(errno), _)) => {
                InitError::NoInit(io::Error::from_raw_os_error(errno))
            }
            Ok(_) => InitError::NoInit(io::ErrorKind::InvalidData.into()),
            Err(error) => InitError::NoInit(error),
        };
        init.release();
        unix::reap_child(pid);
        Err(failed)
    }

    /// Returns the descriptor to poll for messages, or -1 once the init is gone.
    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Receives one message and the pid sent with it. An error means that the init is gone.
    pub(super) fn receive(&mut self) -> io::Result<(InitMessage, Option<i32>)> {
        let mut bytes = [0; MESSAGE];
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let (received, pid) = namespace::receive_with_pid(socket.as_raw_fd(), &mut bytes)?;
        if received == 0 {
            self.socket = None;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        socket.read_exact(&mut bytes[received..])?;
        Ok((InitMessage::decode(bytes).ok_or(io::ErrorKind::InvalidData)?, pid))
    }

    /// Tells the init to exit and to end everything that remains.
    pub(super) fn release(&mut self) {
        if let Some(mut socket) = self.socket.take() {
            // Fails only if the init is already gone.
            let _ = socket.write_all(&RELEASE);
        }
    }
}

/// Runs the init from start to exit.
fn be_init(
    namespace: Option<Namespace>,
    plan: &Spawn,
    streams: [OwnedFd; 3],
    mut supervisor: UnixStream,
    host: &HostLink,
) -> io::Result<()> {
    // The host detects the supervisor's death by the end of this socket, so no other process may keep it open.
    unix::close_standard_input_and(host.socket);
    os::name_process(c"agentline-init");
    if let Some(namespace) = namespace {
        namespace::die_with_parent();
        let enclosed = namespace::enter(namespace)
            .and_then(|()| plan.enclosure.as_ref().map_or(Ok(()), |view| mounts::enclose(view, &plan.env)));
        if let Err(error) = enclosed {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return supervisor.write_all(&InitMessage::Unavailable(errno).encode());
        }
    } else {
        os::adopt_orphans();
    }
    supervisor.write_all(&InitMessage::Ready.encode())?;
    let signals = unix::signals_as_pipe(&[libc::SIGCHLD])?;
    let agent = match start_agent(plan, streams) {
        Ok(agent) => agent.cast_signed(),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return supervisor.write_all(&InitMessage::Refused(errno).encode());
        }
    };
    let _ = std::env::set_current_dir("/");
    let started = InitMessage::Started(agent).encode();
    let sent = if namespace.is_some() {
        namespace::send_with_pid(&supervisor, &started, agent)
    } else {
        supervisor.write_all(&started)
    };
    let host = host.process.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut reaper = Reaper {
        agent: Some(agent),
        supervisor,
        signals,
        host,
        host_died: None,
        deadline: plan.kill_deadline.clone(),
        deadline_passed: false,
    };
    let was_released = sent.is_ok() && reaper.wait_for_end();
    if namespace.is_none() {
        let mut search = ProcessSearch::new(&plan.mark, unix::own_pid(), agent);
        reaper.kill_descendants(&mut search, agent);
        if !was_released {
            kill_marked(&mut search);
        }
    }
    if reaper.host_died.is_some() || reaper.deadline_passed {
        resume_supervisor();
    }
    Ok(())
}

/// Starts the agent as the leader of a process group. On Linux it dies with the init.
fn start_agent(plan: &Spawn, [stdin, stdout, stderr]: [OwnedFd; 3]) -> io::Result<u32> {
    let mut command = Command::new(&plan.program);
    command
        .args(&plan.args)
        .env_clear()
        .envs(&plan.env)
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr));
    if !plan.starts_below() {
        command.current_dir(&plan.cwd);
    }
    if plan.enclosure.is_some() {
        mounts::drop_capabilities(&mut command);
    }
    unix::accept_signals(&mut command);
    os::kill_with_parent(&mut command);
    Ok(command.spawn()?.id())
}

/// The state of an init while the agent runs and while it kills the remaining processes.
struct Reaper {
    agent: Option<i32>,
    supervisor: UnixStream,
    signals: PipeReader,
    /// Becomes readable when the host dies; negative from then on.
    host: RawFd,
    host_died: Option<Instant>,
    /// When to end the run, unless the host extends the deadline.
    deadline: Option<KillDeadline>,
    deadline_passed: bool,
}

impl Reaper {
    /// Reaps children until the supervisor releases the init, dies, or does not act after the death or the deadline of
    /// the host. Returns whether the supervisor released the init.
    fn wait_for_end(&mut self) -> bool {
        loop {
            let left = self.host_died.map(|died| HOST_PATIENCE.saturating_sub(died.elapsed()));
            let next_check = self.deadline.as_ref().map(|deadline| deadline.next_check(DEADLINE_PATIENCE));
            self.deadline_passed = next_check == Some(Duration::ZERO);
            if left == Some(Duration::ZERO) || self.deadline_passed {
                return false;
            }
            let left = left.into_iter().chain(next_check).min();
            let watched = [self.supervisor.as_raw_fd(), self.signals.as_raw_fd(), self.host];
            let [released, signalled, host_died] = unix::wait_readable(watched, left);
            if host_died {
                (self.host, self.host_died) = (-1, Some(Instant::now()));
                resume_supervisor();
            }
            if signalled {
                self.drain_signals();
                self.reap();
            }
            if released {
                return self.supervisor.read(&mut [0]).is_ok_and(|read| read == RELEASE.len());
            }
        }
    }

    fn drain_signals(&mut self) {
        while let Ok(1..) = self.signals.read(&mut [0; 64]) {}
    }

    /// Reaps all dead children and returns whether living processes may remain.
    fn reap(&mut self) -> bool {
        let mut messages = Vec::new();
        let is_alone = loop {
            match unix::reap() {
                Reaped::Child(pid, exit) if self.agent == Some(pid) => {
                    self.agent = None;
                    messages.extend(InitMessage::Exited(exit).encode());
                }
                Reaped::Child(..) => {}
                Reaped::AllAlive => break false,
                Reaped::NoChildren => break true,
            }
        };
        if is_alone {
            messages.extend(InitMessage::Alone.encode());
        }
        // A single write, so that the supervisor receives all messages at once. If the supervisor is gone, the end of
        // the socket ends the init.
        let _ = self.supervisor.write_all(&messages);
        !is_alone || !os::IS_SUBREAPER
    }

    /// Kills all descendants of the init.
    fn kill_descendants(&mut self, search: &mut ProcessSearch, agent: i32) {
        let patience = Instant::now() + KILL_TIMEOUT;
        if self.agent.is_none() {
            search.root_reaped();
        }
        if !os::IS_SUBREAPER {
            unix::kill_group(agent);
        }
        let mut quiet_rounds = 0;
        // After three rounds that find nothing, only processes that the init may not kill are left.
        while self.reap() && quiet_rounds < 3 && Instant::now() < patience {
            if self.agent.is_none() {
                search.root_reaped();
            }
            quiet_rounds = if search.kill_descendants() == 0 { quiet_rounds + 1 } else { 0 };
            unix::wait_readable([self.signals.as_raw_fd()], Some(SEARCH_INTERVAL));
            self.drain_signals();
        }
    }
}

/// Resumes the supervisor if it was stopped. Has no effect in a namespace, where the supervisor is not visible.
fn resume_supervisor() {
    unix::resume(std::os::unix::process::parent_id().cast_signed());
}

/// Kills every process that carries the mark of the run, in place of the supervisor.
fn kill_marked(search: &mut ProcessSearch) {
    let patience = Instant::now() + KILL_TIMEOUT;
    while search.kill_marked() > 0 && Instant::now() < patience {
        std::thread::sleep(SEARCH_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for message in [
            InitMessage::Ready,
            InitMessage::Unavailable(1),
            InitMessage::Started(42),
            InitMessage::Refused(2),
            InitMessage::Exited(ProcessExit::Code(173)),
            InitMessage::Exited(ProcessExit::Signal(9)),
            InitMessage::Exited(ProcessExit::Lost),
            InitMessage::Alone,
        ] {
            assert_eq!(InitMessage::decode(message.encode()), Some(message));
        }
        assert_eq!(InitMessage::decode([0xff; MESSAGE]), None);
    }
}
