//! The error type for an agent that could not be started.

use std::io;
use std::path::PathBuf;

/// An error that prevented an agent from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program does not exist.
    #[error("program `{}` does not exist", program.display())]
    NotFound {
        /// The program as requested.
        program: PathBuf,
    },
    /// The program is a script whose interpreter is missing.
    #[error("`{}` exists, but the interpreter in its first line does not", program.display())]
    NoInterpreter {
        /// The script.
        program: PathBuf,
    },
    /// The file is not executable, or is not a program.
    #[error("cannot execute `{}`", program.display())]
    NotExecutable {
        /// The program as requested.
        program: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The working directory does not exist or is not accessible.
    #[error("cannot use the working directory `{}`", cwd.display())]
    BadCwd {
        /// The directory.
        cwd: PathBuf,
    },
    /// The arguments and the environment together exceed the system limit.
    #[error("the arguments and the environment exceed the system limit")]
    TooBig,
    /// An argument, a variable or a path contains a NUL byte.
    #[error("an argument, a variable or a path contains a NUL byte")]
    Nul,
    /// The mark is empty or contains characters other than letters, digits, `-`, `_` and `.`.
    #[error("the mark `{mark}` may contain only letters, digits, `-`, `_` and `.`")]
    BadMark {
        /// The mark.
        mark: String,
    },
    /// The supervisor could not be started or did not reply as expected.
    #[error("the supervisor `{}` failed", program.display())]
    Supervisor {
        /// The program that was started as the supervisor.
        program: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The pid namespace required by `isolation = "namespace"` cannot be created on this system.
    #[error("`isolation = \"namespace\"`: this system does not allow a pid namespace")]
    NoNamespace {
        /// The system error.
        source: io::Error,
    },
    /// The caller is not inside a tokio runtime.
    #[error("an agent must be started inside a tokio runtime")]
    NoRuntime,
    /// Any other system error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(unix)]
impl SpawnError {
    /// Determines the cause of a system error. The system reports "not found" for the program, its interpreter and the
    /// working directory alike.
    pub(super) fn explain(plan: &super::Spawn, error: io::Error) -> Self {
        let program = plan.program.clone();
        match error.raw_os_error() {
            _ if !plan.cwd.join(".").is_dir() => Self::BadCwd { cwd: plan.cwd.clone() },
            Some(libc::E2BIG) => Self::TooBig,
            Some(libc::ENOENT | libc::ENOTDIR) if plan.finds_program() => Self::NoInterpreter { program },
            // With an inaccessible directory on `PATH`, "not found" is reported as "permission denied".
            Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES) if !plan.finds_program() => {
                Self::NotFound { program }
            }
            Some(libc::EACCES | libc::ENOEXEC) => Self::NotExecutable { program, source: error },
            _ => Self::Io(error),
        }
    }
}

#[cfg(windows)]
impl SpawnError {
    /// Determines the cause of a system error.
    pub(super) fn explain(plan: &super::Spawn, error: io::Error) -> Self {
        let program = plan.program.clone();
        match error.kind() {
            _ if !plan.cwd.is_dir() => Self::BadCwd { cwd: plan.cwd.clone() },
            io::ErrorKind::NotFound => Self::NotFound { program },
            io::ErrorKind::PermissionDenied => Self::NotExecutable { program, source: error },
            io::ErrorKind::InvalidInput => Self::Nul,
            _ => Self::Io(error),
        }
    }
}

#[cfg(unix)]
impl super::Spawn {
    /// Returns whether the program is a file, resolved as the system does.
    fn finds_program(&self) -> bool {
        if self.program.components().count() > 1 || self.program.is_absolute() {
            return self.cwd.join(&self.program).is_file();
        }
        let path = self.env.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default();
        std::env::split_paths(&path).any(|folder| self.cwd.join(folder).join(&self.program).is_file())
    }
}
