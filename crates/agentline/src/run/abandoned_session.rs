//! Removes the files of sessions that were opened and never prompted.

use crate::fs::disk_fs::DiskFs;
use agentline_core::Agent;
use std::{path::PathBuf, sync::Arc};

/// A session that may never have been prompted.
pub(crate) struct AbandonedSession {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) home: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) session: String,
}

impl AbandonedSession {
    /// Removes the files of the session that have no content.
    pub(crate) fn remove_leftovers(&self) {
        let folder = self.agent.sessions().folder(&self.home, &self.cwd, &DiskFs);
        let spot = folder.map(|folder| self.agent.sessions().file_pattern(folder, &self.session, &DiskFs));
        for file in spot.map(|spot| self.agent.sessions().abandoned(&spot, &DiskFs)).unwrap_or_default() {
            // The file may be gone already.
            let _ = std::fs::remove_file(file);
        }
    }
}
