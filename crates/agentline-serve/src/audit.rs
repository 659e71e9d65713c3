//! The audit log: who started, answered or ended what.

use crate::{clock::now_ms, options::ServeError};
use serde_json::{Value, json};
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    net::SocketAddr,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// The longest text in an entry, in characters.
const LONGEST: usize = 4_096;

/// Appends one JSON object per line to a file that only its owner may read.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<File>,
}

impl AuditLog {
    pub(crate) fn open(dir: &Path) -> Result<Self, ServeError> {
        let path = dir.join("audit.jsonl");
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(ServeError::io(path.display()))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Records an action. Prompts are not recorded, and long texts are truncated.
    pub(crate) fn record(&self, token: &str, from: SocketAddr, action: &str, about: Value) {
        let mut entry =
            json!({"at_ms": now_ms(), "token": token, "from": from.to_string(), "action": action});
        if let (Some(entry), Value::Object(about)) = (entry.as_object_mut(), about) {
            entry.extend(about.into_iter().map(|(key, value)| (key, truncated(value))));
        }
        let mut line = entry.to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not stop runs; the store of events stops first.
        let _ = file.write_all(line.as_bytes());
    }
}

fn truncated(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > LONGEST => text.chars().take(LONGEST).collect::<String>().into(),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_of_limited_length() {
        let dir = tempfile::tempdir().unwrap();
        let log = AuditLog::open(dir.path()).unwrap();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        log.record("a", from, "run", json!({"working_dir": "x\n".repeat(1 << 20), "agent": "b"}));
        log.record("a", from, "cancel", json!({"run": "c"}));
        let text = std::fs::read_to_string(dir.path().join("audit.jsonl")).unwrap();
        let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0]["working_dir"].as_str().unwrap().len(), LONGEST);
        assert_eq!((&entries[0]["agent"], &entries[1]["run"]), (&json!("b"), &json!("c")));
    }
}
