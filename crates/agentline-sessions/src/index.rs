//! The index of saved sessions: one file with a line for each file of an agent, which is valid only while that file is
//! unchanged. The index can be deleted at any time and shared between processes; a damaged index is rebuilt.

use crate::stamp::SessionStamp;
use agentline_fs::{private_file::create_dir_all, regular_file::read_regular};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
};

/// The format version. Increase it when the written data or the reading of sessions changes.
const FORMAT: u32 = 3;
/// A larger file is not a valid index and is ignored.
const LARGEST: u64 = 1 << 30;

/// The index in memory during one call.
#[derive(Default)]
pub(crate) struct Index {
    path: Option<PathBuf>,
    text: String,
    /// The position in `text` of the facts of each key.
    known: HashMap<String, (SessionStamp, Range<usize>)>,
    /// New entries, as the lines to write.
    fresh: HashMap<String, String>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Header {
    agentline_sessions: u32,
    version: String,
}

impl Header {
    fn current() -> Self {
        Self { agentline_sessions: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    key: std::borrow::Cow<'a, str>,
    stamp: SessionStamp,
    #[serde(borrow)]
    facts: &'a RawValue,
}

/// Returns the files of a key, one per line. A line that begins with `#` is a row of the file before it.
fn files_in(key: &str) -> impl Iterator<Item = &Path> {
    key.split('\n').filter(|line| !line.starts_with('#')).map(Path::new)
}

impl Index {
    /// Reads the index. Without a path, the index is empty and is never written.
    pub(crate) fn open(path: Option<&Path>) -> Self {
        let mut index = Self { path: path.map(Path::to_owned), ..Self::default() };
        let text = path
            .and_then(|path| read_regular(path, LARGEST).ok())
            .and_then(|bytes| String::from_utf8(bytes).ok());
        index.text = text.unwrap_or_default();
        let mut lines = index.text.split_inclusive('\n');
        let header = lines.next().and_then(|line| serde_json::from_str::<Header>(line).ok());
        if header != Some(Header::current()) {
            return index;
        }
        let base = index.text.as_ptr() as usize;
        for line in lines.filter(|line| line.ends_with('\n')) {
            // A damaged line is ignored, as if its file were new.
            let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { continue };
            let start = line.facts.get().as_ptr() as usize - base;
            index.known.insert(line.key.into_owned(), (line.stamp, start..start + line.facts.get().len()));
        }
        index
    }

    /// Returns the value stored for a key, if its stamp is unchanged.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str, stamp: SessionStamp) -> Option<T> {
        let (known, facts) = self.known.get(key)?;
        if *known != stamp {
            return None;
        }
        serde_json::from_str(&self.text[facts.clone()]).ok()
    }

    /// Stores a value, to be written by [`close`](Self::close).
    pub(crate) fn put<T: Serialize>(&mut self, key: String, stamp: SessionStamp, facts: &T) {
        if self.path.is_none() {
            return;
        }
        let facts = serde_json::value::to_raw_value(facts);
        let line = facts.and_then(|facts| {
            serde_json::to_string(&Line { key: key.as_str().into(), stamp, facts: &facts })
        });
        if let Ok(line) = line {
            self.fresh.insert(key, line);
        }
    }

    /// Writes new entries. A failure is ignored; it only makes the next call slower.
    pub(crate) fn close(self) {
        if self.fresh.is_empty() {
            return;
        }
        let Some((path, folder)) = self.path.as_deref().and_then(|path| Some((path, path.parent()?))) else {
            return;
        };
        let write = || -> std::io::Result<()> {
            create_dir_all(folder)?;
            // The temporary file is readable only by the user, because it contains prompts. The rename is atomic.
            let mut file = tempfile::Builder::new().prefix(".sessions").tempfile_in(folder)?;
            let mut out = std::io::BufWriter::with_capacity(1 << 20, file.as_file_mut());
            self.write(&mut out)?;
            out.into_inner()?;
            file.persist(path)?;
            Ok(())
        };
        // A failed write has no consequence besides a slower next call.
        let _ = write();
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, &Header::current())?;
        out.write_all(b"\n")?;
        for (key, (stamp, facts)) in &self.known {
            // Entries of deleted files are dropped.
            if self.fresh.contains_key(key) || !files_in(key).all(Path::exists) {
                continue;
            }
            let facts = serde_json::from_str(&self.text[facts.clone()])?;
            serde_json::to_writer(&mut *out, &Line { key: key.as_str().into(), stamp: *stamp, facts })?;
            out.write_all(b"\n")?;
        }
        for line in self.fresh.values() {
            out.write_all(line.as_bytes())?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: SessionStamp = SessionStamp { size: 1, changed: 2, inode: 3 };

    fn filled(path: &Path, key: &str) {
        let mut index = Index::open(Some(path));
        index.put(key.to_owned(), STAMP, &vec!["a word"]);
        index.close();
    }

    fn stored(path: &Path, key: &str) -> Option<Vec<String>> {
        Index::open(Some(path)).get(key, STAMP)
    }

    #[test]
    fn cached_entry_is_valid_only_for_the_same_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = (dir.path().join("new/index"), dir.path().join("a.jsonl"));
        std::fs::write(&file, "x").unwrap();
        let key = file.to_str().unwrap();
        filled(&path, key);
        assert_eq!(stored(&path, key), Some(vec!["a word".to_owned()]));
        for other in [
            SessionStamp { size: 2, ..STAMP },
            SessionStamp { changed: 3, ..STAMP },
            SessionStamp { inode: 4, ..STAMP },
        ] {
            assert_eq!(Index::open(Some(&path)).get::<Vec<String>>(key, other), None);
        }
        assert_eq!(Index::open(None).get::<Vec<String>>(key, STAMP), None);
    }

    #[test]
    fn deleted_files_are_removed_and_others_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let files = ["a", "b", "c"].map(|name| dir.path().join(name));
        let keys: Vec<String> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        for (file, key) in files.iter().zip(&keys) {
            std::fs::write(file, "x").unwrap();
            filled(&path, key);
        }
        let row = format!("{}\n#row", keys[2]);
        filled(&path, &row);
        std::fs::remove_file(&files[0]).unwrap();
        filled(&path, &keys[1]);
        assert_eq!(stored(&path, &keys[0]), None);
        assert!(stored(&path, &keys[1]).is_some() && stored(&path, &keys[2]).is_some());
        assert!(stored(&path, &row).is_some(), "a database row has no file of its own");
    }

    #[test]
    fn damage_loses_only_the_damaged_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let files = ["a", "b"].map(|name| dir.path().join(name));
        for file in &files {
            std::fs::write(file, "x").unwrap();
            filled(&path, file.to_str().unwrap());
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let known = files.iter().filter(|file| stored(&path, file.to_str().unwrap()).is_some()).count();
            assert!(known <= text[..cut].matches('\n').count().saturating_sub(1), "{cut}");
        }
        let header = format!("\"agentline_sessions\":{FORMAT}");
        std::fs::write(&path, text.replace(&header, "\"agentline_sessions\":0")).unwrap();
        assert_eq!(stored(&path, files[0].to_str().unwrap()), None, "another format");
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(stored(&path, files[0].to_str().unwrap()), None);
        filled(&path, files[0].to_str().unwrap());
        assert!(stored(&path, files[0].to_str().unwrap()).is_some(), "the index is rebuilt");
    }

    #[cfg(unix)]
    #[test]
    fn index_is_readable_only_by_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = (dir.path().join("index"), dir.path().join("a"));
        std::fs::write(&file, "x").unwrap();
        filled(&path, file.to_str().unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
    }
}
