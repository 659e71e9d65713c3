//! Removes what killed runs left in an agent's store of sessions, and keeps others from removing what a run still uses.
//!
//! A resumed run holds a shared lock on the files of its session. Locks end with their process however it dies, so a
//! session that can be locked alone is used by no run of ours.

use crate::{look::DiskLook, regular_file::open_regular};
use agentline_core::Agent;
use std::{
    fs::{self, File, TryLockError},
    path::Path,
    time::Duration,
};

/// How often a lock is tried that a clean-up holds for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Removes empty duplicates of stored sessions: the agent would take them for broken sessions at a later start, and
/// delete the sessions that they duplicate.
pub(crate) fn remove_empty_duplicates(agent: &dyn Agent, folder: &Path) {
    for (duplicate, original) in agent.empty_duplicates(folder, &DiskLook) {
        if let Ok(original) = open_regular(&original, u64::MAX)
            && original.try_lock().is_ok()
        {
            // It may be gone already; nothing depends on it.
            let _ = fs::remove_file(duplicate);
        }
    }
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
