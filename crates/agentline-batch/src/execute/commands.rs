//! Commands of a suite: `setup`, `teardown` and checks.

use agentline::completion::{CheckInput, CheckResult, CompletionCheck};
use agentline::supervisor::Supervisor;
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

/// Runs a command line in a directory. Everything that it starts ends with it.
///
/// # Errors
/// Returns the exit status and the end of its output if it fails or takes too long.
pub(super) async fn run(line: &str, dir: &Path, timeout: Duration) -> Result<(), String> {
    let environment: BTreeMap<String, String> =
        PASSED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    let command = CompletionCheck::command(line, environment, Supervisor::default());
    match command.check(CheckInput::new("", dir), timeout).await {
        Ok(CheckResult::Done) => Ok(()),
        Ok(CheckResult::Continue(reason)) => Err(reason),
        Err(failure) => Err(failure.message),
    }
}
