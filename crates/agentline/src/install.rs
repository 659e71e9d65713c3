//! Installs a fixed version of an agent from npm into agentline's cache directory, once for all processes of the user.
//!
//! No files of the user are changed. Install scripts run only for agents that need them. The directory gets its final
//! name only when it is complete. All functions block.

mod npm;

pub use npm::{Node, find_node};

use crate::{detect::HostEnv, fs::disk_fs::DiskFs};
use agentline_core::{AgentInfo, FileSystem, Program, detect::program_in};
use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long to wait for the installation of another process.
const LOCK_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The progress of an installation. `Display` writes one line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallProgress {
    /// Waiting for another process that installs the same version.
    Waiting {
        /// The lock file of the other process.
        lock: PathBuf,
    },
    /// npm was started.
    Installing {
        /// The package and version.
        package: String,
        /// The final directory.
        dir: PathBuf,
    },
    /// npm is still running.
    Working {
        /// The time since the start.
        elapsed: Duration,
    },
    /// The installation is complete.
    Installed {
        /// The package and version.
        package: String,
        /// How long the installation took.
        took: Duration,
    },
}

impl fmt::Display for InstallProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { lock } => write!(f, "waiting for another installation ({})", lock.display()),
            Self::Installing { package, dir } => {
                write!(f, "installing {package} with npm into {}", dir.display())
            }
            Self::Working { elapsed } => write!(f, "installing, {} s", elapsed.as_secs()),
            Self::Installed { package, took } => {
                write!(f, "installed {package} in {:.1} s", took.as_secs_f64())
            }
        }
    }
}

/// An error of an installation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The version is not a complete npm version.
    #[error("`{0}` is not a complete version")]
    Version(String),
    /// Node.js was not found.
    #[error("Node.js was not found on PATH or in the usual directories")]
    NoNode {
        /// The minimum major version.
        needed: u32,
    },
    /// Node.js is too old for the agent.
    #[error("Node.js {found} at `{}` is too old: {needed} or newer is required", path.display())]
    NodeTooOld {
        /// The path of Node.js.
        path: PathBuf,
        /// The version that was found.
        found: String,
        /// The minimum major version.
        needed: u32,
    },
    /// Node.js was found, but npm was not.
    #[error("npm was not found next to `{}` or on PATH", node.display())]
    NoNpm {
        /// The path of Node.js.
        node: PathBuf,
    },
    /// The cache directory cannot be used.
    #[error("cannot {doing} `{}`", path.display())]
    Cache {
        /// The operation, as a verb.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process has held the lock for too long.
    #[error("another installation has held the lock `{}` for more than {} minutes", lock.display(), LOCK_PATIENCE.as_secs() / 60)]
    Locked {
        /// The lock file.
        lock: PathBuf,
    },
    /// npm failed.
    #[error("npm failed to install {package}: {reason}{}", Tail(stderr_tail))]
    Npm {
        /// The package and version.
        package: String,
        /// How npm ended.
        reason: String,
        /// The end of npm's standard error.
        stderr_tail: String,
    },
    /// npm succeeded, but the program is missing or has another version.
    #[error("npm succeeded, but {package} is not in `{}`: {found}", dir.display())]
    Incomplete {
        /// The package and version.
        package: String,
        /// The final directory.
        dir: PathBuf,
        /// What was found instead.
        found: String,
    },
}

impl InstallError {
    /// Returns what the user can do about the error.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Version(_) => "use a complete version, such as `0.61.0`".into(),
            Self::NoNode { needed } | Self::NodeTooOld { needed, .. } => {
                format!("install Node.js {needed} or newer (https://nodejs.org) and put `node` on PATH")
            }
            Self::NoNpm { .. } => "install npm; it comes with Node.js from https://nodejs.org".into(),
            Self::Cache { .. } => {
                "set `AGENTLINE_CACHE_DIR` to a writable directory with 200 MB of free space".into()
            }
            Self::Locked { lock } => format!("if no installation is running, delete `{}`", lock.display()),
            Self::Npm { package, stderr_tail, .. } => npm::hint(stderr_tail, package),
            Self::Incomplete { package, .. } => format!("run `npm install -g {package}` to see what fails"),
        }
    }
}

struct Tail<'a>(&'a str);

impl fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Returns the program of an agent at a fixed version, and installs it if necessary. For the program of one surface,
/// pass [`AgentInfo::for_surface`].
///
/// # Errors
/// Fails if Node.js or npm is missing, the cache directory is not writable, or npm fails.
pub fn ensure(
    info: AgentInfo<'_>,
    version: &str,
    host_env: &HostEnv,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<Program, InstallError> {
    let job = Job::new(info, version, host_env)?;
    if let Ok(program) = job.installed() {
        return Ok(program);
    }
    crate::fs::private_dir::create_dir_all(&job.agents)
        .map_err(|e| job.cache_error("create", &job.agents, e))?;
    let lock = job.lock(on)?;
    // The previous holder of the lock may have installed it.
    if let Ok(program) = job.installed() {
        return Ok(program);
    }
    let program = job.install(lock.is_some(), on)?;
    drop(lock);
    Ok(program)
}

/// The installation of one version of one agent.
struct Job<'a> {
    info: AgentInfo<'a>,
    host_env: &'a HostEnv,
    version: &'a str,
    name: String,
    agents: PathBuf,
}

