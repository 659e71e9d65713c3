//! Runs the tools that install packages: in the caller's environment, but with a private home directory.

use super::{InstallError, InstallProgress};
use crate::detect::HostEnv;
use std::{
    fs,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The time limit for an installation, which includes the retries of npm and pip.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const TAIL_BYTES: u64 = 3000;
/// The directory in an unfinished installation that its tools use as the home directory.
const HOME: &str = ".home";

/// Variables that name directories of the user, which install scripts would write to.
const USER_DIRS: &[&str] =
    &["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "ZDOTDIR"];

/// Creates a command in the caller's environment with a directory first on `PATH`, such as that of Node.js for npm, which
/// is a Node.js script.
pub(super) fn command(program: &Path, first: Option<&Path>, host_env: &HostEnv) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(&host_env.env).stdin(Stdio::null());
    let key = host_env
        .env
        .keys()
        .find(|k| k.as_str() == "PATH" || (cfg!(windows) && k.eq_ignore_ascii_case("PATH")));
    let key = key.map_or("PATH", String::as_str);
    let mut folders: Vec<PathBuf> = first.map(Path::to_path_buf).into_iter().collect();
    folders.extend(host_env.env.get(key).iter().flat_map(|p| std::env::split_paths(p)));
    if let Ok(path) = std::env::join_paths(folders) {
        command.env(key, path);
    }
    command
}

/// Makes a command use a new home directory inside `dir`. Scripts of packages edit the shell profiles that they find.
pub(super) fn with_private_home(command: &mut Command, dir: &Path) -> io::Result<()> {
    let home = dir.join(HOME);
    fs::create_dir_all(&home)?;
    for variable in USER_DIRS {
        command.env_remove(variable);
    }
    command.env("HOME", &home);
    if cfg!(windows) {
        command.env("USERPROFILE", &home);
    }
    Ok(())
}

/// Removes the private home directory of a finished installation.
pub(super) fn remove_private_home(dir: &Path) {
    // Files that remain only take up space.
    let _ignored = fs::remove_dir_all(dir.join(HOME));
}

/// Runs a command of an installation to its end.
pub(super) fn run(
    mut command: Command,
    (package, with): (&str, &'static str),
    dir: &Path,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<(), InstallError> {
    let failed = |reason: String, tail: String| InstallError::of(package.to_owned(), with, reason, tail);
    let io = |source| InstallError::Cache { doing: "write to", path: dir.to_path_buf(), source };
    with_private_home(&mut command, dir).map_err(io)?;
    let mut stderr = tempfile::tempfile_in(dir).map_err(io)?;
    command.current_dir(dir).stdout(Stdio::null()).stderr(stderr.try_clone().map_err(io)?);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = spawn(&mut command).map_err(|e| failed(format!("`{program}`: {e}"), String::new()))?;
    let status = wait(&mut child, PATIENCE, |elapsed| on(InstallProgress::Working { elapsed }));
    let reason = match status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => status.to_string(),
        None => format!("no result after {} minutes", PATIENCE.as_secs() / 60),
    };
    Err(failed(reason, tail(&mut stderr)))
}

/// Returns the output of a short command, or `None` if it fails.
pub(super) fn output(mut command: Command, patience: Duration) -> Option<String> {
    let mut out = tempfile::tempfile().ok()?;
    command.stdout(out.try_clone().ok()?).stderr(Stdio::null());
    let mut child = spawn(&mut command).ok()?;
    let status = wait(&mut child, patience, |_| {})?;
    let mut text = String::new();
    out.seek(SeekFrom::Start(0)).ok()?;
    out.take(200).read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}

/// Starts a process. Retries while the program file is busy, for example during an update.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let start = Instant::now();
    loop {
        match command.spawn() {
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && start.elapsed() < BUSY_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Waits for a process. Kills it and returns `None` if the time limit passes.
fn wait(child: &mut Child, patience: Duration, mut tick: impl FnMut(Duration)) -> Option<ExitStatus> {
    let start = Instant::now();
    let mut ticked = start;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if start.elapsed() > patience {
            // Reap the process even if it has just exited or the kill failed.
            let _ignored = child.kill();
            let _ignored = child.wait();
            return None;
        }
        if ticked.elapsed() > Duration::from_millis(500) {
            ticked = Instant::now();
            tick(start.elapsed());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn tail(file: &mut fs::File) -> String {
    let length = file.metadata().map_or(0, |m| m.len());
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).is_ok() {
        // Show what could be read; the exit status is the error.
        let _ignored = file.take(TAIL_BYTES).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    // npm's own log is removed with the private home directory.
    let lines: Vec<&str> =
        text.trim().lines().filter(|line| !line.contains("A complete log of this run")).collect();
    lines.join("\n")
}
