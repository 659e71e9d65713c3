//! Installs a fixed version of an agent from npm into our own cache folder, once for all processes of the user.
//!
//! Nothing of the user's is touched: the folder is ours, install scripts do not run, and the folder appears under its
//! name only when it is complete. All calls wait; call them from a thread that may.

mod npm;

pub use npm::{Node, find_node};

use crate::{detect::Here, look::DiskLook};
use agentline_core::{Agent, Card, Look, Program, detect::program_in};
use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long another process may keep us waiting for its installation.
const LOCK_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// What an installation is doing; `Display` gives a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Another process installs the same; we wait for it.
    Waiting {
        /// The lock that it holds.
        lock: PathBuf,
    },
    /// npm was started.
    Installing {
        /// Package and version.
        what: String,
        /// Where it will be.
        folder: PathBuf,
    },
    /// npm is still at it.
    Working {
        /// Since the start.
        elapsed: Duration,
    },
    /// It is there.
    Installed {
        /// Package and version.
        what: String,
        /// How long it took.
        took: Duration,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { lock } => write!(f, "waiting for another installation ({})", lock.display()),
            Self::Installing { what, folder } => {
                write!(f, "installing {what} with npm into {}", folder.display())
            }
            Self::Working { elapsed } => write!(f, "installing, {} s", elapsed.as_secs()),
            Self::Installed { what, took } => write!(f, "installed {what} in {:.1} s", took.as_secs_f64()),
        }
    }
}

/// Why an agent could not be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The version is not one that npm could have.
    #[error("`{0}` is not a version such as 1.2.3")]
    Version(String),
    /// There is no Node.js.
    #[error("Node.js was not found on PATH or in the usual places")]
    NoNode {
        /// The oldest version that would do.
        needed: u32,
    },
    /// Node.js is too old for the agent.
    #[error("Node.js {found} at `{}` is too old: {needed} or newer is needed", path.display())]
    NodeTooOld {
        /// Where it is.
        path: PathBuf,
        /// What it says of itself.
        found: String,
        /// The oldest version that would do.
        needed: u32,
    },
    /// Node.js is here but npm is not.
    #[error("npm was not found beside `{}` or on PATH", node.display())]
    NoNpm {
        /// Where Node.js is.
        node: PathBuf,
    },
    /// The cache folder cannot be used.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Cache {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the lock for too long.
    #[error("another installation holds `{}` for more than {} minutes", lock.display(), LOCK_PATIENCE.as_secs() / 60)]
    Locked {
        /// The lock.
        lock: PathBuf,
    },
    /// npm failed.
    #[error("npm could not install {what}: {why}{}", Tail(stderr_tail))]
    Npm {
        /// Package and version.
        what: String,
        /// How it ended.
        why: String,
        /// The end of what it said.
        stderr_tail: String,
    },
    /// npm said that all is well, yet the program is not there as asked for.
    #[error("npm ended well, but {what} is not in `{}`: {found}", folder.display())]
    Incomplete {
        /// Package and version.
        what: String,
        /// Where it was to be.
        folder: PathBuf,
        /// What is there.
        found: String,
    },
}

impl InstallError {
    /// What to type next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Version(_) => "give a whole version, such as `0.61.0`".into(),
            Self::NoNode { needed } | Self::NodeTooOld { needed, .. } => {
                format!("install Node.js {needed} or newer (https://nodejs.org) and put `node` on PATH")
            }
            Self::NoNpm { .. } => "install npm; it comes with Node.js from https://nodejs.org".into(),
            Self::Cache { .. } => {
                "set `AGENTLINE_CACHE_DIR` to a folder that you may write, with 200 MB free".into()
            }
            Self::Locked { lock } => format!("if no installation is running, delete `{}`", lock.display()),
            Self::Npm { what, stderr_tail, .. } => npm::hint(stderr_tail, what),
            Self::Incomplete { what, .. } => format!("see what npm does: `npm install -g {what}`"),
        }
    }
}

struct Tail<'a>(&'a str);

impl fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// The program of an agent at a version in our cache folder; installs it when it is not there yet.
///
/// # Errors
/// Node.js or npm is missing, the cache folder cannot be written, or npm failed.
pub fn ensure(
    agent: &dyn Agent,
    version: &str,
    here: &Here,
    on: &mut dyn FnMut(Progress),
) -> Result<Program, InstallError> {
    let job = Job::new(agent.card(), version, here)?;
    if let Ok(program) = job.installed() {
        return Ok(program);
    }
    crate::private_dir::create_dir_all(&job.agents).map_err(|e| job.cache_error("make", &job.agents, e))?;
    let lock = job.lock(on)?;
    // Who held the lock before us may have done the work.
    if let Ok(program) = job.installed() {
        return Ok(program);
    }
    let program = job.install(lock.is_some(), on)?;
    drop(lock);
    Ok(program)
}

/// One version of one agent and where it belongs.
struct Job<'a> {
    card: &'static Card,
    here: &'a Here,
    version: &'a str,
    name: String,
    agents: PathBuf,
}

