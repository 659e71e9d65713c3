//! The host's handle to an agent and everything it starts, with or without a supervisor.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::kill::ProcessSearch;
use super::killer::Killer;
use super::supervisor;
use super::sweep::Sweeper;
use super::wire::{REPORT_SIZE, StartedAgent, SupervisorReport};
use super::{
    KillDeadline, ProcessEnd, ProcessExit, ProcessSignal, Spawn, SpawnError, Supervisor, mounts, os, unix,
};

/// How long a supervisor may take to start the agent.
const START: Duration = Duration::from_secs(15);

/// How long to keep trying to kill processes that do not die, without a supervisor.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to keep trying to kill the processes of a lost supervisor.
const LOST_SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(2);

/// How often to check whether the supervisor was stopped.
const STOP_CHECK: Duration = Duration::from_secs(1);

/// The pause between two searches for remaining processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// The standard streams of an agent.
struct Streams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// The write end of the agent's stdin.
pub(super) type StdinPipe = tokio::net::unix::pipe::Sender;

/// An agent and its descendants.
#[derive(Debug)]
pub(super) enum ProcessTree {
    Supervised(SupervisedTree),
    Alone(Box<UnsupervisedTree>),
}

impl ProcessTree {
    /// Starts the agent with these descriptors as its stdout and stderr, under a supervisor if one is available.
    pub(super) fn start(
        spawn: &Spawn,
        stdout: OwnedFd,
        stderr: OwnedFd,
        own_program_is_ready: bool,
    ) -> Result<(Self, StdinPipe), SpawnError> {
        let plan = spawn.encode().ok_or(SpawnError::Nul)?;
        let (stdin, writer) = io::pipe()?;
        let streams = Streams { stdin: stdin.into(), stdout, stderr };
        let program = match &spawn.supervisor {
            Supervisor::Path(program) => Some(program.clone()),
            Supervisor::CurrentExe if own_program_is_ready => Some(os::own_program()?),
            Supervisor::CurrentExe | Supervisor::None => None,
        };
        let tree = match program {
            Some(program) => Self::Supervised(SupervisedTree::start(spawn, &plan, &streams, &program)?),
            None if spawn.enclosure.is_some() => {
                return Err(SpawnError::NoNamespace { source: io::ErrorKind::Unsupported.into() });
            }
            None => Self::Alone(Box::new(UnsupervisedTree::start(spawn, streams)?)),
        };
        Ok((tree, StdinPipe::from_owned_fd(writer.into())?))
    }

    pub(super) const fn pid(&self) -> u32 {
        match self {
            Self::Supervised(tree) => tree.started.agent,
            Self::Alone(tree) => tree.pid,
        }
    }

    pub(super) const fn is_supervised(&self) -> bool {
        matches!(self, Self::Supervised(_))
    }

    pub(super) const fn has_namespace(&self) -> bool {
        matches!(self, Self::Supervised(tree) if tree.started.has_namespace)
    }

    pub(super) fn sweeper(&self) -> Sweeper {
        match self {
            Self::Supervised(tree) => {
                Sweeper::new([tree.started.agent, tree.started.init, tree.supervisor.id()], None)
            }
            Self::Alone(tree) => Sweeper::new([tree.pid], Some(tree.search.mark().to_owned())),
        }
    }

    pub(super) fn killer(&self) -> Killer {
        match self {
            Self::Supervised(tree) => {
                let socket = tree.socket.get_ref().try_clone().ok();
                Killer::new(socket.map(|socket| (tree.supervisor.id(), socket)), &tree.mark)
            }
            Self::Alone(tree) => Killer::new(None, tree.search.mark()),
        }
    }

    pub(super) fn signal(&mut self, signal: ProcessSignal) {
        match self {
            Self::Supervised(tree) => tree.signal(signal),
            Self::Alone(tree) => tree.signal(signal),
        }
    }

    /// Waits until the agent has exited and its tree is dead. Cancel safe.
    pub(super) async fn ended(&mut self) -> ProcessEnd {
        match self {
            Self::Supervised(tree) => tree.ended().await,
            Self::Alone(tree) => tree.ended().await,
        }
    }

    /// Kills the tree without a runtime, within about `time`. If the supervisor does not respond, it takes up to
    /// [`LOST_SUPERVISOR_TIMEOUT`] longer.
    pub(super) fn kill_now(&mut self, time: Duration) {
        let until = Instant::now() + time;
        match self {
            Self::Supervised(tree) => tree.kill_now(until),
            Self::Alone(tree) => tree.kill_now(until),
        }
    }
}

/// The living supervisors of this process.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn supervisors() -> MutexGuard<'static, BTreeSet<i32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tree whose parent is a supervisor.
#[derive(Debug)]
pub(super) struct SupervisedTree {
    started: StartedAgent,
    mark: String,
    supervisor: std::process::Child,
    socket: AsyncFd<UnixStream>,
    /// The part of a report that has been received so far.
    partial: Vec<u8>,
    /// When to check next whether the supervisor was stopped.
    next_check: tokio::time::Instant,
}

