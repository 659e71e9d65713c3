//! Runs agents as child processes: captures all of their output and kills everything they started.
//!
//! [`Process::spawn`] starts a program with stdout and stderr redirected to unnamed private files, which are read while
//! they grow ([`Process::next`]). Pipes are not used by default, because some agents exit with unflushed output when a
//! pipe is full, and that output is lost. A run ends when the process exits and the files have been read to their end.
//!
//! When the program exits, or the [`Process`] is dropped, every process that it started is killed: tools in their own
//! sessions, daemons and background jobs. They are found by descent and by an environment variable ([`MARKER`]).
//!
//! # The supervisor
//!
//! A host that is killed with SIGKILL cannot clean up. A *supervisor* can: it is a small process between host and
//! agent, in its own session, that detects the death of the host and kills the process tree. The supervisor is the
//! host's own program, executed again, so the host must call this function first:
//!
//! ```
//! // First in `main`. Does not return in the process that becomes the supervisor.
//! agentline::init();
//! // … build the runtime, run agents …
//! ```
//!
//! The agent is not a child of the supervisor but of an *init* between them. The init is the first process of a pid
//! namespace where one is available ([`Isolation`]). If any of host, supervisor and init is killed, the others kill the
//! agent and everything it started. A program whose children are all started by this library also calls
//! [`adopt_orphans`].
//!
//! A host that cannot act as its own supervisor names an `agentline` program instead ([`Supervisor::Path`]). Without a
//! supervisor, the host cleans up itself, at the end of the run and on drop. This covers all but two cases: the sudden
//! death of the host (SIGKILL or an unhandled signal), and a daemon that both left its parent and cleared its
//! environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod deadline;
mod error;
mod http;
#[cfg(unix)]
mod init;
#[cfg(unix)]
mod kill;
#[cfg(unix)]
mod killer;
#[cfg(target_os = "linux")]
pub(crate) mod mounts;
#[cfg(not(target_os = "linux"))]
#[path = "no_mounts.rs"]
pub(crate) mod mounts;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "macos.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod output;
mod stdin;
#[cfg(unix)]
mod supervisor;
#[cfg(unix)]
mod sweep;
mod tail;
#[cfg(unix)]
mod tree;
#[cfg(windows)]
use os as tree;
pub(crate) mod temp_dir;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod wire;

pub use agentline_core::Isolation;
pub use deadline::KillDeadline;
pub use error::SpawnError;
pub use http::HttpService;
#[cfg(unix)]
pub(crate) use killer::Killer;
#[cfg(windows)]
pub(crate) use os::{Killer, ProcessSnapshot, Sweeper};
#[cfg(unix)]
pub(crate) use sweep::{ProcessSnapshot, Sweeper};

use http::HttpTransport;
use output::AgentOutput;
use stdin::Stdin;
use tree::ProcessTree;

/// The environment variable that every process of a run inherits. Its value is the mark of the run, preceded by the
/// marks of enclosing runs.
pub const MARKER: &str = "AGENTLINE_RUN";

/// The number of consecutive reads after which other tasks get a turn and the exit is checked.
const READS_PER_TURN: u32 = 16;

/// How long a drop waits for the tree to die in the normal way.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

static OWN_PROGRAM_IS_READY: AtomicBool = AtomicBool::new(false);
#[cfg(unix)]
static ADOPTS_ORPHANS: AtomicBool = AtomicBool::new(false);

/// Runs the supervisor if this process was started as one, and does not return in that case.
///
/// Call it first in `main`, before any thread exists. With it, nothing outlives a run even if the calling program is
/// killed; see the [`supervisor`](crate::supervisor) module.
pub fn init() {
    #[cfg(unix)]
    if supervisor::is_requested() {
        std::process::exit(i32::from(supervisor::run().is_err()));
    }
    OWN_PROGRAM_IS_READY.store(true, Ordering::Relaxed);
}

/// Makes this process adopt and kill the processes that a killed supervisor leaves behind. Linux only.
///
/// For programs whose children are all started by this library, such as `agentline`: when a supervisor is lost, every
/// child in a session other than this program's own is treated as an orphan of a run. Call it first in `main`.
pub fn adopt_orphans() {
    #[cfg(unix)]
    if os::IS_SUBREAPER {
        os::adopt_orphans();
        ADOPTS_ORPHANS.store(true, Ordering::Relaxed);
    }
}

