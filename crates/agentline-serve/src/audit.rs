//! The audit log: who started, answered or ended what.

use crate::{clock::now_ms, options::ServeError};
use serde_json::{Value, json};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// The longest text in an entry, in characters.
const LONGEST: usize = 4_096;
/// The maximum size of a file of the log in bytes.
const FILE_SIZE: u64 = 64 << 20;
/// The file with the entries before those of the current one.
const EARLIER: &str = "audit.1.jsonl";

/// Appends one JSON object per line to a file that only its owner may read. There are at most two files.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Arc<Mutex<AuditFile>>,
}

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    size: u64,
    /// The size at which another file is begun.
    limit: u64,
}

impl AuditLog {
    pub(crate) fn open(dir: &Path) -> Result<Self, ServeError> {
        Self::with_limit(dir, FILE_SIZE)
    }

    fn with_limit(dir: &Path, limit: u64) -> Result<Self, ServeError> {
        let path = dir.join("audit.jsonl");
        let opened = append_to(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (size, file) = opened.map_err(ServeError::io(path.display()))?;
        Ok(Self { file: Arc::new(Mutex::new(AuditFile { path, file, size, limit })) })
    }

    /// Records an action. Prompts are not recorded, and long texts are truncated.
    ///
    /// The entry is written even if the caller stops waiting.
    pub(crate) async fn record(&self, token: &str, from: SocketAddr, action: &str, about: Value) {
        let (file, line) = (Arc::clone(&self.file), line(token, from, action, about));
        // The disk may be slow. A panic was reported by the runtime.
        let _ = tokio::task::spawn_blocking(move || append(&file, &line)).await;
    }

    /// Records an action on a thread that may block.
    pub(crate) fn record_blocking(&self, token: &str, from: SocketAddr, action: &str, about: Value) {
        append(&self.file, &line(token, from, action, about));
    }
}

impl AuditFile {
    /// Begins another file. Only the latest of the earlier ones is kept.
    fn rotate(&mut self) -> io::Result<()> {
        match std::fs::rename(&self.path, self.path.with_file_name(EARLIER)) {
            // An earlier attempt renamed it, and then could not open another one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = append_to(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn append(file: &Mutex<AuditFile>, line: &str) {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    let length = line.len() as u64;
    if file.size + length > file.limit {
        // If it fails, the file grows until the next attempt.
        let _ = file.rotate();
    }
    // A full disk must not stop runs; the store of events stops first.
    if file.file.write_all(line.as_bytes()).is_ok() {
        file.size += length;
    }
}

/// Returns an entry.
fn line(token: &str, from: SocketAddr, action: &str, about: Value) -> String {
    let mut entry = json!({"at_ms": now_ms(), "token": token, "from": from.to_string(), "action": action});
    if let (Some(entry), Value::Object(about)) = (entry.as_object_mut(), about) {
        entry.extend(about.into_iter().map(|(key, value)| (key, truncated(value))));
    }
    format!("{entry}\n")
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

    fn entries(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn entries_are_lines_of_limited_length() {
        let dir = tempfile::tempdir().unwrap();
        let log = AuditLog::open(dir.path()).unwrap();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        log.record("a", from, "run", json!({"working_dir": "x\n".repeat(1 << 20), "agent": "b"})).await;
        log.record_blocking("a", from, "cancel", json!({"run": "c"}));
        let entries = entries(&dir.path().join("audit.jsonl"));
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0]["working_dir"].as_str().unwrap().len(), LONGEST);
        assert_eq!((&entries[0]["agent"], &entries[1]["run"]), (&json!("b"), &json!("c")));
    }

    #[test]
    fn another_file_is_begun_after_a_failed_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let log = AuditLog::with_limit(dir.path(), 200).unwrap();
        log.record_blocking("a", from, "run", json!({"number": 1}));
        // As if the file could not be opened after it was renamed.
        let (now, earlier) = (dir.path().join("audit.jsonl"), dir.path().join(EARLIER));
        std::fs::rename(&now, &earlier).unwrap();
        (2..4).for_each(|number| log.record_blocking("a", from, "run", json!({"number": number})));
        assert!(now.metadata().unwrap().len() <= 200 && earlier.metadata().unwrap().len() <= 200);
        assert_eq!(entries(&now).last().unwrap()["number"], 3);
    }

    #[test]
    fn size_of_the_log_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        for number in 0..40 {
            // As if the server was restarted each time.
            let log = AuditLog::with_limit(dir.path(), 1_000).unwrap();
            log.record_blocking("a", from, "run", json!({"number": number}));
        }
        let (now, earlier) = (dir.path().join("audit.jsonl"), dir.path().join(EARLIER));
        assert!([&now, &earlier].iter().all(|path| path.metadata().unwrap().len() <= 1_000));
        let kept: Vec<u64> = [entries(&earlier), entries(&now)]
            .concat()
            .iter()
            .map(|entry| entry["number"].as_u64().unwrap())
            .collect();
        assert!(kept.len() > 5);
        assert_eq!(kept, (40 - kept.len() as u64..40).collect::<Vec<_>>(), "the latest entries");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