impl SupervisedTree {
    fn start(spawn: &Spawn, plan: &[u8], streams: &Streams, program: &Path) -> Result<Self, SpawnError> {
        let failed = |source| SpawnError::Supervisor { program: program.into(), source };
        let (ours, theirs) = UnixStream::pair()?;
        let mut supervisor = spawn_supervisor(program, theirs, spawn).map_err(failed)?;
        match handshake(&ours, plan, streams, spawn.kill_deadline.as_ref()) {
            Ok(SupervisorReport::Started(started)) => {
                if spawn.enclosure.is_some() {
                    mounts::note_init(&spawn.cwd, started.init);
                }
                ours.set_nonblocking(true)?;
                let socket = unix::readable_by_runtime(ours)?;
                let (mark, next_check) = (spawn.mark.clone(), tokio::time::Instant::now() + STOP_CHECK);
                Ok(Self { started, mark, supervisor, socket, partial: Vec::new(), next_check })
            }
            Ok(SupervisorReport::Refused(errno)) => {
                reap_supervisor(&mut supervisor);
                Err(SpawnError::explain(spawn, io::Error::from_raw_os_error(errno)))
            }
            Ok(SupervisorReport::NoNamespace(errno)) => {
                reap_supervisor(&mut supervisor);
                Err(SpawnError::NoNamespace { source: io::Error::from_raw_os_error(errno) })
            }
            other => {
                let _ = supervisor.kill();
                reap_supervisor(&mut supervisor);
                Err(failed(other.err().unwrap_or_else(|| io::ErrorKind::InvalidData.into())))
            }
        }
    }

    fn signal(&mut self, signal: ProcessSignal) {
        // The socket has room for thousands of orders. If it is broken, `ended` detects it.
        let _ = self.socket.get_ref().write(&[signal.order()]);
        // An agent can stop every process that it may signal, including the supervisor, which leads its group.
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            unix::signal_group(self.supervisor.id().cast_signed(), libc::SIGCONT);
        }
    }

    async fn ended(&mut self) -> ProcessEnd {
        loop {
            let mut bytes = [0; REPORT_SIZE];
            let read = tokio::select! {
                read = self.socket.async_io(Interest::READABLE, |mut socket| socket.read(&mut bytes)) => read,
                () = tokio::time::sleep_until(self.next_check) => {
                    self.resume_supervisor();
                    continue;
                }
            };
            if let Some(ended) = self.take(&bytes[..read.unwrap_or(0)]) {
                return ended;
            }
        }
    }

    /// Resumes the supervisor if it was stopped, because it would not report the agent's exit.
    fn resume_supervisor(&mut self) {
        unix::resume_if_stopped(self.supervisor.id().cast_signed());
        self.next_check = tokio::time::Instant::now() + STOP_CHECK;
    }

    /// Handles bytes from the supervisor. An empty slice means that it is dead.
    fn take(&mut self, bytes: &[u8]) -> Option<ProcessEnd> {
        self.partial.extend_from_slice(bytes);
        let report = self.partial.first_chunk().and_then(SupervisorReport::decode);
        let ended = match report {
            Some(SupervisorReport::Done(ended)) => ended,
            _ if bytes.is_empty() => self.kill_without_supervisor(),
            _ => return None,
        };
        // This does not block: the supervisor has sent its last report, or has died.
        reap_supervisor(&mut self.supervisor);
        Some(ended)
    }

    /// Does the work of a killed supervisor. Its init ends the tree. Without an init, the orphans are adopted by this
    /// process if it adopts orphans, and are found by their mark otherwise.
    fn kill_without_supervisor(&mut self) -> ProcessEnd {
        // Once reaped, the supervisor is no longer the parent of any process.
        reap_supervisor(&mut self.supervisor);
        let mut search = ProcessSearch::by_mark(&self.mark);
        let init = self.started.init.cast_signed();
        let until = Instant::now() + LOST_SUPERVISOR_TIMEOUT;
        let mut is_over = false;
        while !is_over && Instant::now() < until {
            unix::reap_if_dead(init);
            let orphans = if super::adopts_orphans() { search.kill_adopted(&supervisors()) } else { 0 };
            is_over = search.kill_marked() + orphans == 0 && !os::is_alive(init);
            if !is_over {
                std::thread::sleep(SEARCH_INTERVAL);
            }
        }
        ProcessEnd {
            exit: ProcessExit::Lost,
            killed: search.killed(),
            left: search.refused(),
            supervisor_cpu: Duration::ZERO,
        }
    }

    fn kill_now(&mut self, until: Instant) {
        self.signal(ProcessSignal::KillTree);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The supervisor does not respond: it is repeatedly stopped, or the machine is slow. Its init ends the
                // tree as well.
                let _ = self.supervisor.kill();
                self.kill_without_supervisor();
                return;
            }
            unix::wait_readable([self.socket.as_raw_fd()], Some(left.min(Duration::from_millis(50))));
            let mut bytes = [0; REPORT_SIZE];
            match self.socket.get_ref().read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    if self.take(&bytes[..read.unwrap_or(0)]).is_some() {
                        return;
                    }
                }
            }
        }
    }
}