#[cfg(unix)]
fn adopts_orphans() -> bool {
    ADOPTS_ORPHANS.load(Ordering::Relaxed)
}

/// A program to start, with its environment and cleanup settings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spawn {
    /// The program: a path, or a name to look up in the `PATH` of `env`.
    pub program: PathBuf,
    /// The arguments, without the program name.
    pub args: Vec<OsString>,
    /// The complete environment. [`MARKER`] is added.
    pub env: BTreeMap<OsString, OsString>,
    /// The working directory. Relative program paths are resolved against it.
    pub cwd: PathBuf,
    /// The mark of the run: letters, digits, `-`, `_` and `.`. Every process that carries it is killed at the end, so
    /// it must be unique among all runs, including finished ones.
    pub mark: String,
    /// How stdout is captured. stderr always goes to a file.
    pub stdout: StdoutMode,
    /// The program that cleans up if the host dies suddenly.
    pub supervisor: Supervisor,
    /// Whether the agent gets a pid namespace. Ignored without a supervisor.
    pub isolation: Isolation,
    /// How to reach the agent if it serves HTTP. Frames are then sent there and not to its stdin.
    pub http: Option<HttpService>,
    /// Directories that the supervisor removes if the host dies suddenly. Only private directories created by this
    /// library are removed.
    pub remove_on_host_death: Vec<PathBuf>,
    /// What the agent sees of the file system, if it starts in an overlay. Requires a supervisor and namespaces.
    pub enclosure: Option<Enclosure>,
    /// When the supervisor kills the agent, unless the host extends the deadline.
    pub kill_deadline: Option<KillDeadline>,
}

/// What an agent in an overlay sees of the file system: everything, except for covered paths, and what it cannot change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Enclosure {
    /// The paths that are empty for the agent, with links resolved.
    pub covered: Vec<PathBuf>,
    /// The directories that the agent cannot change, with links resolved.
    pub read_only: Vec<PathBuf>,
    /// The directory that the agent sees even if it is below a covered one.
    pub visible: PathBuf,
    /// Another path on which `visible` is mounted, below a covered one, for files that contain this path.
    pub also_at: Option<PathBuf>,
    /// Whether the agent starts in the workspace itself, and not in the empty directory below it. It then keeps the
    /// workspace mounted.
    pub starts_inside: bool,
    /// The directory that takes the place of the directories for temporary files. If there is one, everything else except
    /// for `visible` is read-only.
    pub scratch: Option<PathBuf>,
}

/// The directories of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverlayLayers {
    /// The files before any change, with links resolved.
    pub(crate) template: PathBuf,
    /// What was changed.
    pub(crate) upper: PathBuf,
}

impl OverlayLayers {
    /// Returns whether nothing was changed.
    pub(crate) fn is_untouched(&self) -> bool {
        std::fs::read_dir(&self.upper).is_ok_and(|mut entries| entries.next().is_none())
    }
}

impl Spawn {
    /// Creates a spawn request without arguments or environment.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>, mark: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: cwd.into(),
            mark: mark.into(),
            stdout: StdoutMode::default(),
            supervisor: Supervisor::default(),
            isolation: Isolation::default(),
            http: None,
            remove_on_host_death: Vec::new(),
            enclosure: None,
            kill_deadline: None,
        }
    }
}

impl Spawn {
    /// Returns whether the agent starts in the directory below an overlay.
    #[cfg(unix)]
    fn starts_below(&self) -> bool {
        self.enclosure.as_ref().is_some_and(|enclosure| !enclosure.starts_inside)
    }

    /// Adds directories that the supervisor removes if the host dies suddenly.
    pub(crate) fn removing_on_host_death<'a>(mut self, paths: impl Iterator<Item = &'a Path>) -> Self {
        self.remove_on_host_death.extend(paths.map(Into::into));
        self
    }
}

/// The way in which an agent's stdout is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StdoutMode {
    /// An unnamed file that is read as it grows. No output is lost at exit, and the agent never blocks on a slow
    /// reader.
    #[default]
    TailedFile,
    /// A pipe, for live protocols. The agent blocks while it is full. On Windows this is a file as well.
    Pipe,
}

/// The program that cleans up when the host dies suddenly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Supervisor {
    /// The current program, if it has called [`init`]; otherwise the same as `None`.
    #[default]
    CurrentExe,
    /// Another program that calls [`init`], such as `agentline`.
    Path(PathBuf),
    /// No supervisor. The [`supervisor`](crate::supervisor) module lists the cases that are then not covered.
    None,
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A signal that can be sent to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGINT to the agent's process group, as Ctrl-C does.
    Interrupt,
    /// SIGTERM to the agent's process group.
    Terminate,
    /// Kills every process of the run immediately.
    KillTree,
}

