//! Installs a fixed version of an agent from npm or PyPI into agentline's cache directory, once for all processes of
//! the user.
//!
//! A pinned version is installed by its lock file: every downloaded package must have its pinned hash. npm and pip get a
//! private home directory, so no files of the user are changed. Install scripts run only for packages that need them.
//! The directory gets its final name only when it is complete. All functions block.

mod error;
mod list;
mod npm;
mod pip;
mod tool;

pub use error::{InstallError, InstallProgress};
pub use list::{AgentVersion, program_of_version, programs, versions};
pub use npm::{Node, find_node};

use crate::{detect::HostEnv, fs::disk_fs::DiskFs};
use agentline_core::{
    AgentInfo, FileSystem, PYPI, Program, Version,
    agents::{Pin, Pins},
    detect::program_in,
};
use error::LOCK_PATIENCE;
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Returns the program of an agent at a fixed version, and installs it if necessary. For the program of one surface,
/// pass [`AgentInfo::for_surface`].
///
/// # Errors
/// Fails if Node.js, npm or Python is missing, the cache directory is not writable, or the installation fails.
pub fn ensure(
    info: AgentInfo<'_>,
    version: &str,
    host_env: &HostEnv,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<Program, InstallError> {
    ensure_pinned(info, version, host_env, Pins::shipped(), on)
}

fn ensure_pinned(
    info: AgentInfo<'_>,
    version: &str,
    host_env: &HostEnv,
    pins: &Pins,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<Program, InstallError> {
    let job = Job::new(info, version, host_env, pins)?;
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

/// Returns the installed program of an agent at a version, if there is one.
#[must_use]
pub fn find_installed(info: AgentInfo<'_>, version: &str, host_env: &HostEnv) -> Option<Program> {
    Job::new(info, version, host_env, Pins::shipped()).ok()?.installed().ok()
}

/// Returns whether a text is a complete version, which is also safe as part of a path.
pub(crate) fn is_version(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
    let whole = text.split(['-', '+']).next().is_some_and(|numbers| numbers.split('.').count() == 3);
    whole && text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(plain)
}

/// The installation of one version of one agent.
struct Job<'a> {
    info: AgentInfo<'a>,
    host_env: &'a HostEnv,
    version: &'a str,
    pins: &'a Pins,
    name: String,
    agents: PathBuf,
}

impl<'a> Job<'a> {
    fn new(
        info: AgentInfo<'a>,
        version: &'a str,
        host_env: &'a HostEnv,
        pins: &'a Pins,
    ) -> Result<Self, InstallError> {
        if !is_version(version) {
            return Err(InstallError::Version(version.to_owned()));
        }
        if info.package.is_empty() {
            return Err(InstallError::NoPackage(info.title.to_owned()));
        }
        let name = format!("{}-{version}", info.id);
        Ok(Self { info, host_env, version, pins, name, agents: host_env.cache.join("agents") })
    }

    fn dir(&self) -> PathBuf {
        self.agents.join(&self.name)
    }

    fn pin(&self) -> Option<&'a Pin> {
        self.pins.find(self.info.package, self.version)
    }

    fn package_spec(&self) -> String {
        format!("{}@{}", self.info.package.strip_prefix(PYPI).unwrap_or(self.info.package), self.version)
    }

    /// Returns the program if the directory contains the expected version, or else a description of what was found.
    fn installed(&self) -> Result<Program, String> {
        self.complete(&self.dir())
    }

    fn complete(&self, dir: &Path) -> Result<Program, String> {
        let bin = match self.info.package.strip_prefix(PYPI) {
            Some(name) => pip::programs(dir, name, self.version)?,
            None => npm::programs(dir, self.info.package, self.version)?,
        };
        let program = program_in(&self.info, &self.host_env.search(), &bin, &DiskFs)
            .ok_or_else(|| format!("no program `{}` in `{}`", self.info.program, bin.display()))?;
        Ok(Program { version: Version::parse(self.version), ..program })
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
        let prefix = format!(".{}-", self.name);
        if alone {
            self.sweep(&prefix);
        }
        let staging = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.agents);
        let staging = staging.map_err(|e| self.cache_error("create a directory in", &self.agents, e))?;
        let start = Instant::now();
        if self.info.package.starts_with(PYPI) {
            pip::install(self, staging.path(), on)?;
        } else {
            npm::install(self, staging.path(), on)?;
        }
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
