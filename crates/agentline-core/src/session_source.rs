//! The stored sessions of an agent: where the files are, how they are named, and how they are read.

use crate::{
    FileSystem, Millis, NewSession, Problem, ProjectRef, SavedSession, SessionDatabase, SessionFile,
    SessionFormat, SessionReader, SessionRoot, TransplantContext,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The stored sessions of an agent. Every method has a default for an agent that stores nothing that can be read.
pub trait SessionSource: Send + Sync {
    /// Returns the directories that hold the saved sessions of a user with this home and environment.
    fn roots(&self, env: &BTreeMap<String, String>, home: &Path, fs: &dyn FileSystem) -> Vec<SessionRoot> {
        let _ = (env, home, fs);
        Vec::new()
    }

    /// Describes a session file by its `path` below a root. Returns `None` if it is not a session.
    fn file(&self, path: &Path) -> Option<SessionFile> {
        let _ = path;
        None
    }

    /// Returns the project that a file below a root belongs to, if its location shows it.
    fn project(&self, root: &Path, path: &Path, fs: &dyn FileSystem) -> Option<ProjectRef> {
        let _ = (root, path, fs);
        None
    }

    /// Detects the storage format from the beginning of a file. Returns `None` if it is not a session of this agent.
    fn format(&self, head: &[u8]) -> Option<SessionFormat> {
        let _ = head;
        None
    }

    /// Returns the titles of sessions by session id, if the agent stores them in a separate file.
    fn titles(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> BTreeMap<String, String> {
        let _ = (env, home, fs);
        BTreeMap::new()
    }

    /// Returns whether a later file of a session continues an earlier one. If so, one reader reads all of them in the
    /// order of their names; otherwise each file is read separately.
    fn files_continue(&self) -> bool {
        false
    }

    /// Creates a reader for saved sessions of this format.
    fn reader(&self, format: SessionFormat) -> Option<Box<dyn SessionReader>> {
        let _ = format;
        None
    }

    /// Returns how the agent stores sessions in a database, if it does.
    fn database(&self) -> Option<&'static dyn SessionDatabase> {
        None
    }

    /// Returns the function that writes a session of another agent in this agent's own format, if agentline can write
    /// sessions of this agent.
    fn writer(&self) -> Option<SessionWriter> {
        None
    }

    /// Returns the service that the agent's models belong to, in the names of models.dev, if there is only one.
    fn provider(&self) -> Option<&'static str> {
        None
    }

    /// Returns the directory in which the agent writes the session files of this workspace, if it is known.
    fn folder(&self, agent_home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<PathBuf> {
        let _ = (agent_home, cwd, fs);
        None
    }

    /// Returns the pattern of a session's files in that directory, or in the directory below it that holds them.
    fn file_pattern(&self, folder: PathBuf, session: &str, fs: &dyn FileSystem) -> SessionFilePattern {
        let _ = fs;
        SessionFilePattern::new(folder, session.to_owned())
    }

    /// Returns where the files of a session are, if they exist.
    fn locate(
        &self,
        agent_home: &Path,
        cwd: &Path,
        session: &str,
        fs: &dyn FileSystem,
    ) -> Option<SessionFilePattern> {
        self.folder(agent_home, cwd, fs).map(|folder| self.file_pattern(folder, session, fs))
    }

    /// Returns the name of the session file that the agent creates at this time, in milliseconds since 1970, if the
    /// name depends only on the time.
    fn file_name_at(&self, pattern: &SessionFilePattern, at: Millis) -> Option<String> {
        let _ = (pattern, at);
        None
    }

    /// Returns files that a finished run left behind and that would harm the user's data.
    fn leftovers(
        &self,
        pattern: &SessionFilePattern,
        existed_before: &[PathBuf],
        fs: &dyn FileSystem,
    ) -> Vec<PathBuf> {
        let _ = (pattern, existed_before, fs);
        Vec::new()
    }

    /// Returns the files of a session that the agent created at its start without a request, if they contain no
    /// messages.
    fn abandoned(&self, pattern: &SessionFilePattern, fs: &dyn FileSystem) -> Vec<PathBuf> {
        let _ = (pattern, fs);
        Vec::new()
    }

    /// Returns the empty session files in a directory that a killed run left behind and that would harm the
    /// user's data. Each is paired with the other file that holds the same session.
    fn empty_duplicates(&self, folder: &Path, fs: &dyn FileSystem) -> Vec<(PathBuf, PathBuf)> {
        let _ = (folder, fs);
        Vec::new()
    }
}

/// Writes a session in an agent's own format.
pub type SessionWriter = fn(&SavedSession, &TransplantContext<'_>) -> Result<NewSession, Problem>;

/// The sessions of an agent that stores nothing that can be read.
pub(crate) struct NoSessions;

impl SessionSource for NoSessions {}

/// The location and file name pattern of a session's files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionFilePattern {
    /// The directory.
    pub folder: PathBuf,
    /// The suffix of every file name of the session.
    pub suffix: String,
}

impl SessionFilePattern {
    /// Creates a pattern for the files in this directory with this suffix.
    #[must_use]
    pub fn new(folder: PathBuf, suffix: String) -> Self {
        Self { folder, suffix }
    }
}
