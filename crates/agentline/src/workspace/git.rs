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
/// Git reaches no other repository: in a partial clone, it would run a command from the repository's own settings to
/// fetch a missing object.
///
/// # Errors
/// Fails if Git is missing, or with its message if it fails.
pub fn git(dir: &Path, arguments: &[&OsStr], input: &[u8]) -> io::Result<String> {
    let mut command = Command::new("git");
    command.env("GIT_ALLOW_PROTOCOL", "");
    run(command, dir, arguments, input)
}

/// Runs Git like [`git`], but lets it reach another repository. The settings of the repository in `dir` must be trusted.
/// Blocks.
///
/// # Errors
/// Fails if Git is missing, or with its message if it fails.
pub fn git_with_remote(dir: &Path, arguments: &[&OsStr]) -> io::Result<String> {
    run(Command::new("git"), dir, arguments, &[])
}

fn run(mut command: Command, dir: &Path, arguments: &[&OsStr], input: &[u8]) -> io::Result<String> {
    let mut child = command
        .args(SAFE)
        .arg("-C")
        .arg(dir)
        .args(arguments)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn missing_object_of_a_partial_clone_runs_no_command_of_the_repository() {
        let dir = tempfile::tempdir().expect("a directory");
        let in_dir = |words: &[&str], input: &[u8]| {
            let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            git(dir.path(), &words, input).expect("git works")
        };
        let canary = dir.path().join("canary");
        let command = format!("touch '{}'; false", canary.display());
        in_dir(&["init", "--quiet"], &[]);
        for (key, value) in [
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "o"),
            ("remote.o.url", "./nowhere"),
            ("remote.o.promisor", "true"),
            ("remote.o.uploadpack", &command),
            ("protocol.file.allow", "always"),
        ] {
            in_dir(&["config", key, value], &[]);
        }
        let missing = in_dir(&["hash-object", "--stdin"], b"missing");
        let found = in_dir(&["cat-file", "--batch-check"], missing.as_bytes());
        assert!(found.ends_with("missing"), "{found}");
        assert!(!canary.exists(), "the command ran");
    }
}
