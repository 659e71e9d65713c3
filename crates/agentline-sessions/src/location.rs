//! The location of a session, and a session that was located but not read yet.

use agentline_core::{Agent, SessionFormat, SessionInfo};
use serde::Serialize;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The location of a session, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum SessionLocation {
    /// A file.
    File(PathBuf),
    /// Rows of a database.
    Row {
        /// The file of the database.
        database: PathBuf,
        /// The id of the session.
        session: String,
    },
}

impl SessionLocation {
    /// Returns the path of the file or database.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Row { database: path, .. } => path,
        }
    }

    /// Returns a fallback id: the file stem, or the session id of the row.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Row { session, .. } => session.clone(),
        }
    }
}

/// A location and the form in which a session is stored there.
#[derive(Clone, Debug)]
pub(crate) struct SessionPart {
    pub(crate) location: SessionLocation,
    /// `None` if the form must be detected from the beginning of the file.
    pub(crate) form: Option<SessionFormat>,
}

/// A session that was found but not read yet.
#[derive(Clone)]
#[non_exhaustive]
pub struct FoundSession {
    /// The session's metadata, as far as it is known without reading the session.
    pub info: SessionInfo,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) parts: Vec<SessionPart>,
    /// Whether the caller asked for a session, with all its files, rather than for one file.
    pub(crate) is_whole: bool,
}

impl FoundSession {
    /// Returns the agent that saved the session.
    #[must_use]
    pub fn agent(&self) -> &dyn Agent {
        &*self.agent
    }

    /// Returns the locations of the session, oldest first.
    pub fn locations(&self) -> impl Iterator<Item = &SessionLocation> {
        self.parts.iter().map(|part| &part.location)
    }

    /// Fills in metadata that the files do not contain.
    pub(crate) fn complete(&self, info: &mut SessionInfo) {
        let known = &self.info;
        info.agent.clone_from(&known.agent);
        if info.id.is_empty() {
            info.id.clone_from(&known.id);
        }
        info.project = info.project.take().or_else(|| known.project.clone());
        info.title = info.title.take().or_else(|| known.title.clone());
        info.parent = info.parent.take().or_else(|| known.parent.clone());
    }
}

impl fmt::Debug for FoundSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundSession")
            .field("info", &self.info)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
