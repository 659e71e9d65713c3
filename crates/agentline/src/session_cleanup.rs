//! Removes what killed runs left in an agent's store of sessions, and keeps others from removing what a run still uses.
//!
//! A resumed run holds a shared lock on the files of its session. Locks end with their process however it dies, so a
//! session that can be locked alone is used by no run of ours.

use crate::{look::DiskLook, regular_file::open_regular};
use agentline_core::Agent;
use std::{
    fs::{self, File, TryLockError},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

/// How often a lock is tried that a clean-up holds for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);
/// A folder is listed again after this time, whatever its own time says.
const LISTING_HOLDS: Duration = Duration::from_secs(10);
/// A new file and its folder are stamped one after the other, by a coarse clock.
const STAMPS_APART: Duration = Duration::from_millis(10);

/// Removes empty duplicates of stored sessions: the agent would take them for broken sessions at a later start, and
/// delete the sessions that they duplicate. Says whether there were none.
pub(crate) fn remove_empty_duplicates(agent: &dyn Agent, folder: &Path) -> bool {
    let found = agent.empty_duplicates(folder, &DiskLook);
    let was_clean = found.is_empty();
    for (duplicate, original) in found {
        if let Ok(original) = open_regular(&original, u64::MAX)
            && original.try_lock().is_ok()
        {
            // It may be gone already; nothing depends on it.
            let _ = fs::remove_file(duplicate);
        }
    }
    was_clean
}

/// A folder of sessions in which no empty duplicate was found. It may hold hundreds of sessions, and a run on a warm
/// process costs little more than to list them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleanFolder {
    listed: Instant,
    /// When the last file came or went that we know of.
    changed: SystemTime,
}

impl CleanFolder {
    /// A folder that was listed just now and had this time before that.
    pub(crate) fn new(changed: SystemTime) -> Self {
        Self { listed: Instant::now(), changed }
    }

    /// Whether nothing has come to the folder since then but sessions of our own runs.
    pub(crate) fn is_still_so(&self, folder: &Path) -> bool {
        self.listed.elapsed() < LISTING_HOLDS && changed(folder) == Some(self.changed)
    }

    /// A run of ours has made this file. It changes nothing if it was the last that came to the folder.
    pub(crate) fn add_own(&mut self, folder: &Path, file: &File) {
        let made = file.metadata().and_then(|about| about.created()).ok();
        if let (Some(made), Some(changed)) = (made, changed(folder))
            && changed.duration_since(made).unwrap_or_else(|early| early.duration()) <= STAMPS_APART
        {
            self.changed = changed;
        }
    }
}

/// When something last came to a folder or went from it.
pub(crate) fn changed(folder: &Path) -> Option<SystemTime> {
    fs::metadata(folder).and_then(|about| about.modified()).ok()
}

/// Shows other processes that a run uses this file of a session, for as long as the file lives. `None` where that cannot
/// be shown.
pub(crate) fn hold_session_file(path: &Path) -> Option<File> {
    let file = open_regular(path, u64::MAX).ok()?;
    for _ in 0..TRIES {
        match file.try_lock_shared() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
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
    fn a_duplicate_is_removed_when_no_run_uses_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let at = |minute: &str| dir.path().join(format!("session-2026-01-01T00-{minute}-aaaa1111.jsonl"));
        let header = r#"{"sessionId":"aaaa1111-1","projectHash":"h","startTime":"x","kind":"main"}"#;
        let said = r#"{"id":"1","type":"user","content":[{"text":"hi"}]}"#;
        fs::write(at("00"), format!("{header}\n{said}\n")).unwrap();
        fs::write(at("09"), format!("{header}\n")).unwrap();
        let agent = agents::find("gemini").unwrap();
        let (one, two) = (hold_session_file(&at("00")).unwrap(), hold_session_file(&at("00")).unwrap());
        drop(one);
        remove_empty_duplicates(agent, dir.path());
        assert!(at("09").exists(), "a run still uses the session");
        drop(two);
        remove_empty_duplicates(agent, dir.path());
        assert!(!at("09").exists() && at("00").exists());
        assert!(hold_session_file(&at("09")).is_none());
    }
}
