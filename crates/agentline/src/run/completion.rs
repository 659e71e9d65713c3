//! Decides whether a task is complete, by the caller's own check: a function, or a command that must succeed.

use crate::process::{
    Enclosure, Isolation, KillDeadline, Process, ProcessEvent, ProcessExit, Spawn, Supervisor, mounts,
};
use agentline_core::{Failure, FailureKind, error_chain};
use serde_json::Value;
use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

/// The number of bytes at the end of a command's output that the agent sees.
const TAIL: usize = 8 << 10;

type CheckFuture = Pin<Box<dyn Future<Output = Result<CheckResult, Failure>> + Send>>;
type Function = dyn Fn(CheckInput) -> CheckFuture + Send + Sync;

/// The input of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckInput {
    /// The text of the agent's last turn.
    pub text: String,
    /// The structured value, if one was requested; it matches the schema.
    pub value: Option<Value>,
    /// The directory in which the agent works.
    pub workspace: PathBuf,
}

impl CheckInput {
    /// Creates an input from the agent's text and its working directory.
    #[must_use]
    pub fn new(text: impl Into<String>, workspace: impl Into<PathBuf>) -> Self {
        Self { text: text.into(), value: None, workspace: workspace.into() }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The task is complete.
    Done,
    /// The task is not complete, for this reason, which is sent to the agent.
    Continue(String),
}

/// A check that decides whether a task is complete. Cloning is cheap.
///
/// ```
/// use agentline::completion::{CheckResult, CompletionCheck};
/// let checker = CompletionCheck::new(|input| async move {
///     if input.workspace.join("report.md").exists() {
///         CheckResult::Done
///     } else {
///         CheckResult::Continue("report.md is still missing".into())
///     }
/// });
/// # let _ = checker;
/// ```
#[derive(Clone)]
pub struct CompletionCheck {
    kind: CheckKind,
}

#[derive(Clone)]
enum CheckKind {
    Function(Arc<Function>),
    Command(Arc<Command>),
}

#[derive(Clone)]
struct Command {
    line: String,
    env: BTreeMap<String, String>,
    supervisor: Supervisor,
    kill_deadline: Option<KillDeadline>,
    is_enclosed: bool,
}

impl CompletionCheck {
    /// Creates a check that calls a function after each turn.
    pub fn new<F, Fut>(check: F) -> Self
    where
        F: Fn(CheckInput) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = CheckResult> + Send + 'static,
    {
        Self::fallible(move |input| {
            let checked = check(input);
            async { Ok(checked.await) }
        })
    }

    /// Creates a check that calls a fallible function. An error ends the run.
    pub(crate) fn fallible<F, Fut>(check: F) -> Self
    where
        F: Fn(CheckInput) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CheckResult, Failure>> + Send + 'static,
    {
        Self { kind: CheckKind::Function(Arc::new(move |input| Box::pin(check(input)))) }
    }

    /// Creates a check that runs a command line after each turn.
    ///
    /// The command runs with `/bin/sh` (`cmd` on Windows) in the workspace, with exactly this environment. The task is
    /// complete if it succeeds; otherwise its exit status and the end of its output are sent to the agent. All
    /// processes that it starts are ended with it.
    pub fn command(line: impl Into<String>, env: BTreeMap<String, String>, supervisor: Supervisor) -> Self {
        let command = Command { line: line.into(), env, supervisor, kill_deadline: None, is_enclosed: false };
        Self { kind: CheckKind::Command(Arc::new(command)) }
    }

    /// Sets the deadline at which the supervisor of a command kills it.
    #[must_use]
    pub fn kill_deadline(mut self, deadline: Option<KillDeadline>) -> Self {
        if let CheckKind::Command(command) = &mut self.kind {
            Arc::make_mut(command).kill_deadline = deadline;
        }
        self
    }

    /// Lets a command see no more than an agent that starts in the same workspace, if that is an overlay. For commands
    /// that execute what an agent wrote.
    #[must_use]
    pub fn enclosed(mut self) -> Self {
        if let CheckKind::Command(command) = &mut self.kind {
            Arc::make_mut(command).is_enclosed = true;
        }
        self
    }

