//! Agents on Windows: a job object contains the tree and dies with the host. Written from the documentation; not tested
//! yet.
//!
//! The system closes the job when the host ends for any reason, and kills all processes in it, so no supervisor is
//! needed. A process that the agent starts before the agent is assigned to the job escapes.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

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

use super::{ProcessEnd, ProcessExit, ProcessSignal, Spawn, SpawnError};

/// The write end of the agent's stdin.
pub(super) type StdinPipe = tokio::process::ChildStdin;

/// A placeholder: processes are not counted on this system.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessSnapshot;

/// A placeholder: processes that one run leaves behind end with the agent on this system.
#[derive(Debug, Clone)]
pub(crate) struct Sweeper;

/// Kills an agent and everything it started, from any thread.
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
    pub(crate) fn processes(&self) -> ProcessSnapshot {
        ProcessSnapshot
    }

    pub(crate) fn is_clean(&self, _before: &ProcessSnapshot) -> bool {
        true
    }

    pub(crate) fn sweep(&self, _before: &ProcessSnapshot) -> u32 {
        0
    }
}

/// Returns `None`: memory is not measured on this system.
pub(super) fn memory_of(_root: i32) -> Option<u64> {
    None
}

/// How long to wait for killed processes to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two checks for remaining processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// The exit code of killed processes.
const KILLED: u32 = 1;

/// An agent and its descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    pid: u32,
    job: OwnedHandle,
    child: tokio::process::Child,
    exit: Option<ProcessExit>,
    killed: u32,
    patience: Option<Instant>,
}

impl ProcessTree {
    /// Starts the agent with these handles as its stdout and stderr.
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
        // SAFETY: both handles are open. A process that has already exited cannot be assigned to a job and need not be.
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

    /// Returns `true`: the job does the work of a supervisor.
    pub(super) const fn is_supervised(&self) -> bool {
        true
    }

    /// Returns `false`: the job replaces the namespace too.
    pub(super) const fn has_namespace(&self) -> bool {
        false
    }

    pub(super) fn signal(&mut self, signal: ProcessSignal) {
        match signal {
            // There is only one catchable signal. It reaches the agent only if the agent shares this process's console.
            // SAFETY: the call takes plain numbers.
            ProcessSignal::Interrupt | ProcessSignal::Terminate => unsafe {
                GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.pid);
            },
            ProcessSignal::KillTree => self.kill(),
        }
    }

    /// Waits until the agent has exited and its tree is dead. Cancel safe.
    pub(super) async fn ended(&mut self) -> ProcessEnd {
        if self.exit.is_none() {
            let status = self.child.wait().await;
            self.exit = Some(status.map_or(ProcessExit::Lost, exit_of));
        }
        while self.kill_more() {
            tokio::time::sleep(SEARCH_INTERVAL).await;
        }
        ProcessEnd {
            exit: self.exit.unwrap_or(ProcessExit::Lost),
            killed: self.killed,
            left: self.alive(),
            supervisor_cpu: Duration::ZERO,
        }
    }

    /// Kills the tree without a runtime, within about `time`.
    pub(super) fn kill_now(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while self.kill_more() && Instant::now() < until {
            std::thread::sleep(SEARCH_INTERVAL);
        }
    }

    fn kill_more(&mut self) -> bool {
        let patience = *self.patience.get_or_insert_with(|| Instant::now() + KILL_TIMEOUT);
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

    /// Returns the number of processes in the job.
    fn alive(&self) -> u32 {
        const SIZE: u32 = size_of::<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION>() as u32;
        // SAFETY: the record consists of integers, for which zero is valid, and its size is passed.
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

/// Creates a job whose processes die when its last handle is closed.
fn new_job() -> io::Result<OwnedHandle> {
    const SIZE: u32 = size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32;
    // SAFETY: the handle is new and has no other owner; the record consists of integers, for which zero is valid, and
    // its size is passed.
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

fn exit_of(status: ExitStatus) -> ProcessExit {
    status.code().map_or(ProcessExit::Lost, ProcessExit::Code)
}

/// Creates a file, and returns a handle to read from it and one to append to it. The system deletes the file when both
/// are closed.
pub(super) fn unnamed_file() -> io::Result<(File, File)> {
    super::tail::file_with_passing_name()
}

/// Does nothing: the file keeps its disk space until the end of the run.
pub(super) fn release(_file: &File, _from: u64, _to: u64) {}

/// An empty type: there is no watch, and the files are polled every few milliseconds.
#[derive(Debug)]
pub(super) enum FileWatch {}

impl FileWatch {
    /// Returns `None`.
    pub(super) fn new(_files: &[&File]) -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(super) fn take_notifications(&mut self) -> usize {
        match *self {}
    }

    /// Cannot be called.
    pub(super) async fn written(&mut self) {
        match *self {}
    }
}
