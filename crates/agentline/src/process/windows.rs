//! Agents on Windows: a job object holds the tree and dies with the host. Written after the documentation; not tested yet.
//!
//! The job is closed by the system when the host ends, however it ends, and takes all processes in it along, so no
//! supervisor is needed. A process that the agent starts in the instant before it is put into the job escapes.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own argument")]

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::process::{ExitStatus, Stdio};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
    SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP;

use super::{Ended, Exit, Signal, Spawn, SpawnError};

/// Our end of the agent's stdin.
pub(super) type StdinPipe = tokio::process::ChildStdin;

/// Who is there at one moment. Not known here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census;

/// Ends what one run leaves behind on an agent that lives on. Not done here: it ends with the agent.
#[derive(Debug, Clone)]
pub(crate) struct Sweeper;

/// Kills an agent and all that it started, from any thread.
#[derive(Debug)]
pub(crate) struct Killer(Option<OwnedHandle>);

impl Killer {
    /// Kills the tree.
    pub(crate) fn kill(&self) {
        if let Some(job) = &self.0 {
            // SAFETY: the handle is open.
            unsafe { TerminateJobObject(job.as_raw_handle(), KILLED) };
        }
    }
}

impl Sweeper {
    pub(crate) fn census(&self) -> Census {
        Census
    }

    pub(crate) fn is_clean(&self, _before: &Census) -> bool {
        true
    }

    pub(crate) fn sweep(&self, _before: &Census) -> u32 {
        0
    }
}

/// Not known here.
pub(super) fn memory_of(_root: i32) -> Option<u64> {
    None
}

/// How long we wait for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// The rest between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(2);

/// The exit code of what we kill.
const KILLED: u32 = 1;

/// An agent and its descendants.
#[derive(Debug)]
pub(super) struct Tree {
    pid: u32,
    job: OwnedHandle,
    child: tokio::process::Child,
    exit: Option<Exit>,
    killed: u32,
    patience: Option<Instant>,
}

impl Tree {
    /// Starts the agent with these files as its stdout and stderr.
    pub(super) fn start(
        spawn: &Spawn,
        stdout: OwnedHandle,
        stderr: OwnedHandle,
        _own_program_is_ready: bool,
    ) -> Result<(Self, StdinPipe), SpawnError> {
        let job = new_job()?;
        let mut child = tokio::process::Command::new(&spawn.program)
            .args(&spawn.args)
            .env_clear()
            .envs(&spawn.env)
            .current_dir(&spawn.cwd)
            .creation_flags(CREATE_NEW_PROCESS_GROUP)
            .stdin(Stdio::piped())
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::from(stderr))
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| SpawnError::explain(spawn, error))?;
        let process = child.raw_handle().unwrap_or(null_mut());
        // SAFETY: both handles are open. A process that has ended already cannot be put into a job, and need not be.
        unsafe { AssignProcessToJobObject(job.as_raw_handle(), process.cast()) };
        let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe).map_err(io::Error::from)?;
        let pid = child.id().unwrap_or(0);
        Ok((Self { pid, job, child, exit: None, killed: 0, patience: None }, stdin))
    }

    pub(super) fn sweeper(&self) -> Sweeper {
        Sweeper
    }

    pub(super) fn killer(&self) -> Killer {
        Killer(self.job.try_clone().ok())
    }

    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// The job survives nobody, which is what a supervisor is for.
    pub(super) const fn is_supervised(&self) -> bool {
        true
    }

    /// The job plays this part too.
    pub(super) const fn has_namespace(&self) -> bool {
        false
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        match signal {
            // There is one polite signal only. It reaches the agent if it shares our console.
            // SAFETY: plain numbers.
            Signal::Interrupt | Signal::Terminate => unsafe {
                GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.pid);
            },
            Signal::KillTree => self.kill(),
        }
    }

    /// Waits until the agent has exited and its tree is dead. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> Ended {
        if self.exit.is_none() {
            let status = self.child.wait().await;
            self.exit = Some(status.map_or(Exit::Lost, exit_of));
        }
        while self.kill_more() {
            tokio::time::sleep(PAUSE).await;
        }
        Ended {
            exit: self.exit.unwrap_or(Exit::Lost),
            killed: self.killed,
            left: self.alive(),
            supervisor_cpu: Duration::ZERO,
        }
    }

    /// Kills the tree without the help of a runtime, within about `time`.
    pub(super) fn kill_now(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while self.kill_more() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    fn kill_more(&mut self) -> bool {
        let patience = *self.patience.get_or_insert_with(|| Instant::now() + PATIENCE);
        if self.alive() == 0 {
            return false;
        }
        self.kill();
        Instant::now() < patience
    }

    fn kill(&mut self) {
        self.killed = self.killed.max(self.alive());
        // SAFETY: the handle is open.
        unsafe { TerminateJobObject(self.job.as_raw_handle(), KILLED) };
    }

    /// How many processes the job holds.
    fn alive(&self) -> u32 {
        const SIZE: u32 = size_of::<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION>() as u32;
        // SAFETY: the record is plain numbers, for which zero is a value, and its size is given.
        unsafe {
            let mut count: JOBOBJECT_BASIC_ACCOUNTING_INFORMATION = zeroed();
            QueryInformationJobObject(
                self.job.as_raw_handle(),
                JobObjectBasicAccountingInformation,
                (&raw mut count).cast(),
                SIZE,
                null_mut(),
            );
            count.ActiveProcesses
        }
    }
}

/// A job whose processes die when its last handle is closed, which is ours.
fn new_job() -> io::Result<OwnedHandle> {
    const SIZE: u32 = size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32;
    // SAFETY: the handle is new and ours; the record is plain numbers, for which zero is a value, and its size is given.
    unsafe {
        let raw = CreateJobObjectW(null(), null());
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        let job = OwnedHandle::from_raw_handle(raw);
        let mut limits: JOBOBJECT_EXTENDED_LIMIT_INFORMATION = zeroed();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let class = JobObjectExtendedLimitInformation;
        if SetInformationJobObject(job.as_raw_handle(), class, (&raw const limits).cast(), SIZE) == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(job)
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    status.code().map_or(Exit::Lost, Exit::Code)
}

/// A file for us to read and, as a second handle, for others to append to. The system deletes its name when both are
/// closed.
pub(super) fn unnamed_file() -> io::Result<(File, File)> {
    super::tail::file_with_passing_name()
}

/// The file keeps its room until the end of the run.
pub(super) fn release(_file: &File, _from: u64, _to: u64) {}

/// There is no watch; the files are looked at every few milliseconds.
#[derive(Debug)]
pub(super) enum Watch {}

impl Watch {
    /// No watch.
    pub(super) fn new(_files: &[&File]) -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(super) fn heard(&mut self) -> usize {
        match *self {}
    }

    /// Cannot be called.
    pub(super) async fn written(&mut self) {
        match *self {}
    }
}
