//! Sessions that an agent has begun and in which nobody may have said anything: what is left of them is cleared away.

use crate::look::DiskLook;
use agentline_core::Agent;
use std::path::PathBuf;

/// A session in which nothing may have been said.
pub(crate) struct Litter {
    pub(crate) agent: &'static dyn Agent,
    pub(crate) home: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) session: String,
}

impl Litter {
    /// Removes what of it says nothing.
    pub(crate) fn clear_away(&self) {
        let folder = self.agent.session_folder(&self.home, &self.cwd, &DiskLook);
        let spot = folder.map(|folder| self.agent.session_spot(folder, &self.session));
        for file in spot.map(|spot| self.agent.litter(&spot, &DiskLook)).unwrap_or_default() {
            // It may be gone already; nothing depends on it.
            let _ = std::fs::remove_file(file);
        }
    }
}
