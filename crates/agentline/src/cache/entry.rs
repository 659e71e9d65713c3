//! The stored form of a run: a single file, so an entry is either complete or absent.
//!
//! The file has a line with the digest of everything after it, a line of metadata, the event lines with the outcome
//! last (as `--output events` prints them), and the concatenated contents of the changed files.

use crate::fs::digest::{digest, hex};
use agentline_core::AgentId;
use serde::{Deserialize, Serialize};

const MAGIC: &str = "agentline.cache/1 ";

/// The metadata of a stored run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CacheEntryMeta {
    pub(super) key: String,
    /// Time of storage in seconds since the Unix epoch.
    pub(super) stored_at: u64,
    /// Start of the run in milliseconds since the Unix epoch.
    pub(super) began_at_ms: u64,
    pub(super) agent: AgentId,
    pub(super) agent_version: Option<String>,
    pub(super) agentline: String,
    /// Length of the event lines in bytes.
    pub(super) events: usize,
    /// The files that the run changed in its workspace.
    pub(super) files: Vec<ChangedFile>,
    /// The path of the workspace, if it does not count.
    pub(super) workspace: Option<String>,
    /// The digest of the whole workspace after the run.
    pub(super) after: String,
}

/// A file that a run changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ChangedFile {
    /// The path relative to the workspace, separated by `/`.
    pub(super) path: String,
    pub(super) what: ChangedContent,
    /// The permission bits.
    pub(super) mode: Option<u32>,
    /// The length of the content in bytes.
    pub(super) bytes: usize,
}

/// The kind of file at the path after the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChangedContent {
    #[default]
    File,
    Link,
    Nothing,
}

/// A decoded entry.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) meta: CacheEntryMeta,
    bytes: Vec<u8>,
    events_at: usize,
}

/// Encodes an entry.
pub(super) fn encode(meta: &CacheEntryMeta, events: &[u8], contents: &[Vec<u8>]) -> Vec<u8> {
    let mut body = serde_json::to_vec(meta).unwrap_or_default();
    body.push(b'\n');
    body.extend_from_slice(events);
    contents.iter().for_each(|content| body.extend_from_slice(content));
    let mut bytes = format!("{MAGIC}{}\n", hex(&digest(&body))).into_bytes();
    bytes.append(&mut body);
    bytes
}

impl CacheEntry {
    /// Decodes an entry; `None` if it is damaged or belongs to another key.
    pub(super) fn decode(bytes: Vec<u8>, key: &str) -> Option<Self> {
        let head_end = memchr::memchr(b'\n', &bytes)?;
        let sum = std::str::from_utf8(&bytes[..head_end]).ok()?.strip_prefix(MAGIC)?;
        let body = &bytes[head_end + 1..];
        if sum != hex(&digest(body)) {
            return None;
        }
        let meta_end = memchr::memchr(b'\n', body)?;
        let meta: CacheEntryMeta = serde_json::from_slice(&body[..meta_end]).ok()?;
        let events_at = head_end + 1 + meta_end + 1;
        let files_at = events_at.checked_add(meta.events)?;
        let end = meta.files.iter().try_fold(files_at, |end, file| end.checked_add(file.bytes))?;
        let fits = meta.key == key && end == bytes.len();
        std::str::from_utf8(bytes.get(events_at..files_at)?).ok()?;
        fits.then_some(Self { meta, bytes, events_at })
    }

    /// Returns the event lines.
    pub(super) fn events(&self) -> &str {
        // `decode` has validated the UTF-8.
        std::str::from_utf8(&self.bytes[self.events_at..][..self.meta.events]).unwrap_or_default()
    }

    /// Returns each file with its content.
    pub(super) fn files(&self) -> impl Iterator<Item = (&ChangedFile, &[u8])> {
        let mut at = self.events_at + self.meta.events;
        self.meta.files.iter().map(move |file| {
            let content = &self.bytes[at..][..file.bytes];
            at += file.bytes;
            (file, content)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let file = |path: &str, bytes| ChangedFile { path: path.into(), bytes, ..ChangedFile::default() };
        let meta = CacheEntryMeta {
            key: "k".into(),
            events: 4,
            files: vec![file("a", 2), file("b", 0)],
            ..CacheEntryMeta::default()
        };
        encode(&meta, b"{}\n\n", &[b"\0\n".to_vec(), Vec::new()])
    }

    #[test]
    fn written_entry_round_trips() {
        let entry = CacheEntry::decode(sample(), "k").unwrap();
        assert_eq!(entry.events(), "{}\n\n");
        let files: Vec<(&str, &[u8])> = entry.files().map(|(file, bytes)| (&*file.path, bytes)).collect();
        assert_eq!(files, [("a", &b"\0\n"[..]), ("b", b"")]);
        assert!(CacheEntry::decode(sample(), "another").is_none());
    }

    #[test]
    fn any_damage_is_detected() {
        let good = sample();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(CacheEntry::decode(bad, "k").is_none(), "byte {at}");
            assert!(CacheEntry::decode(good[..at].to_vec(), "k").is_none(), "cut at {at}");
        }
        assert!(CacheEntry::decode([good, b"x".to_vec()].concat(), "k").is_none());
        let long = |bytes| ChangedFile { bytes, ..ChangedFile::default() };
        let meta = CacheEntryMeta {
            key: "k".into(),
            files: vec![long(usize::MAX), long(1), long(1)],
            ..CacheEntryMeta::default()
        };
        assert!(CacheEntry::decode(encode(&meta, b"", &[b"x".to_vec()]), "k").is_none());
    }
}