impl<'a> Job<'a> {
    fn new(card: &'static Card, version: &'a str, here: &'a Here) -> Result<Self, InstallError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        let whole = version.split(['-', '+']).next().is_some_and(|v| v.split('.').count() == 3);
        if !whole || !version.starts_with(|c: char| c.is_ascii_digit()) || !version.chars().all(plain) {
            return Err(InstallError::Version(version.to_owned()));
        }
        let name = format!("{}-{version}", card.id);
        Ok(Self { card, here, version, name, agents: here.cache.join("agents") })
    }

    fn folder(&self) -> PathBuf {
        self.agents.join(&self.name)
    }

    fn what(&self) -> String {
        format!("{}@{}", self.card.package, self.version)
    }

    /// The program, when the folder holds the version that it is named after; else what is there instead.
    fn installed(&self) -> Result<Program, String> {
        self.complete(&self.folder())
    }

    fn complete(&self, folder: &Path) -> Result<Program, String> {
        let modules = folder.join("node_modules");
        let package = modules.join(self.card.package).join("package.json");
        let json = DiskLook.read(&package).ok_or_else(|| format!("no `{}`", package.display()))?;
        let json: serde_json::Value = serde_json::from_slice(&json).map_err(|e| e.to_string())?;
        let found = json.get("version").and_then(|v| v.as_str()).unwrap_or("no version");
        if found != self.version {
            return Err(format!("version {found}"));
        }
        let bin = modules.join(".bin");
        program_in(self.card, &self.here.search(), &bin, &DiskLook)
            .ok_or_else(|| format!("no program `{}` in `{}`", self.card.program, bin.display()))
    }

    /// Holds the lock of this version for as long as the file lives. `None`: this file system knows no locks.
    fn lock(&self, on: &mut dyn FnMut(Progress)) -> Result<Option<fs::File>, InstallError> {
        let path = self.agents.join(format!(".{}.lock", self.name));
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| self.cache_error("write", &path, e))?;
        let start = Instant::now();
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(fs::TryLockError::Error(_)) => return Ok(None),
                Err(fs::TryLockError::WouldBlock) if start.elapsed() > LOCK_PATIENCE => {
                    return Err(InstallError::Locked { lock: path });
                }
                Err(fs::TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        on(Progress::Waiting { lock: path.clone() });
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn install(&self, alone: bool, on: &mut dyn FnMut(Progress)) -> Result<Program, InstallError> {
        let node = find_node(self.here).ok_or(InstallError::NoNode { needed: self.card.min_node })?;
        if node.version.is_some_and(|v| v.0 < self.card.min_node) {
            let found = node.version.map(|v| v.to_string()).unwrap_or_default();
            return Err(InstallError::NodeTooOld { path: node.path, found, needed: self.card.min_node });
        }
        let npm = npm::find_npm(self.here, &node.path)
            .ok_or_else(|| InstallError::NoNpm { node: node.path.clone() })?;
        let prefix = format!(".{}-", self.name);
        if alone {
            self.sweep(&prefix);
        }
        let staging = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.agents);
        let staging = staging.map_err(|e| self.cache_error("make a folder in", &self.agents, e))?;

        let start = Instant::now();
        on(Progress::Installing { what: self.what(), folder: self.folder() });
        let (what, with_script) = (self.what(), self.card.install_script);
        npm::install(&npm, &node.path, &what, staging.path(), self.here, with_script, on)?;
        let incomplete = |found| InstallError::Incomplete { what: self.what(), folder: self.folder(), found };
        self.complete(staging.path()).map_err(incomplete)?;

        let folder = self.folder();
        if folder.exists() {
            // Under this name stood something that is not this version; we are the only ones who put things here.
            fs::remove_dir_all(&folder).map_err(|e| self.cache_error("clear", &folder, e))?;
        }
        if let Err(e) = fs::rename(staging.path(), &folder) {
            // Without locks another process may have been first; what counts is that it is there.
            return self.installed().map_err(|_| self.cache_error("move the installation to", &folder, e));
        }
        // It has moved away: nothing is left to clear.
        let _moved = staging.keep();
        on(Progress::Installed { what: self.what(), took: start.elapsed() });
        self.installed().map_err(incomplete)
    }

    /// Clears what installations that were killed left behind. Only who holds the lock may.
    fn sweep(&self, prefix: &str) {
        for name in DiskLook.list(&self.agents).unwrap_or_default() {
            if name.starts_with(prefix) {
                // What cannot be cleared costs space and nothing else.
                let _ignored = fs::remove_dir_all(self.agents.join(name));
            }
        }
    }

    fn cache_error(&self, doing: &'static str, path: &Path, source: io::Error) -> InstallError {
        // A missing parent is made by us, so this can only be a file in the way.
        let source = match source.kind() {
            ErrorKind::AlreadyExists => io::Error::new(ErrorKind::NotADirectory, "a file is in the way"),
            _ => source,
        };
        InstallError::Cache { doing, path: path.to_path_buf(), source }
    }
}

#[cfg(test)]
mod tests;
