//! Agents as processes: nothing outlives a run, nothing hangs, nothing is lost.
//!
//! [`Process::spawn`] starts a program whose stdout and stderr are private files without a name. They are read while
//! they grow ([`Process::next`]); a pipe would not do, because agents exit with output still unwritten when the pipe is
//! full, and what was unwritten is lost. The end of a run is the exit of the process and a last look at the files.
//!
//! When the program has exited, or the [`Process`] is dropped, all that it started is killed: tools in sessions of their
//! own, daemons, background jobs. They are found by descent and by a variable in their environment ([`MARKER`]).
//!
//! # The supervisor
//!
//! A host that is itself killed with SIGKILL cannot clear up. A *supervisor* can: a small process in a session of its
//! own between host and agent, which notices the death of the host and kills the tree. It is the host's own program,
//! executed again, so the host must let it begin before anything else does:
//!
//! ```
//! // First in `main`. Does not return in the process that is to be the supervisor.
//! agentline::process::supervisor_main_if_asked();
//! // … build the runtime, run agents …
//! ```
//!
//! The agent is not a child of the supervisor but of an *init* between them, which is the first process of a pid namespace
//! where there is one ([`Isolation`]). Whichever of host, supervisor and init is killed, the others end the agent and all
//! that it started; a program all of whose children are ours also calls [`adopt_orphans`].
//!
//! A host that cannot do so names an `agentline` program instead ([`Supervisor::Path`]). Without a supervisor the host
//! clears up itself, at the end and on drop. That covers all but two cases: the sudden death of the host (SIGKILL, or
//! a signal that it does not handle), and a daemon that both left its parent and emptied its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod error;
#[cfg(unix)]
mod init;
#[cfg(unix)]
mod kill;
#[cfg(unix)]
mod killer;
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
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod wire;

pub use agentline_core::Isolation;
pub use error::SpawnError;
#[cfg(unix)]
pub(crate) use killer::Killer;
#[cfg(windows)]
pub(crate) use os::{Census, Killer, Sweeper};
#[cfg(unix)]
pub(crate) use sweep::{Census, Sweeper};

use output::Output;
use stdin::Stdin;
use tree::Tree;

/// The variable that every process of a run inherits; its value is the mark of the run, after those of the runs that
/// this one is part of.
pub const MARKER: &str = "AGENTLINE_RUN";

/// After this many reads in a row, others get their turn, and the exit is looked for.
const BURST: u32 = 16;

/// How long a drop may take.
const DROP: Duration = Duration::from_secs(1);

static OWN_PROGRAM_IS_READY: AtomicBool = AtomicBool::new(false);
#[cfg(unix)]
static ADOPTS_ORPHANS: AtomicBool = AtomicBool::new(false);

/// Makes this process a supervisor if it was started to be one, and does not return then.
///
/// Call it first in `main`, before any thread exists. It is what gives the programs that use this library the promise
/// that nothing outlives a run even when they are killed; see the [module](self).
pub fn supervisor_main_if_asked() {
    #[cfg(unix)]
    if supervisor::asked() {
        std::process::exit(i32::from(supervisor::run().is_err()));
    }
    OWN_PROGRAM_IS_READY.store(true, Ordering::Relaxed);
}

/// Makes this process adopt what a supervisor that was killed leaves behind, and kill it then. Linux only.
///
/// For programs all of whose children are started by this library, such as `agentline`: when a supervisor is lost, every
/// child in a session other than this program's own is taken for an orphan of a run. Call it first in `main`.
pub fn adopt_orphans() {
    #[cfg(unix)]
    if os::ORPHANS_COME_TO_US {
        os::adopt_orphans();
        ADOPTS_ORPHANS.store(true, Ordering::Relaxed);
    }
}

#[cfg(unix)]
fn adopts_orphans() -> bool {
    ADOPTS_ORPHANS.load(Ordering::Relaxed)
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spawn {
    /// The program: a path, or a name to look for on the `PATH` of `env`.
    pub program: PathBuf,
    /// Its arguments, without the program.
    pub args: Vec<OsString>,
    /// Its whole environment. [`MARKER`] is added.
    pub env: BTreeMap<OsString, OsString>,
    /// Where it works; relative programs are looked for here.
    pub cwd: PathBuf,
    /// A name of letters, digits, `-`, `_` and `.`; all that carries it is killed at the end. No other run has it or
    /// had it: the end of one run would reach into the next.
    pub mark: String,
    /// How stdout comes to us. (stderr is always a file.)
    pub stdout: Via,
    /// Who clears up after the host's sudden death.
    pub supervisor: Supervisor,
    /// Whether the agent gets a pid namespace. Without a supervisor it gets none.
    pub isolation: Isolation,
    /// Directories that the supervisor removes if the host dies suddenly. Only private directories that this library made
    /// are removed.
    pub remove_on_host_death: Vec<PathBuf>,
}

impl Spawn {
    /// A program without arguments or environment.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>, mark: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: cwd.into(),
            mark: mark.into(),
            stdout: Via::default(),
            supervisor: Supervisor::default(),
            isolation: Isolation::default(),
            remove_on_host_death: Vec::new(),
        }
    }
}

impl Spawn {
    /// Has the supervisor remove these directories if the host dies suddenly.
    pub(crate) fn removing_on_host_death<'a>(mut self, paths: impl Iterator<Item = &'a Path>) -> Self {
        self.remove_on_host_death.extend(paths.map(Into::into));
        self
    }
}

/// How an agent's stdout comes to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via {
    /// Through a file without a name, read as it grows. Nothing is lost at exit, and the agent never waits for us.
    #[default]
    TailedFile,
    /// Through a pipe, for live protocols. The agent waits for us when it is full. On Windows this is a file as well.
    Pipe,
}

