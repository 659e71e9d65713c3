//! A file or row that may contain a session, known by its name and metadata only.

use crate::{
    location::{SessionLocation, SessionPart},
    stamp::SessionStamp,
};
use agentline_core::{Agent, ProjectRef, SessionFile, SessionFormat, SessionInfo};
use std::{sync::Arc, time::SystemTime};

/// A location whose name identifies it as a session or a part of one.
#[derive(Clone)]
pub(crate) struct SessionCandidate {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) location: SessionLocation,
    /// The form in which it is stored, or `None` if it must be detected from the content.
    pub(crate) form: Option<SessionFormat>,
    /// The facts in its name.
    pub(crate) name: SessionFile,
    /// The project derived from its location.
    pub(crate) project: Option<ProjectRef>,
    pub(crate) stamp: SessionStamp,
}

impl SessionCandidate {
    /// Returns the location and form.
    pub(crate) fn part(self) -> SessionPart {
        SessionPart { location: self.location, form: self.form }
    }

    /// Returns whether facts read since `before` may be indexed under this stamp: the file did not change while it was
    /// read, and a later change would be visible. A database is read in one transaction, and the stamps of its rows
    /// follow their content.
    pub(crate) fn is_lasting(&self, before: SystemTime) -> bool {
        let same = match &self.location {
            SessionLocation::File(path) => SessionStamp::at(path) == Some(self.stamp),
            SessionLocation::Row { .. } => true,
        };
        same && self.stamp.is_settled(before)
    }

    /// Fills in metadata from the name and location of the file that its content does not have.
    pub(crate) fn complete(&self, info: &mut SessionInfo) {
        info.agent = self.agent.info().id.into();
        if info.id.is_empty() {
            info.id = self.name.id.clone().unwrap_or_else(|| self.location.name());
        }
        if info.parent.is_none() {
            info.parent.clone_from(&self.name.parent);
        }
        if info.project.is_none()
            && let Some(ProjectRef::Path(path)) = &self.project
        {
            info.project = Some(path.to_string_lossy().into_owned());
        }
    }

    /// Returns whether this candidate may contain a session whose id is or starts with `session_id`.
    ///
    /// Most file names contain the beginning of the id, so files with another id need not be read.
    pub(crate) fn may_be(&self, session_id: &str) -> bool {
        let id_prefix = self.name.id.as_ref();
        id_prefix.is_none_or(|id| id.starts_with(session_id) || session_id.starts_with(id.as_str()))
    }
}
