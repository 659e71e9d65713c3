//! Detects a full temporary directory, and removes what killed agents leave in it.

use agentline_core::{Agent, Notice, Outcome};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The number of bytes written to test for free space.
const PROBE_BYTES: usize = 16 << 10;
/// The minimum age of a removed directory. A younger one may belong to a command that is being started.
const MIN_AGE: Duration = Duration::from_secs(1);
/// Tolerance for the delay between a process's start and its recording, and for the coarse clock of file systems.
const START_SLACK: Duration = Duration::from_secs(1);
/// The maximum number of files in a removed directory. Agents' commands leave fewer.
const MAX_FILES: usize = 8;

/// The temporary directories of a process.
#[derive(Debug)]
pub(crate) struct ProcessTemp {
    /// The agent's temporary directory, the one with its output and private directory, and that of this process.
    dirs: [PathBuf; 3],
    /// The name prefixes of the directories that the agent creates for its commands.
    prefixes: Vec<String>,
    started: SystemTime,
}

impl ProcessTemp {
    /// Describes a process that was just started with this environment and a private directory in `ours`.
    pub(crate) fn new(ours: PathBuf, agent: &dyn Agent, env: &BTreeMap<String, String>) -> Self {
        let theirs = env.get("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let dirs = [theirs, ours, std::env::temp_dir()];
        let now = SystemTime::now();
        let started = now.checked_sub(START_SLACK).unwrap_or(now);
        let prefixes = agent.info().command_dirs.iter().map(|prefix| (*prefix).to_owned()).collect();
        Self { dirs, prefixes, started }
    }

    /// Adds a full temporary directory to the error of a failed run.
    pub(crate) fn explain_full(&self, outcome: &mut Outcome) {
        explain_full(outcome, &self.dirs);
    }

    /// Removes command directories that the agent left because it was killed.
    pub(crate) fn remove_leftovers(&self) {
        remove_command_dirs(&self.dirs[0], &self.prefixes, self.started);
    }
}

/// Adds a full temporary directory to the error of a failed run, because agents lose their output when it is full.
fn explain_full(outcome: &mut Outcome, dirs: &[PathBuf]) {
    let Some(error) = &mut outcome.error else { return };
    let Some(full) = dirs.iter().find(|dir| is_full(dir)) else { return };
    let dir = full.display();
    let message = format!("the temporary directory `{dir}` is full");
    error.message = format!("{message}: {}", error.message);
    error.hint = Some(format!("free space in `{dir}`, or set TMPDIR to a directory with free space"));
    outcome.warnings.push(Notice::new("temp_dir_full", message));
}

fn is_full(dir: &Path) -> bool {
    let no_room =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let written = tempfile::tempfile_in(dir).and_then(|mut file| file.write_all(&[0; PROBE_BYTES]));
    written.is_err_and(|error| no_room(&error))
}

/// Removes directories that an agent created for its commands since `since` and left because it was killed.
///
/// Directories of other agents stay: a directory is removed only if this user owns it, no live process has its name in
/// its arguments, and it contains only a few regular files. If the system does not list the arguments of processes,
/// nothing is removed.
fn remove_command_dirs(dir: &Path, prefixes: &[String], since: SystemTime) {
    if prefixes.is_empty() {
        return;
    }
    let is_named = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut left: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, path)| is_named(name) && is_left(path, since))
        .collect();
    if left.is_empty() || !forget_used(&mut left) {
        return;
    }
    for (_, path) in left {
        // Directories that cannot be removed stay.
        let _ = remove_plain(&path);
    }
}

fn is_left(path: &Path, since: SystemTime) -> bool {
    let Ok(metadata) = path.symlink_metadata() else { return false };
    let Ok(changed) = metadata.modified() else { return false };
    let is_old = changed.elapsed().is_ok_and(|age| age >= MIN_AGE);
    metadata.is_dir() && is_own(&metadata) && changed >= since && is_old
}

#[cfg(unix)]
fn is_own(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // This process owns its own entry in `/proc`.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == metadata.uid())
}

#[cfg(not(unix))]
fn is_own(_about: &fs::Metadata) -> bool {
    false
}

/// Drops directories that a live process has in its arguments. Returns whether processes could be listed.
fn forget_used(left: &mut Vec<(String, PathBuf)>) -> bool {
    let mut listed = false;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let Ok(arguments) = fs::read(entry.path().join("cmdline")) else { continue };
        if !is_process {
            continue;
        }
        listed = true;
        left.retain(|(name, _)| memchr::memmem::find(&arguments, name.as_bytes()).is_none());
    }
    listed
}

fn remove_plain(dir: &Path) -> io::Result<()> {
    let files: Vec<_> = fs::read_dir(dir)?.take(MAX_FILES + 1).collect::<io::Result<_>>()?;
    let is_plain = |file: &fs::DirEntry| file.file_type().is_ok_and(|kind| kind.is_file());
    if files.len() > MAX_FILES || !files.iter().all(is_plain) {
        return Ok(());
    }
    for file in files {
        fs::remove_file(file.path())?;
    }
    fs::remove_dir(dir)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_stale_directories_of_the_agent_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let before = SystemTime::now() - Duration::from_secs(60);
        for name in ["shell-dead", "shell-used", "shell-full", "shell-old", "other-dead"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("pids.tmp"), "1").unwrap();
        }
        fs::create_dir(at("shell-full").join("more")).unwrap();
        fs::write(at("shell-file"), "").unwrap();
        let set_age = |name: &str, seconds| {
            let when = SystemTime::now() - Duration::from_secs(seconds);
            fs::File::open(at(name)).unwrap().set_modified(when).unwrap();
        };
        for name in ["shell-dead", "shell-used", "shell-full", "shell-file", "other-dead"] {
            set_age(name, 10);
        }
        set_age("shell-old", 600);
        let mut user = std::process::Command::new("sh")
            .args(["-c", "read line", &at("shell-used").to_string_lossy()])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // A process has no arguments for a moment after it was started.
        let arguments = format!("/proc/{}/cmdline", user.id());
        for _ in 0..6000 {
            if !fs::read(&arguments).unwrap().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        remove_command_dirs(dir.path(), &["shell-".to_owned()], before);
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["other-dead", "shell-file", "shell-full", "shell-old", "shell-used"]);
        drop(user.stdin.take());
        user.wait().unwrap();
        remove_command_dirs(dir.path(), &["shell-".to_owned()], before);
        assert!(!at("shell-used").exists());
    }
}