    /// Runs the check within the remaining time. Dropping the future ends the check and everything that it started.
    ///
    /// # Errors
    /// Fails if the time runs out, the command cannot be started, or the function panics.
    pub async fn check(&self, input: CheckInput, left: Duration) -> Result<CheckResult, Failure> {
        let checked = async {
            match &self.kind {
                CheckKind::Function(check) => {
                    // The function may also panic before it returns its future.
                    let mut future = Box::pin(async { check(input).await });
                    let caught = poll_fn(move |cx| {
                        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
                        polled.map_or_else(|panic| Poll::Ready(Err(panic)), |poll| poll.map(Ok))
                    });
                    caught.await.unwrap_or_else(|panic| {
                        Err(Failure::new(
                            FailureKind::Tool,
                            format!("the check panicked: {}", panic_message(&*panic)),
                        ))
                    })
                }
                CheckKind::Command(command) => command.run(input.workspace).await,
            }
        };
        tokio::time::timeout(left, checked).await.unwrap_or_else(|_| {
            let message = format!("{self} did not finish within the timeout of the run");
            Err(Failure::new(FailureKind::TimeoutRun, message))
        })
    }
}

/// Formats the check for users and agents.
impl fmt::Display for CompletionCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            CheckKind::Function(_) => f.write_str("the check"),
            CheckKind::Command(command) => write!(f, "the check `{}`", command.line),
        }
    }
}

/// Omits the environment.
impl fmt::Debug for CompletionCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionCheck({self})")
    }
}

impl Command {
    async fn run(&self, workspace: PathBuf) -> Result<CheckResult, Failure> {
        let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("/bin/sh", "-c") };
        let mut spawn = Spawn::new(shell, workspace, format!("until-{}", uuid::Uuid::new_v4()));
        spawn.args = vec![flag.into(), self.line.clone().into()];
        spawn.env = self.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        spawn.supervisor = self.supervisor.clone();
        spawn.kill_deadline.clone_from(&self.kill_deadline);
        let refused = |reason: String| {
            Failure::new(FailureKind::Spawn, format!("cannot start the check `{}`: {reason}", self.line))
        };
        let enclosure = if self.is_enclosed { mounts::enclosure(&spawn.cwd) } else { None };
        spawn.enclosure = enclosure.map(|enclosure| Enclosure { starts_inside: true, ..enclosure });
        if let Some(scratch) = spawn.enclosure.as_mut().and_then(|enclosure| enclosure.scratch.as_mut()) {
            // No command finds what an earlier one left, such as a link where a directory is mounted.
            scratch.push(&spawn.mark);
            std::fs::create_dir(&*scratch).map_err(|error| refused(error.to_string()))?;
        }
        // Otherwise, the command is the caller's own and may need to see the caller's processes.
        spawn.isolation = if spawn.enclosure.is_some() { Isolation::Namespace } else { Isolation::None };
        let mut process = Process::spawn(spawn).map_err(|error| refused(error_chain(&error)))?;
        process.close_stdin();
        let mut tail = Tail::default();
        let exit = loop {
            match process.next(&mut tail.bytes).await {
                ProcessEvent::Bytes(_) | ProcessEvent::Message => tail.cut(),
                ProcessEvent::Exit(exit) => break exit,
            }
        };
        let exit = match exit {
            ProcessExit::Code(0) => return Ok(CheckResult::Done),
            ProcessExit::Code(code) => format!("exited with code {code}"),
            ProcessExit::Signal(signal) => format!("was killed by signal {signal}"),
            ProcessExit::Lost => "ended with an unknown status".into(),
        };
        let output = match tail.text() {
            text if text.is_empty() => "It printed no output.".into(),
            text => format!("The end of its output:\n{text}"),
        };
        Ok(CheckResult::Continue(format!("`{}` {exit}. {output}", self.line)))
    }
}

/// The end of a command's output.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    fn cut(&mut self) {
        if self.bytes.len() > 2 * TAIL {
            self.bytes.drain(..self.bytes.len() - TAIL);
            self.is_cut = true;
        }
    }

    /// Returns the end as text, from the beginning of a line if one is near, without control characters.
    fn text(&self) -> String {
        let from = self.bytes.len().saturating_sub(TAIL);
        let is_cut = self.is_cut || from > 0;
        let mut tail = &self.bytes[from..];
        if is_cut {
            let line = tail.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
            // The remaining bytes of a truncated character.
            let part = tail.iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
            tail = &tail[line.filter(|line| *line < TAIL / 2).unwrap_or(part)..];
        }
        let plain = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
        let text: String = String::from_utf8_lossy(tail).chars().filter(plain).collect();
        let text = text.trim_end();
        if is_cut { format!("…\n{text}") } else { text.to_owned() }
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

#[cfg(test)]
mod tests;
