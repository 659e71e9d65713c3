//! Follows the answers of a session while its agent writes them to a database.

use super::{Database, SessionDatabase, opening::ReadEffort};
use agentline_core::{Agent, RawJson};
use agentline_fs::disk_fs::DiskFs;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Returns the answers that an agent adds to a session. It never waits for the agent, and never writes or copies a
/// database.
pub struct AnswerFollower {
    agent: Arc<dyn Agent>,
    schema: &'static dyn SessionDatabase,
    env: BTreeMap<String, String>,
    home: PathBuf,
    databases: BTreeMap<PathBuf, FollowedDatabase>,
    /// The records that were returned.
    known: BTreeSet<String>,
}

/// A database, with its stamp when it was last read.
struct FollowedDatabase {
    database: Database,
    stamp: Option<u64>,
}

impl fmt::Debug for AnswerFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerFollower").field("home", &self.home).finish_non_exhaustive()
    }
}

impl AnswerFollower {
    /// Creates a follower for an agent with this environment and home. Returns `None` if the agent stores no sessions in
    /// a database.
    #[must_use]
    pub fn new(agent: &Arc<dyn Agent>, env: &BTreeMap<String, String>, home: &Path) -> Option<Self> {
        let schema = agent.sessions().database()?;
        Some(Self {
            agent: Arc::clone(agent),
            schema,
            env: env.clone(),
            home: home.to_owned(),
            databases: BTreeMap::new(),
            known: BTreeSet::new(),
        })
    }

    /// Returns the answers of a session and of its sub-agents that are new or changed since the last call. A database
    /// that cannot be read now is read by a later call.
    pub fn read_new(&mut self, session: &str) -> Vec<RawJson> {
        // Until there is an answer, it is not known which of several databases has the session.
        if self.known.is_empty() {
            self.open_new();
        }
        let mut new = Vec::new();
        for followed in self.databases.values_mut() {
            let stamp = Some(followed.database.stamp());
            if followed.stamp == stamp {
                continue;
            }
            let Ok(read) = followed.database.answers(session) else { continue };
            followed.stamp = stamp.filter(|_| read.damage.is_empty());
            new.extend(read.value.into_iter().filter(|record| self.known.insert(record.as_str().to_owned())));
        }
        new
    }

    fn open_new(&mut self) {
        for root in self.agent.sessions().roots(&self.env, &self.home, &DiskFs) {
            if !self.databases.contains_key(&root.path)
                && let Ok(database) = Database::open_with(&root.path, self.schema, ReadEffort::Immediate)
            {
                self.databases.insert(root.path, FollowedDatabase { database, stamp: None });
            }
        }
    }
}
