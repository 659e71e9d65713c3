//! Walks the directories in which agents keep sessions, reading names, sizes and times but no content.

use super::{SessionStore, database::Databases, find::SessionLocation, index::Index};
use crate::fs::{caching_fs::CachingFs, disk_fs::DiskFs};
use agentline_core::{Agent, ProjectRef, RootFormat, SessionFile, SessionFormat, SessionRoot};
use std::{
    collections::HashMap,
    fs::{self, Metadata},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A location whose name says that it contains a session or a part of one.
#[derive(Clone)]
pub(super) struct SessionCandidate {
    pub(super) agent: &'static dyn Agent,
    pub(super) place: SessionLocation,
    /// The form in which it is stored, or `None` if it must be detected from the content.
    pub(super) form: Option<SessionFormat>,
    /// The facts in its name.
    pub(super) name: SessionFile,
    /// The project derived from its location.
    pub(super) project: Option<ProjectRef>,
    pub(super) stamp: SessionStamp,
}

/// Metadata that changes when a file changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct SessionStamp {
    /// The size in bytes.
    pub(super) size: u64,
    /// The later of modification time and status change time, in nanoseconds since 1970.
    pub(super) changed: u64,
    /// The inode number, or 0 where the system has none.
    pub(super) inode: u64,
}

/// The minimum age of a change. Two writes within one tick of the file system's clock have the same time.
const SETTLED: Duration = Duration::from_secs(2);

impl SessionStamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let (inode, status) = system_side(metadata);
        Self { size: metadata.len(), changed: nanos(modified).max(status), inode }
    }

    /// Combines the stamps of several files. The result changes when any of them changes.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            size: self.size.wrapping_add(other.size),
            changed: self.changed.max(other.changed),
            inode: self
                .inode
                .wrapping_mul(31)
                .wrapping_add(other.inode ^ other.changed.rotate_left(7) ^ other.size),
        }
    }

    /// Returns the current stamp of the file at a path.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().filter(Metadata::is_file).map(|m| Self::of(&m))
    }

    /// Returns whether a later change is sure to change the stamp.
    pub(super) fn is_settled(self, now: SystemTime) -> bool {
        now.checked_sub(SETTLED).is_some_and(|then| self.changed < nanos(then))
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the inode and the status change time, which programs cannot set back, unlike the modification time.
#[cfg(unix)]
fn system_side(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    let nanos = u64::try_from(metadata.ctime_nsec()).unwrap_or(0);
    (metadata.ino(), seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(unix))]
fn system_side(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}

impl SessionStore {
    /// Returns all candidates of these agents.
    pub(super) fn scan(
        &self,
        agents: &[&'static dyn Agent],
        index: &mut Index,
        databases: &Databases,
    ) -> Vec<SessionCandidate> {
        let (mut all, roots) = self.scan_files(agents);
        for (agent, path) in roots {
            all.extend(databases.candidates(agent, &path, index));
        }
        all
    }

    /// Returns the candidates that are files, and the databases without opening them.
    pub(super) fn scan_files(
        &self,
        agents: &[&'static dyn Agent],
    ) -> (Vec<SessionCandidate>, Vec<DatabaseRoot>) {
        let (mut files, mut databases) = (Vec::new(), Vec::new());
        for agent in agents {
            for root in agent.session_roots(&self.env, &self.home, &DiskFs) {
                match root.form {
                    RootFormat::Files { depth } => walk(*agent, &root, depth, &mut files),
                    RootFormat::Database => databases.push((*agent, root.path)),
                    _ => {}
                }
            }
        }
        (files, databases)
    }
}

/// A database and its agent.
pub(super) type DatabaseRoot = (&'static dyn Agent, PathBuf);

fn walk(agent: &'static dyn Agent, root: &SessionRoot, depth: usize, all: &mut Vec<SessionCandidate>) {
    let look = CachingFs::default();
    let mut projects: HashMap<PathBuf, Option<ProjectRef>> = HashMap::new();
    let mut folders = vec![(root.path.clone(), 0)];
    while let Some((folder, level)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // Links to directories are not followed: they could form a cycle, and agents create none.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if level < depth {
                    folders.push((path, level + 1));
                }
                continue;
            }
            let Ok(below) = path.strip_prefix(&root.path) else { continue };
            let Some(name) = agent.session_file(below) else { continue };
            let Some(stamp) = SessionStamp::at(&path) else { continue };
            let place = projects.entry(folder.clone());
            let project = place.or_insert_with(|| agent.session_project(&root.path, below, &look)).clone();
            let form = name.form;
            all.push(SessionCandidate {
                agent,
                place: SessionLocation::File(path),
                form,
                name,
                project,
                stamp,
            });
        }
    }
}
