//! Lists sessions stored as rows of a database. The list is cached in the index, so an unchanged database is not
//! opened.

use crate::{
    candidate::SessionCandidate, error::SessionError, index::Index, location::SessionLocation,
    sqlite::Database, stamp::SessionStamp,
};
use agentline_core::{Agent, ProjectRef, SavedSession, SessionFile, SessionFormat};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// The cached description of one session row.
#[derive(Serialize, Deserialize)]
struct Known {
    id: String,
    parent: Option<String>,
    project: Option<String>,
    stamp: SessionStamp,
}

/// Opens a database of an agent.
pub(crate) fn open(agent: &dyn Agent, path: &Path) -> Result<Database, SessionError> {
    let none = || io::Error::other(format!("{} stores no sessions in a database", agent.info().title));
    let schema = agent.sessions().database().ok_or_else(none).map_err(SessionError::io("read", path))?;
    Database::open(path, schema)
}

/// The databases opened during one call. Each is opened once, because opening may copy the file.
#[derive(Debug, Default)]
pub(crate) struct Databases(Mutex<HashMap<PathBuf, Arc<Database>>>);

impl Databases {
    pub(crate) fn open(&self, agent: &dyn Agent, path: &Path) -> Result<Arc<Database>, SessionError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(path) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(open(agent, path)?);
        all.insert(path.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }

    /// Reads a session. A session that no longer exists is returned empty.
    pub(crate) fn load(
        &self,
        agent: &dyn Agent,
        path: &Path,
        session: &str,
    ) -> Result<SavedSession, SessionError> {
        Ok(self.open(agent, path)?.load(session)?.unwrap_or_default())
    }

    /// Returns the sessions of a database, or none if it cannot be read.
    pub(crate) fn candidates(
        &self,
        agent: &Arc<dyn Agent>,
        path: &Path,
        index: &mut Index,
    ) -> Vec<SessionCandidate> {
        let Some(stamp) = stamp_of(path) else { return Vec::new() };
        let key = format!("{}\n#", path.to_string_lossy());
        let known: Option<Vec<Known>> = index.get(&key, stamp);
        let known = known.unwrap_or_else(|| {
            let now = SystemTime::now();
            let rows = self.open(&**agent, path).and_then(|database| database.sessions());
            let rows = rows.map(|read| read.value).unwrap_or_default();
            let known: Vec<Known> = rows
                .into_iter()
                .map(|row| {
                    let inode = row.messages.wrapping_mul(1 << 32).wrapping_add(row.parts);
                    let changed = row.changed.saturating_mul(1_000_000);
                    let stamp = SessionStamp { size: row.size, changed, inode };
                    Known { id: row.info.id, parent: row.info.parent, project: row.info.project, stamp }
                })
                .collect();
            if stamp.is_settled(now) && stamp_of(path) == Some(stamp) {
                index.put(key, stamp, &known);
            }
            known
        });
        known.into_iter().map(|row| row.candidate(agent, path)).collect()
    }
}

impl Known {
    fn candidate(self, agent: &Arc<dyn Agent>, path: &Path) -> SessionCandidate {
        let mut name = SessionFile::default();
        (name.form, name.id, name.parent) =
            (Some(SessionFormat::Database), Some(self.id.clone()), self.parent);
        SessionCandidate {
            agent: Arc::clone(agent),
            location: SessionLocation::Row { database: path.to_owned(), session: self.id },
            form: name.form,
            name,
            project: self.project.map(|path| ProjectRef::Path(path.into())),
            stamp: self.stamp,
        }
    }
}

/// Returns a stamp of the database file and its `-wal` and `-journal` files.
fn stamp_of(path: &Path) -> Option<SessionStamp> {
    let sibling_stamp = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        SessionStamp::at(Path::new(&name)).unwrap_or_default()
    };
    Some(
        SessionStamp::default()
            .with(SessionStamp::at(path)?)
            .with(sibling_stamp("-wal"))
            .with(sibling_stamp("-journal")),
    )
}
