//! Where a configured agent stores its sessions, according to its profile.

use crate::{AgentProfile, FileSystem, SessionFilePattern, SessionSource};
use std::path::{Path, PathBuf};

/// The session files of a configured agent. They are followed for errors that the agent does not report, but not read as
/// saved sessions, because their format is not known.
#[derive(Clone, Debug)]
pub(super) struct ErrorStore {
    profile: AgentProfile,
}

impl ErrorStore {
    pub(super) fn new(profile: &AgentProfile) -> Self {
        Self { profile: profile.clone() }
    }
}

impl SessionSource for ErrorStore {
    fn locate(
        &self,
        agent_home: &Path,
        cwd: &Path,
        session: &str,
        fs: &dyn FileSystem,
    ) -> Option<SessionFilePattern> {
        // The id becomes part of a path.
        if session.is_empty() || session.contains(['/', '\\']) || session.starts_with('.') {
            return None;
        }
        let path = self.profile.session_file(agent_home.to_str()?, cwd.to_str()?, session)?;
        let (folder, name) = path.rsplit_once('/')?;
        let folder = existing(folder, fs)?;
        Some(SessionFilePattern::new(folder, name.rsplit('*').next().unwrap_or(name).to_owned()))
    }
}

/// Returns the first existing directory that a path with `*` for unknown names matches.
fn existing(path: &str, fs: &dyn FileSystem) -> Option<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        found = found
            .into_iter()
            .flat_map(|dir| match part {
                "*" => fs.list(&dir).unwrap_or_default().iter().map(|name| dir.join(name)).collect(),
                _ => vec![dir.join(part)],
            })
            .filter(|dir| fs.exists(dir))
            .collect();
    }
    found.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_fs::MemoryFs;

    #[test]
    fn session_file_is_located_below_unknown_directories() {
        let fs = MemoryFs::default()
            .plain("/home/me/.mine/sessions/a/1/wire.jsonl", "")
            .plain("/home/me/.mine/sessions/b/2/wire.jsonl", "");
        let profile = AgentProfile {
            session_store: Some("~/.mine/sessions/*/{id}/wire.jsonl".into()),
            ..AgentProfile::default()
        };
        let store = ErrorStore::new(&profile);
        let locate = |id| store.locate(Path::new("/home/me"), Path::new("/ws"), id, &fs);
        let expected = SessionFilePattern::new("/home/me/.mine/sessions/b/2".into(), "wire.jsonl".into());
        assert_eq!(locate("2"), Some(expected));
        assert_eq!((locate("3"), locate("../b/2"), locate("..")), (None, None, None));
    }
}