/// The exit status of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessExit {
    /// It exited with this code.
    Code(i32),
    /// It was terminated by this signal.
    Signal(i32),
    /// The exit status is unknown: the supervisor was killed, or the agent could not be killed.
    Lost,
}

/// The final report of a process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessEnd {
    /// How the agent exited.
    pub exit: ProcessExit,
    /// The number of processes that were killed.
    pub killed: u32,
    /// The number of processes that could not be killed: owned by another user, or still alive after SIGKILL.
    pub left: u32,
    /// The CPU time used by the supervisor itself.
    pub supervisor_cpu: Duration,
}

/// An event of a running [`Process`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Bytes of this stream were appended to the buffer. If none were appended, the stream has ended but the agent
    /// still runs.
    Bytes(StdStream),
    /// A message of an agent that serves HTTP was appended to the buffer, as one line.
    Message,
    /// The agent has exited, its tree is dead, and all bytes have been read.
    Exit(ProcessExit),
}

/// A running agent and every process that it starts.
///
/// Dropping it kills the whole tree and waits until it is dead. This usually takes a few milliseconds, and up to about
/// three seconds if the supervisor does not respond.
#[derive(Debug)]
pub struct Process {
    tree: ProcessTree,
    stdin: Stdin,
    http: Option<HttpTransport>,
    output: AgentOutput,
    reads: u32,
    stdout_end_reported: bool,
    ended: Option<ProcessEnd>,
    exit_reported: bool,
}

