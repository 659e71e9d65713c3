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

    /// Records an action. Prompts are not recorded.
    pub(crate) fn record(&self, token: &str, from: SocketAddr, action: &str, about: Value) {
        let mut entry =
            json!({"at_ms": now_ms(), "token": token, "from": from.to_string(), "action": action});
        if let (Some(entry), Value::Object(about)) = (entry.as_object_mut(), about) {
            entry.extend(about);
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not stop runs; the store of events stops first.
        let _ = writeln!(file, "{entry}");
    }
}