impl<'a> Job<'a> {
    fn new(info: AgentInfo<'a>, version: &'a str, host_env: &'a HostEnv) -> Result<Self, InstallError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        let whole = version.split(['-', '+']).next().is_some_and(|v| v.split('.').count() == 3);
        if !whole || !version.starts_with(|c: char| c.is_ascii_digit()) || !version.chars().all(plain) {
            return Err(InstallError::Version(version.to_owned()));
        }
        let name = format!("{}-{version}", info.id);
        Ok(Self { info, host_env, version, name, agents: host_env.cache.join("agents") })
    }

    fn dir(&self) -> PathBuf {
        self.agents.join(&self.name)
    }

    fn package_spec(&self) -> String {
        format!("{}@{}", self.info.package, self.version)
    }

    /// Returns the program if the directory contains the expected version, or else a description of what was found.
    fn installed(&self) -> Result<Program, String> {
        self.complete(&self.dir())
    }

    fn complete(&self, dir: &Path) -> Result<Program, String> {
        let modules = dir.join("node_modules");
        let package = modules.join(self.info.package).join("package.json");
        let json = DiskFs.read(&package).ok_or_else(|| format!("no `{}`", package.display()))?;
        let json: serde_json::Value = serde_json::from_slice(&json).map_err(|e| e.to_string())?;
        let found = json.get("version").and_then(|v| v.as_str()).unwrap_or("no version");
        if found != self.version {
            return Err(format!("version {found}"));
        }
        let bin = modules.join(".bin");
        program_in(&self.info, &self.host_env.search(), &bin, &DiskFs)
            .ok_or_else(|| format!("no program `{}` in `{}`", self.info.program, bin.display()))
    }

    /// Locks this version until the file is dropped. Returns `None` if the file system does not support locks.
    fn lock(&self, on: &mut dyn FnMut(InstallProgress)) -> Result<Option<fs::File>, InstallError> {
        let path = self.agents.join(format!(".{}.lock", self.name));
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| self.cache_error("write", &path, e))?;
        let start = Instant::now();
        let mut reported = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(fs::TryLockError::Error(_)) => return Ok(None),
                Err(fs::TryLockError::WouldBlock) if start.elapsed() > LOCK_PATIENCE => {
                    return Err(InstallError::Locked { lock: path });
                }
                Err(fs::TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut reported, true) {
                        on(InstallProgress::Waiting { lock: path.clone() });
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn install(&self, alone: bool, on: &mut dyn FnMut(InstallProgress)) -> Result<Program, InstallError> {
        let node = find_node(self.host_env).ok_or(InstallError::NoNode { needed: self.info.min_node })?;
        if node.version.is_some_and(|v| v.0 < self.info.min_node) {
            let found = node.version.map(|v| v.to_string()).unwrap_or_default();
            return Err(InstallError::NodeTooOld { path: node.path, found, needed: self.info.min_node });
        }
        let npm = npm::find_npm(self.host_env, &node.path)
            .ok_or_else(|| InstallError::NoNpm { node: node.path.clone() })?;
        let prefix = format!(".{}-", self.name);
        if alone {
            self.sweep(&prefix);
        }
        let staging = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.agents);
        let staging = staging.map_err(|e| self.cache_error("create a directory in", &self.agents, e))?;

        let start = Instant::now();
        on(InstallProgress::Installing { package: self.package_spec(), dir: self.dir() });
        let (package, with_script) = (self.package_spec(), self.info.install_script);
        npm::install(&npm, &node.path, &package, staging.path(), self.host_env, with_script, on)?;
        let incomplete =
            |found| InstallError::Incomplete { package: self.package_spec(), dir: self.dir(), found };
        self.complete(staging.path()).map_err(incomplete)?;

        let dir = self.dir();
        if dir.exists() {
            // The directory does not contain the expected version. Only agentline writes here, so it can be removed.
            fs::remove_dir_all(&dir).map_err(|e| self.cache_error("clear", &dir, e))?;
        }
        if let Err(e) = fs::rename(staging.path(), &dir) {
            // Without locks another process may have finished first, which is fine.
            return self.installed().map_err(|_| self.cache_error("move the installation to", &dir, e));
        }
        // The directory was renamed, so there is nothing to remove.
        let _moved = staging.keep();
        on(InstallProgress::Installed { package: self.package_spec(), took: start.elapsed() });
        self.installed().map_err(incomplete)
    }

    /// Removes the directories of installations that were killed. Requires the lock.
    fn sweep(&self, prefix: &str) {
        for name in DiskFs.list(&self.agents).unwrap_or_default() {
            if name.starts_with(prefix) {
                // A directory that cannot be removed only takes up space.
                let _ignored = fs::remove_dir_all(self.agents.join(name));
            }
        }
    }

    fn cache_error(&self, doing: &'static str, path: &Path, source: io::Error) -> InstallError {
        // Missing parents are created, so this error means that a file with this name exists.
        let source = match source.kind() {
            ErrorKind::AlreadyExists => {
                io::Error::new(ErrorKind::NotADirectory, "a file with this name exists")
            }
            _ => source,
        };
        InstallError::Cache { doing, path: path.to_path_buf(), source }
    }
}

#[cfg(test)]
mod tests;
