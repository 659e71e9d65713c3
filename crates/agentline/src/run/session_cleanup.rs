//! Removes leftovers of killed runs from an agent's session store, and protects sessions that are in use.
//!
//! A resumed run holds a shared lock on the files of its session. Locks end with their process, so a session that can
//! be locked exclusively is not used by any agentline run.

use crate::fs::{disk_fs::DiskFs, regular_file::open_regular};
use agentline_core::Agent;
use std::{
    fs::{self, File, TryLockError},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

/// The number of attempts to lock a file that a cleanup may hold briefly.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(1);
/// How long a listing is trusted if the directory's modification time is unchanged.
const LISTING_MAX_AGE: Duration = Duration::from_secs(10);
/// The maximum difference between the times of a new file and its directory, which come from a coarse clock.
const TIMESTAMP_TOLERANCE: Duration = Duration::from_millis(10);

/// Removes empty duplicates of stored sessions and returns whether there were none.
///
/// At a later start, the agent would treat the duplicates as broken sessions and delete the sessions that they
/// duplicate.
pub(crate) fn remove_empty_duplicates(agent: &dyn Agent, folder: &Path) -> bool {
    let found = agent.sessions().empty_duplicates(folder, &DiskFs);
    let was_clean = found.is_empty();
    for (duplicate, original) in found {
        if let Ok(original) = open_regular(&original, u64::MAX)
            && original.try_lock().is_ok()
        {
            // The file may already be gone.
            let _ = fs::remove_file(duplicate);
        }
    }
    was_clean
}

/// A directory of sessions without empty duplicates.
///
/// It is remembered because the directory may contain hundreds of sessions, and listing them takes almost as long as a
/// run on a warm process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleanDir {
    listed: Instant,
    /// The last known change of the directory's entries.
    changed: SystemTime,
}

impl CleanDir {
    /// Creates the record of a directory that was just listed and had this modification time before that.
    pub(crate) fn new(changed: SystemTime) -> Self {
        Self { listed: Instant::now(), changed }
    }

    /// Returns whether nothing but sessions of this program's runs was added since then.
    pub(crate) fn is_unchanged(&self, folder: &Path) -> bool {
        self.listed.elapsed() < LISTING_MAX_AGE && changed(folder) == Some(self.changed)
    }

    /// Records that a run of this program created `file`. Has an effect only if the file was the last one added.
    pub(crate) fn add_own(&mut self, folder: &Path, file: &File) {
        let created = file.metadata().and_then(|metadata| metadata.created()).ok();
        if let (Some(created), Some(changed)) = (created, changed(folder))
            && changed.duration_since(created).unwrap_or_else(|early| early.duration()) <= TIMESTAMP_TOLERANCE
        {
            self.changed = changed;
        }
    }
}

/// Returns when an entry was last added to or removed from a directory.
pub(crate) fn changed(folder: &Path) -> Option<SystemTime> {
    fs::metadata(folder).and_then(|metadata| metadata.modified()).ok()
}

/// Locks a session file, so that other processes see it in use until the returned file is dropped. Returns `None` if it
/// cannot be locked.
pub(crate) fn hold_session_file(path: &Path) -> Option<File> {
    let file = open_regular(path, u64::MAX).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock_shared() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::agents;

    #[test]
    fn duplicate_is_removed_if_no_run_uses_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let at = |minute: &str| dir.path().join(format!("session-2026-01-01T00-{minute}-aaaa1111.jsonl"));
        let header = r#"{"sessionId":"aaaa1111-1","projectHash":"h","startTime":"x","kind":"main"}"#;
        let record = r#"{"id":"1","type":"user","content":[{"text":"hi"}]}"#;
        fs::write(at("00"), format!("{header}\n{record}\n")).unwrap();
        fs::write(at("09"), format!("{header}\n")).unwrap();
        let agent = agents::find("gemini").unwrap();
        let (one, two) = (hold_session_file(&at("00")).unwrap(), hold_session_file(&at("00")).unwrap());
        drop(one);
        remove_empty_duplicates(&*agent, dir.path());
        assert!(at("09").exists(), "a run still uses the session");
        drop(two);
        remove_empty_duplicates(&*agent, dir.path());
        assert!(!at("09").exists() && at("00").exists());
        assert!(hold_session_file(&at("09")).is_none());
    }
}