/// Starts a supervisor and registers it. The lock keeps it from being taken for an orphan before it is registered.
fn spawn_supervisor(program: &Path, socket: UnixStream, spawn: &Spawn) -> io::Result<std::process::Child> {
    let mut known = supervisors();
    let mut command = Command::new(program);
    command
        .arg0("agentline")
        .arg(supervisor::ARGUMENT)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if spawn.starts_below() {
        mounts::start_below(&mut command, &spawn.cwd)?;
    }
    let supervisor = command.spawn()?;
    known.insert(supervisor.id().cast_signed());
    Ok(supervisor)
}

fn reap_supervisor(supervisor: &mut std::process::Child) {
    let _ = supervisor.wait();
    supervisors().remove(&supervisor.id().cast_signed());
}

/// Sends the plan and the agent's descriptors, and waits for the first report.
fn handshake(
    mut socket: &UnixStream,
    plan: &[u8],
    streams: &Streams,
    deadline: Option<&KillDeadline>,
) -> io::Result<SupervisorReport> {
    socket.set_read_timeout(Some(START))?;
    socket.set_write_timeout(Some(START))?;
    let length = (plan.len() as u64).to_le_bytes();
    let mut files = vec![streams.stdin.as_fd(), streams.stdout.as_fd(), streams.stderr.as_fd()];
    files.extend(deadline.map(KillDeadline::descriptor));
    let sent = unix::send_files(socket, &length, &files)?;
    socket.write_all(&length[sent..])?;
    socket.write_all(plan)?;
    let mut report = [0; REPORT_SIZE];
    socket.read_exact(&mut report)?;
    SupervisorReport::decode(&report).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A tree whose parent is the host itself.
#[derive(Debug)]
pub(super) struct UnsupervisedTree {
    pid: u32,
    child: tokio::process::Child,
    exit: Option<ProcessExit>,
    search: ProcessSearch,
    patience: Option<Instant>,
}

impl UnsupervisedTree {
    fn start(spawn: &Spawn, streams: Streams) -> Result<Self, SpawnError> {
        let mut command = tokio::process::Command::new(&spawn.program);
        command
            .args(&spawn.args)
            .env_clear()
            .envs(&spawn.env)
            .current_dir(&spawn.cwd)
            .process_group(0)
            .stdin(Stdio::from(streams.stdin))
            .stdout(Stdio::from(streams.stdout))
            .stderr(Stdio::from(streams.stderr));
        unix::accept_signals(command.as_std_mut());
        let child = command.spawn().map_err(|error| SpawnError::explain(spawn, error))?;
        let pid = child.id().unwrap_or(0);
        let search = ProcessSearch::new(&spawn.mark, pid.cast_signed(), pid.cast_signed());
        Ok(Self { pid, child, exit: None, search, patience: None })
    }

    fn signal(&mut self, signal: ProcessSignal) {
        let root = self.pid.cast_signed();
        match signal {
            _ if self.exit.is_some() => {}
            ProcessSignal::Interrupt => unix::signal_group(root, libc::SIGINT),
            ProcessSignal::Terminate => unix::signal_group(root, libc::SIGTERM),
            // Descendants must be found while the agent, their ancestor, still exists.
            ProcessSignal::KillTree => _ = self.search.kill_descendants(),
        }
    }

    async fn ended(&mut self) -> ProcessEnd {
        if self.exit.is_none() {
            let status = self.child.wait().await;
            self.root_exited(status.ok());
        }
        while let Some(pause) = self.kill_more() {
            tokio::time::sleep(pause).await;
        }
        self.report()
    }

    fn root_exited(&mut self, status: Option<ExitStatus>) {
        self.exit = Some(status.map_or(ProcessExit::Lost, exit_of));
        self.search.root_reaped();
    }

    /// Runs one round of killing, and returns the pause before the next one, if one is needed.
    fn kill_more(&mut self) -> Option<Duration> {
        let patience = *self.patience.get_or_insert_with(|| Instant::now() + KILL_TIMEOUT);
        let found = self.search.kill_marked();
        (found > 0 && Instant::now() < patience).then_some(SEARCH_INTERVAL)
    }

    fn report(&self) -> ProcessEnd {
        ProcessEnd {
            exit: self.exit.unwrap_or(ProcessExit::Lost),
            killed: self.search.killed(),
            left: self.search.refused(),
            supervisor_cpu: Duration::ZERO,
        }
    }

    fn kill_now(&mut self, until: Instant) {
        while self.exit.is_none() && Instant::now() < until {
            self.search.kill_descendants();
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(SEARCH_INTERVAL),
                Ok(Some(status)) => self.root_exited(Some(status)),
                Err(_) => self.root_exited(None),
            }
        }
        while Instant::now() < until && self.kill_more().is_some() {
            std::thread::sleep(SEARCH_INTERVAL);
        }
    }
}

fn exit_of(status: ExitStatus) -> ProcessExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, Some(signal)) => ProcessExit::Signal(signal),
        (None, None) => ProcessExit::Lost,
    }
}
