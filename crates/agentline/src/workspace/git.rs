//! Runs Git for workspaces.

use std::{
    ffi::OsStr,
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

/// Settings with which Git runs no command of a repository and asks no helper for a URL.
const SAFE: &[&str] =
    &["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never"];

/// Runs Git in a directory, without prompts, hooks and file system monitors, and returns its output. `input` is its
/// standard input. Blocks.
///
/// # Errors
/// Fails if Git is missing, or with its message if it fails.
pub fn git(dir: &Path, arguments: &[&OsStr], input: &[u8]) -> io::Result<String> {
    let mut child = Command::new("git")
        .args(SAFE)
        .arg("-C")
        .arg(dir)
        .args(arguments)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("git cannot be started: {error}")))?;
    let output = std::thread::scope(|scope| {
        if let Some(mut stdin) = child.stdin.take() {
            // Git may answer before it has read everything. If it ends early, its status tells why.
            scope.spawn(move || stdin.write_all(input));
        }
        child.wait_with_output()
    })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("git failed: {}", message.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
