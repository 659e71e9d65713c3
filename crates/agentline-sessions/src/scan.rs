//! Walks the directories in which agents keep sessions, reading names, sizes and times but no content.

use crate::{
    candidate::SessionCandidate, database::Databases, index::Index, location::SessionLocation,
    stamp::SessionStamp, store::SessionStore,
};
use agentline_core::{Agent, ProjectRef, RootFormat, SessionRoot};
use agentline_fs::{caching_fs::CachingFs, disk_fs::DiskFs};
use std::{collections::HashMap, fs, path::PathBuf, sync::Arc};

impl SessionStore {
    /// Returns all candidates of these agents.
    pub(crate) fn scan(
        &self,
        agents: &[Arc<dyn Agent>],
        index: &mut Index,
        databases: &Databases,
    ) -> Vec<SessionCandidate> {
        let (mut all, roots) = self.scan_files(agents);
        for (agent, path) in roots {
            all.extend(databases.candidates(&agent, &path, index));
        }
        all
    }

    /// Returns the candidates that are files, and the databases without opening them.
    pub(crate) fn scan_files(&self, agents: &[Arc<dyn Agent>]) -> (Vec<SessionCandidate>, Vec<DatabaseRoot>) {
        let (mut files, mut databases) = (Vec::new(), Vec::new());
        for agent in agents {
            for root in agent.sessions().roots(&self.env, &self.home, &DiskFs) {
                match root.form {
                    RootFormat::Files { depth } => walk(agent, &root, depth, &mut files),
                    RootFormat::Database => databases.push((Arc::clone(agent), root.path)),
                    _ => {}
                }
            }
        }
        (files, databases)
    }
}

/// A database and its agent.
pub(crate) type DatabaseRoot = (Arc<dyn Agent>, PathBuf);

fn walk(agent: &Arc<dyn Agent>, root: &SessionRoot, depth: usize, all: &mut Vec<SessionCandidate>) {
    let fs_view = CachingFs::default();
    let mut projects: HashMap<PathBuf, Option<ProjectRef>> = HashMap::new();
    let mut dirs = vec![(root.path.clone(), 0)];
    while let Some((dir, level)) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            // Links to directories are not followed: they could form a cycle, and agents create none.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if level < depth {
                    dirs.push((path, level + 1));
                }
                continue;
            }
            let Ok(below) = path.strip_prefix(&root.path) else { continue };
            let Some(name) = agent.sessions().file(below) else { continue };
            let Some(stamp) = SessionStamp::at(&path) else { continue };
            let find_project = || agent.sessions().project(&root.path, below, &fs_view);
            let project = projects.entry(dir.clone()).or_insert_with(find_project).clone();
            let form = name.form;
            all.push(SessionCandidate {
                agent: Arc::clone(agent),
                location: SessionLocation::File(path),
                form,
                name,
                project,
                stamp,
            });
        }
    }
}