/// Who clears up when the host dies suddenly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Supervisor {
    /// This program itself, if it has called [`supervisor_main_if_asked`]; else as `None`.
    #[default]
    CurrentExe,
    /// Another program that calls [`supervisor_main_if_asked`], such as `agentline`.
    Path(PathBuf),
    /// Nobody. What else is lost is said in the [module](self).
    None,
}

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Std {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What an agent can be told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT to the agent's process group, as Ctrl-C does.
    Interrupt,
    /// SIGTERM to the agent's process group.
    Terminate,
    /// The end of everything that belongs to the run, at once.
    KillTree,
}

/// How the agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Unknown: the supervisor was killed, or the agent could not be.
    Lost,
}

/// What is known when all is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// How the agent ended.
    pub exit: Exit,
    /// How many processes were killed.
    pub killed: u32,
    /// How many could not be killed, because they are another user's or do not die.
    pub left: u32,
    /// The processor time of the supervisor itself.
    pub supervisor_cpu: Duration,
}

/// The next thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// Bytes of this stream were appended to the buffer. None: it has ended, though the agent lives on.
    Bytes(Std),
    /// The agent has exited, its tree is dead, and there are no more bytes.
    Exit(Exit),
}

/// A running agent and all that it starts.
///
/// Dropping it kills the whole tree and waits for that, a few milliseconds as a rule and a second at most.
#[derive(Debug)]
pub struct Process {
    tree: Tree,
    stdin: Stdin,
    output: Output,
    reads: u32,
    stdout_end_told: bool,
    ended: Option<Ended>,
    exit_told: bool,
}

impl Process {
    /// Starts an agent, which takes a millisecond or two. Call it inside a tokio runtime, of either kind, with I/O and
    /// time enabled.
    ///
    /// # Errors
    /// Says what is wrong with the program, the working directory, the mark or the supervisor.
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
        let (output, stdout, stderr) = Output::open(spawn.stdout)?;
        let ready = OWN_PROGRAM_IS_READY.load(Ordering::Relaxed);
        let (tree, stdin) = Tree::start(&spawn, stdout, stderr, ready)?;
        let stdin = Stdin::start(stdin);
        Ok(Self { tree, stdin, output, reads: 0, stdout_end_told: false, ended: None, exit_told: false })
    }

    /// The agent's process id, until it is known to have exited.
    pub fn pid(&self) -> Option<u32> {
        self.ended.is_none().then(|| self.tree.pid())
    }

    /// Whether a supervisor watches over this run.
    pub const fn is_supervised(&self) -> bool {
        self.tree.is_supervised()
    }

    /// Whether the agent runs in a pid namespace of its own, so that the kernel ends what is left of it.
    pub const fn has_namespace(&self) -> bool {
        self.tree.has_namespace()
    }

    /// The next thing that happens: bytes, appended to `buf`, or the exit.
    ///
    /// The exit comes once, after all bytes, when the tree is dead; after it nothing happens any more, and this waits
    /// for ever. May be dropped and called again without losing anything.
    pub async fn next(&mut self, buf: &mut Vec<u8>) -> Happening {
        loop {
            if self.reads >= BURST {
                // A flood must starve neither the other branches of the caller's `select!` nor the exit.
                self.reads = 0;
                tokio::select! {
                    biased;
                    ended = self.tree.ended(), if self.ended.is_none() => self.end(ended),
                    () = tokio::task::yield_now() => {}
                }
            }
            if let Some(from) = self.output.read(buf) {
                self.reads += 1;
                return Happening::Bytes(from);
            }
            self.reads = 0;
            match &self.ended {
                Some(ended) if !self.exit_told => {
                    self.exit_told = true;
                    return Happening::Exit(ended.exit);
                }
                Some(_) => return std::future::pending().await,
                None if self.output.stdout_ended() && !self.stdout_end_told => {
                    self.stdout_end_told = true;
                    return Happening::Bytes(Std::Out);
                }
                None => {}
            }
            tokio::select! {
                ended = self.tree.ended() => self.end(ended),
                () = self.output.written() => {}
            }
        }
    }

    fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.output.ends();
    }

    /// Whether bytes wait that nobody has read yet.
    pub fn unread(&self) -> bool {
        self.backlog() > 0
    }

    /// How many bytes wait that nobody has read yet. They lie in files and take no memory of ours.
    pub fn backlog(&self) -> u64 {
        self.output.waiting()
    }

    /// Queues bytes for the agent's stdin. An agent that does not read them, or has closed its stdin, is no error.
    pub fn write(&self, frame: Vec<u8>) {
        self.stdin.write(frame);
    }

    /// Closes the agent's stdin when all that was queued before is written.
    pub fn close_stdin(&self) {
        self.stdin.close();
    }

    /// Tells the agent to end, or ends it.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended.is_none() {
            self.tree.signal(signal);
        }
    }

    /// Finds and ends what one run leaves behind while the agent lives on.
    pub(crate) fn sweeper(&self) -> Sweeper {
        self.tree.sweeper()
    }

    /// Kills the tree from any thread.
    pub(crate) fn killer(&self) -> Killer {
        self.tree.killer()
    }

    /// What is known of the end, once [`next`](Self::next) has told of the exit.
    pub const fn ended(&self) -> Option<&Ended> {
        if self.exit_told { self.ended.as_ref() } else { None }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.tree.kill_now(DROP);
        }
    }
}

/// How much memory a process and all that descend from it take, in bytes; `None` where the system does not say.
pub(crate) fn memory_of(pid: u32) -> Option<u64> {
    os::memory_of(pid.cast_signed())
}

/// The mark, after the marks of the runs that the host itself is part of: the end of those must end this one too.
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
