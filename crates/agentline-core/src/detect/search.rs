//! The facts about a machine that a search for programs needs.

use std::{collections::BTreeMap, path::Path};

/// The operating system to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux and other Unix systems.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl Os {
    /// The operating system that this program was built for.
    pub const CURRENT: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::MacOs
    } else {
        Self::Linux
    };
}

/// The facts about the machine that a search needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Search<'a> {
    /// The operating system.
    pub os: Os,
    /// The caller's environment.
    pub env: &'a BTreeMap<String, String>,
    /// The user's home directory.
    pub home: &'a Path,
    /// The directory that relative paths start from.
    pub cwd: &'a Path,
    /// The directory of the configuration file, from which `node_modules/.bin` is searched upward.
    pub project: &'a Path,
    /// agentline's cache directory.
    pub cache: Option<&'a Path>,
    /// The explicitly configured program, which takes precedence over the agent's path variable.
    pub configured: Option<&'a Path>,
    /// The version that a run names. Only the installation of that version in the cache directory is used.
    pub version: Option<&'a str>,
}

impl<'a> Search<'a> {
    /// Creates a search on the current operating system, with the working directory as the project.
    #[must_use]
    pub fn new(env: &'a BTreeMap<String, String>, home: &'a Path, cwd: &'a Path) -> Self {
        Self { os: Os::CURRENT, env, home, cwd, project: cwd, cache: None, configured: None, version: None }
    }

    /// Returns a non-empty variable. On Windows, names are case-insensitive.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let same = |k: &str| k == name || (self.os == Os::Windows && k.eq_ignore_ascii_case(name));
        let exact = self.env.get(name);
        let value = exact.or_else(|| self.env.iter().find(|(k, _)| same(k)).map(|(_, v)| v))?;
        Some(value.as_str()).filter(|v| !v.is_empty())
    }
}