impl Process {
    /// Starts an agent, which takes a millisecond or two.
    ///
    /// Call it inside a tokio runtime of either flavor, with I/O and time enabled.
    ///
    /// # Errors
    /// Returns an error that names the problem with the program, the working directory, the mark or the supervisor.
    pub fn spawn(mut spawn: Spawn) -> Result<Self, SpawnError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(SpawnError::NoRuntime);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if spawn.mark.is_empty() || !spawn.mark.chars().all(plain) {
            return Err(SpawnError::BadMark { mark: spawn.mark });
        }
        spawn.cwd = std::path::absolute(&spawn.cwd)?;
        spawn.env.insert(MARKER.into(), mark_inside_others(&spawn.mark));
        let (output, stdout, stderr) = AgentOutput::open(spawn.stdout)?;
        let ready = OWN_PROGRAM_IS_READY.load(Ordering::Relaxed);
        let (tree, stdin) = ProcessTree::start(&spawn, stdout, stderr, ready)?;
        let stdin = Stdin::start(stdin);
        Ok(Self {
            tree,
            stdin,
            http: spawn.http.map(HttpTransport::start),
            output,
            reads: 0,
            stdout_end_reported: false,
            ended: None,
            exit_reported: false,
        })
    }

    /// Returns the agent's process id, or `None` once the agent is known to have exited.
    pub fn pid(&self) -> Option<u32> {
        self.ended.is_none().then(|| self.tree.pid())
    }

    /// Returns whether a supervisor watches this run.
    pub const fn is_supervised(&self) -> bool {
        self.tree.is_supervised()
    }

    /// Returns whether the agent runs in its own pid namespace, in which the kernel kills the remaining processes.
    pub const fn has_namespace(&self) -> bool {
        self.tree.has_namespace()
    }

    /// Waits for the next event: bytes, which are appended to `buf`, or the exit.
    ///
    /// The exit is reported once, after all bytes, when the tree is dead. After that, this future never completes. This
    /// method is cancel safe.
    pub async fn next(&mut self, buf: &mut Vec<u8>) -> ProcessEvent {
        loop {
            if self.reads >= READS_PER_TURN {
                // A flood of output must starve neither the other branches of the caller's `select!` nor the exit.
                self.reads = 0;
                tokio::select! {
                    biased;
                    ended = self.tree.ended(), if self.ended.is_none() => self.end(ended),
                    () = tokio::task::yield_now() => {}
                }
            }
            let before = buf.len();
            if let Some(from) = self.output.read(buf) {
                self.reads += 1;
                if let (Some(http), StdStream::Out) = (&mut self.http, from) {
                    http.printed(&buf[before..]);
                }
                return ProcessEvent::Bytes(from);
            }
            if let Some(message) = self.http.as_mut().and_then(HttpTransport::arrived) {
                self.reads += 1;
                buf.extend_from_slice(&message);
                return ProcessEvent::Message;
            }
            self.reads = 0;
            if let (Some(http), Some(_)) = (&mut self.http, &self.ended) {
                // The sockets of a dead agent are closed, so this ends.
                match tokio::time::timeout(DROP_TIMEOUT, http.next()).await {
                    Ok(Some(message)) => {
                        buf.extend_from_slice(&message);
                        return ProcessEvent::Message;
                    }
                    _ => self.http = None,
                }
            }
            match &self.ended {
                Some(ended) if !self.exit_reported => {
                    self.exit_reported = true;
                    return ProcessEvent::Exit(ended.exit);
                }
                Some(_) => return std::future::pending().await,
                None if self.output.stdout_ended() && !self.stdout_end_reported => {
                    self.stdout_end_reported = true;
                    return ProcessEvent::Bytes(StdStream::Out);
                }
                None => {}
            }
            tokio::select! {
                ended = self.tree.ended() => self.end(ended),
                () = self.output.written() => {}
                message = next_message(&mut self.http) => {
                    buf.extend_from_slice(&message);
                    return ProcessEvent::Message;
                }
            }
        }
    }

    fn end(&mut self, ended: ProcessEnd) {
        self.ended = Some(ended);
        self.output.ends();
        if let Some(http) = &mut self.http {
            http.end();
        }
    }

    /// Returns whether there are unread bytes.
    pub fn unread(&self) -> bool {
        self.backlog() > 0
    }

    /// Returns the number of unread bytes, which are stored in files or in the pipe, not in this process, and of unread
    /// messages.
    pub fn backlog(&self) -> u64 {
        self.output.waiting() + self.http.as_ref().map_or(0, |http| http.waiting() as u64)
    }

    /// Returns whether the agent serves HTTP, so that its stdout has only diagnostics.
    pub const fn serves_http(&self) -> bool {
        self.http.is_some()
    }

    /// Queues a frame for the agent: bytes for its stdin, or a request if it serves HTTP. It is not an error if the agent
    /// does not read it.
    pub fn write(&self, frame: Vec<u8>) {
        match &self.http {
            Some(http) => http.write(frame),
            None => self.stdin.write(frame),
        }
    }

    /// Returns whether the agent reads so little of its stdin that further frames should wait.
    pub fn is_full(&self) -> bool {
        self.http.is_none() && self.stdin.is_full()
    }

    /// Closes the agent's stdin after all queued bytes have been written. An agent that serves HTTP does not read its
    /// stdin, so it is interrupted.
    pub fn close_stdin(&mut self) {
        self.stdin.close();
        if self.http.is_some() {
            self.signal(ProcessSignal::Interrupt);
        }
    }

    /// Sends a signal to the agent, or kills its tree. No-op after the exit.
    pub fn signal(&mut self, signal: ProcessSignal) {
        if self.ended.is_none() {
            self.tree.signal(signal);
        }
    }

    /// Returns a handle that kills the processes one run leaves behind while the agent keeps running.
    pub(crate) fn sweeper(&self) -> Sweeper {
        self.tree.sweeper()
    }

    /// Returns a handle that kills the tree from any thread.
    pub(crate) fn killer(&self) -> Killer {
        self.tree.killer()
    }

    /// Returns the final report, once [`next`](Self::next) has reported the exit.
    pub const fn ended(&self) -> Option<&ProcessEnd> {
        if self.exit_reported { self.ended.as_ref() } else { None }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.tree.kill_now(DROP_TIMEOUT);
        }
    }
}

async fn next_message(http: &mut Option<HttpTransport>) -> Vec<u8> {
    match http {
        Some(http) => match http.next().await {
            Some(message) => message,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Returns the memory used by a process and its descendants, in bytes, or `None` where the system does not report it.
pub(crate) fn memory_of(pid: u32) -> Option<u64> {
    os::memory_of(pid.cast_signed())
}

/// Returns the mark, preceded by the marks of the runs that contain the host, because their end must also end this run.
fn mark_inside_others(mark: &str) -> OsString {
    match std::env::var_os(MARKER) {
        Some(mut outer) if !outer.is_empty() => {
            outer.push("/");
            outer.push(mark);
            outer
        }
        _ => mark.into(),
    }
}
