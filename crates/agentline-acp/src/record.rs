//! The updates of open sessions, which another client gets when it loads one.

use serde_json::Value;
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many bytes of one session are kept. Older updates are dropped.
const LONGEST: usize = 16 << 20;

/// The records of the open sessions of an agent. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionRecords(Arc<Mutex<BTreeMap<String, SessionRecord>>>);

#[derive(Debug)]
struct SessionRecord {
    directory: PathBuf,
    /// The result with which the session was opened, without its id.
    opened: Value,
    updates: VecDeque<String>,
    bytes: usize,
}

impl SessionRecords {
    /// Begins the record of a session.
    pub(crate) fn open(&self, session: &str, directory: PathBuf, mut opened: Value) {
        if let Some(opened) = opened.as_object_mut() {
            opened.remove("sessionId");
        }
        let record = SessionRecord { directory, opened, updates: VecDeque::new(), bytes: 0 };
        // The updates of a session that is loaded precede its opening.
        match self.lock().entry(session.to_owned()) {
            std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(record)),
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                (known.directory, known.opened) = (record.directory, record.opened);
            }
        }
    }

    /// Adds an update of a session, as the client gets it.
    pub(crate) fn push(&self, session: &str, frame: &str) {
        let mut records = self.lock();
        let Some(record) = records.get_mut(session) else { return };
        record.bytes += frame.len();
        record.updates.push_back(frame.to_owned());
        while record.bytes > LONGEST
            && let Some(oldest) = record.updates.pop_front()
        {
            record.bytes -= oldest.len();
        }
    }

    /// Changes the result with which the session is opened again.
    pub(crate) fn set(&self, session: &str, change: impl FnOnce(&mut Value)) {
        if let Some(record) = self.lock().get_mut(session) {
            change(&mut record.opened);
        }
    }

    /// Ends the record of a session.
    pub(crate) fn close(&self, session: &str) {
        self.lock().remove(session);
    }

    /// Returns the directory of a session, if there is such a session.
    pub(crate) fn directory(&self, session: &str) -> Option<PathBuf> {
        self.lock().get(session).map(|record| record.directory.clone())
    }

    pub(crate) fn updates(&self, session: &str) -> Vec<String> {
        self.lock().get(session).map(|record| record.updates.iter().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn opened(&self, session: &str) -> Value {
        self.lock().get(session).map(|record| record.opened.clone()).unwrap_or_default()
    }

    /// Returns the ids of the sessions.
    pub(crate) fn sessions(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SessionRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a directory with its links resolved, where that is possible.
pub(crate) fn resolved(directory: &Path) -> PathBuf {
    std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_updates_of_a_session_are_kept() {
        let records = SessionRecords::default();
        records.open("s", "/w".into(), json!({"sessionId": "s", "modes": {"currentModeId": "a"}}));
        let frame = |n: u8| format!("{n}{}", " ".repeat(LONGEST / 3));
        (0..4).for_each(|n| records.push("s", &frame(n)));
        let kept: Vec<_> = records.updates("s").iter().map(|frame| frame[..1].to_owned()).collect();
        assert_eq!(kept, ["2", "3"]);
        records.set("s", |opened| opened["modes"]["currentModeId"] = "b".into());
        assert_eq!(records.opened("s"), json!({"modes": {"currentModeId": "b"}}));
        records.close("s");
        records.push("s", "late");
        assert!(records.updates("s").is_empty() && records.sessions().is_empty());
    }
}
