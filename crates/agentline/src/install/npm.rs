//! Finds Node.js and npm, and runs `npm install`.

use super::{InstallError, InstallProgress};
use crate::{detect::HostEnv, fs::disk_fs::DiskFs};
use agentline_core::{
    Version,
    detect::{find_tool, tool_in},
};
use serde::Serialize;
use std::{
    fs,
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The time limit for npm, which includes its own retries.
const NPM_PATIENCE: Duration = Duration::from_secs(10 * 60);
const NODE_PATIENCE: Duration = Duration::from_secs(20);
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const TAIL_BYTES: u64 = 3000;

/// An installation of Node.js.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// The path of `node`.
    pub path: PathBuf,
    /// The output of `node --version`; `None` if it fails.
    pub version: Option<Version>,
}

/// Finds Node.js and runs `node --version`, which takes about 40 ms.
#[must_use]
pub fn find_node(host_env: &HostEnv) -> Option<Node> {
    let path = find_tool("node", &host_env.search(), &DiskFs)?;
    let version = version_of(&path, host_env);
    Some(Node { path, version })
}

fn version_of(node: &Path, host_env: &HostEnv) -> Option<Version> {
    let mut out = tempfile::tempfile().ok()?;
    let mut command = command(node, node, host_env);
    command.arg("--version").stdout(out.try_clone().ok()?).stderr(Stdio::null());
    let mut child = spawn(&mut command).ok()?;
    let status = wait(&mut child, NODE_PATIENCE, |_| {})?;
    let mut text = String::new();
    out.seek(SeekFrom::Start(0)).ok()?;
    out.take(200).read_to_string(&mut text).ok()?;
    Version::parse(&text).filter(|_| status.success())
}

/// Finds npm beside Node.js, or else in the usual places for tools.
pub(super) fn find_npm(host_env: &HostEnv, node: &Path) -> Option<PathBuf> {
    let search = host_env.search();
    let sibling = node.parent().and_then(|dir| tool_in(dir, "npm", &search, &DiskFs));
    sibling.or_else(|| find_tool("npm", &search, &DiskFs))
}

/// Runs `npm install` for one package in a directory. Other settings come from the user's npm configuration.
pub(super) fn install(
    npm: &Path,
    node: &Path,
    package: &str,
    dir: &Path,
    host_env: &HostEnv,
    with_script: bool,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<(), InstallError> {
    let failed = |reason: String, stderr_tail: String| InstallError::Npm {
        package: package.to_owned(),
        reason,
        stderr_tail,
    };
    let io = |doing, source| InstallError::Cache { doing, path: dir.to_path_buf(), source };
    // A `package.json` here prevents npm from searching for one in the parent directories.
    fs::write(dir.join("package.json"), "{\"private\":true}\n").map_err(|e| io("write to", e))?;
    let mut stderr = tempfile::tempfile_in(dir).map_err(|e| io("write to", e))?;
    let exactly =
        package.rsplit_once('@').map_or_else(|| package.to_owned(), |(name, v)| format!("{name}@={v}"));
    let mut command = command(npm, node, host_env);
    command.args(["install", "--global=false", "--workspaces=false", "--omit=dev"]);
    command.arg(if with_script { "--no-ignore-scripts" } else { "--ignore-scripts" });
    command.args(["--no-audit", "--no-fund", "--no-progress", "--no-package-lock", "--no-update-notifier"]);
    // With npm's default pauses, an unreachable registry would take more than a minute to fail.
    command.args(["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]);
    command.args(["--loglevel=error", "--prefix"]).arg(dir).arg(exactly);
    command.current_dir(dir).stdout(Stdio::null());
    command.stderr(stderr.try_clone().map_err(|e| io("write to", e))?);
    let mut child =
        command.spawn().map_err(|e| failed(format!("`{}`: {e}", npm.display()), String::new()))?;
    let status = wait(&mut child, NPM_PATIENCE, |elapsed| on(InstallProgress::Working { elapsed }));
    let reason = match status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => status.to_string(),
        None => format!("no result after {} minutes", NPM_PATIENCE.as_secs() / 60),
    };
    Err(failed(reason, tail(&mut stderr)))
}

/// Returns a hint for an npm error, based on its standard error.
pub(super) fn hint(stderr: &str, package: &str) -> String {
    const HINTS: &[(&[&str], &str)] = &[
        (
            &["ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ERR_SOCKET"],
            "cannot reach the registry: check the network and `npm config get registry`, then retry",
        ),
        (&["E401", "E403", "ENEEDAUTH"], "the registry requires sign-in: run `npm login`, then retry"),
        (
            &["ETARGET", "E404", "ENOVERSIONS"],
            "the registry does not have this version: check `npm config get registry`",
        ),
        (&["ENOSPC", "EDQUOT"], "the disk is full: free some space, or set `AGENTLINE_CACHE_DIR`"),
        (
            &["SELF_SIGNED_CERT", "UNABLE_TO_", "CERT_"],
            "the registry's certificate is not trusted: set `NODE_EXTRA_CA_CERTS`",
        ),
        (
            &["EACCES", "EPERM", "EROFS"],
            "npm has no write permission: check the path above and `npm config get cache`",
        ),
    ];
    let found = HINTS.iter().find(|(phrases, _)| phrases.iter().any(|w| stderr.contains(w)));
    found.map_or_else(
        || format!("run `npm install -g {package}` to see what fails"),
        |(_, hint)| (*hint).to_owned(),
    )
}

/// Creates a command in the caller's environment with Node.js first on `PATH`, because npm is a Node.js script.
fn command(program: &Path, node: &Path, host_env: &HostEnv) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(&host_env.env).stdin(Stdio::null());
    let key = host_env
        .env
        .keys()
        .find(|k| k.as_str() == "PATH" || (cfg!(windows) && k.eq_ignore_ascii_case("PATH")));
    let key = key.map_or("PATH", String::as_str);
    let mut folders: Vec<PathBuf> = node.parent().map(Path::to_path_buf).into_iter().collect();
    folders.extend(host_env.env.get(key).iter().flat_map(|p| std::env::split_paths(p)));
    if let Ok(path) = std::env::join_paths(folders) {
        command.env(key, path);
    }
    command
}

/// Starts a process. Retries while the program file is busy, for example during an update.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
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
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
