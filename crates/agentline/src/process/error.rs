//! Why an agent could not be started.

use std::io;
use std::path::PathBuf;

/// Why an agent could not be started. Its text fits after "could not start the agent: ".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no such program.
    #[error("there is no program `{}`", program.display())]
    NotFound {
        /// The program as it was asked for.
        program: PathBuf,
    },
    /// The program is a script, and what its first line names is missing.
    #[error("`{}` is there, but the interpreter that its first line names is not", program.display())]
    NoInterpreter {
        /// The script.
        program: PathBuf,
    },
    /// The file may not be executed, or is no program.
    #[error("`{}` cannot be executed: {source}", program.display())]
    NotExecutable {
        /// The program as it was asked for.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The working directory is missing or closed to us.
    #[error("the working directory `{}` cannot be used", cwd.display())]
    BadCwd {
        /// The directory.
        cwd: PathBuf,
    },
    /// The arguments and the environment together are larger than the system allows.
    #[error("the arguments and the environment are larger than the system allows")]
    TooBig,
    /// An argument, a variable or a path contains a NUL byte.
    #[error("an argument, a variable or a path contains a NUL byte")]
    Nul,
    /// The mark is empty or has other characters than letters, digits, `-`, `_` and `.`.
    #[error("the mark `{mark}` must be of letters, digits, `-`, `_` and `.`")]
    BadMark {
        /// The mark.
        mark: String,
    },
    /// The supervisor could not be started or did not answer as one.
    #[error("the supervisor `{}` did not work: {source}", program.display())]
    Supervisor {
        /// The program that was to be the supervisor.
        program: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The pid namespace that `isolation = "namespace"` asks for cannot be made here.
    #[error(
        "`isolation = \"namespace\"`: this system refuses a pid namespace: {source}; use `auto` or `none`"
    )]
    NoNamespace {
        /// What the system said.
        source: io::Error,
    },
    /// There is no tokio runtime here.
    #[error("an agent can only be started inside a tokio runtime")]
    NoRuntime,
    /// Anything else that the system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(unix)]
impl SpawnError {
    /// Finds out what the system's error was about: it says "not found" of the program, its interpreter and the
    /// working directory alike.
    pub(super) fn explain(plan: &super::Spawn, error: io::Error) -> Self {
        let program = plan.program.clone();
        match error.raw_os_error() {
            _ if !plan.cwd.join(".").is_dir() => Self::BadCwd { cwd: plan.cwd.clone() },
            Some(libc::E2BIG) => Self::TooBig,
            Some(libc::ENOENT | libc::ENOTDIR) if plan.finds_program() => Self::NoInterpreter { program },
            // With a closed folder on PATH, "not found" reads "not allowed".
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
    /// Finds out what the system's error was about.
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
    /// Whether the program is a file, looked for as the system looks for it.
    fn finds_program(&self) -> bool {
        if self.program.components().count() > 1 || self.program.is_absolute() {
            return self.cwd.join(&self.program).is_file();
        }
        let path = self.env.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default();
        std::env::split_paths(&path).any(|folder| self.cwd.join(folder).join(&self.program).is_file())
    }
}
