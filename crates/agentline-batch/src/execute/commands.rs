//! Commands of a suite: `setup`, `teardown` and checks.

use agentline::FailureKind;
use agentline::completion::{CheckInput, CheckResult, CompletionCheck};
use agentline::supervisor::{KillDeadline, Supervisor};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The variables that a command gets from the caller's environment.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "JAVA_HOME",
    "GOPATH",
    "VIRTUAL_ENV",
    "SystemRoot",
    "TEMP",
    "TMP",
];

/// Words that a shell knows itself, after which the name of a missing program may follow.
const SHELL_WORDS: &[&str] = &[
    "case", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "read", "return", "set",
    "source", "time", "trap", "ulimit", "umask", "unset", "until", "wait", "while",
];

/// The exit status of a shell that does not find a program.
const NOT_FOUND: &str = "exited with code 127";

/// How a command ended.
#[derive(Debug)]
pub(super) enum CommandEnd {
    /// It succeeded.
    Succeeded,
    /// It failed, with its exit status and the end of its output.
    Failed(String),
    /// It was ended because it took too long.
    TimedOut(String),
    /// It could not be started, or its program is not installed.
    NotStarted(String),
}

impl CommandEnd {
    /// Returns the reason if the command did not succeed.
    pub(super) fn into_result(self) -> Result<(), String> {
        match self {
            Self::Succeeded => Ok(()),
            Self::Failed(reason) | Self::TimedOut(reason) | Self::NotStarted(reason) => Err(reason),
        }
    }
}

/// Who wrote the files that a command uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FilesBy {
    /// The author of the suite: no agent has worked in the directory yet.
    Suite,
    /// An agent. In an overlay, the command sees no more than the agent did.
    Agent,
}

/// Runs a command line in a directory. Everything that it starts ends with it, or at the deadline of a stopped worker.
pub(super) async fn run(
    line: &str,
    dir: &Path,
    timeout: Duration,
    files: FilesBy,
    deadline: Option<KillDeadline>,
) -> CommandEnd {
    let environment: BTreeMap<String, String> =
        PASSED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    let is_missing = is_missing(line, environment.get("PATH").map_or("", String::as_str));
    let mut command =
        CompletionCheck::command(line, environment, Supervisor::default()).kill_deadline(deadline);
    if files == FilesBy::Agent {
        command = command.enclosed();
    }
    match command.check(CheckInput::new("", dir), timeout).await {
        Ok(CheckResult::Done) => CommandEnd::Succeeded,
        Ok(CheckResult::Continue(reason)) if is_missing && reason.contains(NOT_FOUND) => {
            CommandEnd::NotStarted(reason)
        }
        Ok(CheckResult::Continue(reason)) => CommandEnd::Failed(reason),
        Err(failure) if failure.kind == FailureKind::TimeoutRun => {
            CommandEnd::TimedOut(format!("`{line}` did not finish within {} s", timeout.as_secs_f64()))
        }
        Err(failure) => CommandEnd::NotStarted(failure.message),
    }
}

/// Returns whether a line starts with the name of a program that is in no directory of `PATH`. A path, such as that of a
/// script which the agent was to write, is no such name.
fn is_missing(line: &str, path: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    let is_name = word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c));
    is_name
        && cfg!(unix)
        && !SHELL_WORDS.contains(&word)
        && !std::env::split_paths(path).any(|dir| dir.join(word).is_file())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn command_that_cannot_be_started_has_not_failed() {
        let dir = tempfile::tempdir().expect("a directory");
        let minute = Duration::from_secs(60);
        for (line, end) in [
            ("true", "succeeded"),
            ("false", "failed"),
            ("exit 127", "failed"),
            ("./missing.sh", "failed"),
            ("if true; then no-such-program-x; fi", "failed"),
            ("no-such-program-x --flag", "not started"),
        ] {
            let found = match run(line, dir.path(), minute, FilesBy::Agent, None).await {
                CommandEnd::Succeeded => "succeeded",
                CommandEnd::Failed(_) => "failed",
                CommandEnd::TimedOut(_) => "timed out",
                CommandEnd::NotStarted(_) => "not started",
            };
            assert_eq!(found, end, "{line}");
        }
        let nowhere = dir.path().join("missing");
        assert!(matches!(
            run("true", &nowhere, minute, FilesBy::Suite, None).await,
            CommandEnd::NotStarted(_)
        ));
        let short = Duration::from_millis(50);
        let ended = run("sleep 100", dir.path(), short, FilesBy::Suite, None).await;
        assert!(matches!(&ended, CommandEnd::TimedOut(reason) if reason.contains("0.05 s")), "{ended:?}");
    }
}
