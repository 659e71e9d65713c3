//! What was read once, remembered in one file of our own: a line for every file of an agent, believed only while that
//! file is the same. It may be deleted at any time, several processes may use it, and a damaged one is made anew.

use super::{facts::Facts, scan::Stamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
};

/// Changes with every change of what is written, or of how sessions are read.
const FORMAT: u32 = 1;

/// The index, as it is in memory during one call.
#[derive(Default)]
pub(super) struct Index {
    path: Option<PathBuf>,
    text: String,
    /// Where in `text` the facts of each key are.
    known: HashMap<String, (Stamp, Range<usize>)>,
    /// What is new, as the lines that will be written.
    fresh: HashMap<String, String>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Header {
    agentline_sessions: u32,
    version: String,
}

impl Header {
    fn ours() -> Self {
        Self { agentline_sessions: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    key: std::borrow::Cow<'a, str>,
    stamp: Stamp,
    #[serde(borrow)]
    facts: &'a RawValue,
}

impl Index {
    /// Reads the index; without a path, there is none.
    pub(super) fn open(path: Option<&Path>) -> Self {
        let mut index = Self { path: path.map(Path::to_owned), ..Self::default() };
        let text =
            path.and_then(|path| std::fs::read(path).ok()).and_then(|bytes| String::from_utf8(bytes).ok());
        index.text = text.unwrap_or_default();
        let mut lines = index.text.split_inclusive('\n');
        let header = lines.next().and_then(|line| serde_json::from_str::<Header>(line).ok());
        if header != Some(Header::ours()) {
            return index;
        }
        let base = index.text.as_ptr() as usize;
        for line in lines.filter(|line| line.ends_with('\n')) {
            // One damaged line is read anew, like a file that is new.
            let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { continue };
            let start = line.facts.get().as_ptr() as usize - base;
            index.known.insert(line.key.into_owned(), (line.stamp, start..start + line.facts.get().len()));
        }
        index
    }

    /// What is known under a key, if it is still true.
    pub(super) fn get(&self, key: &str, stamp: Stamp) -> Option<Facts> {
        let (known, facts) = self.known.get(key)?;
        if *known != stamp {
            return None;
        }
        serde_json::from_str(&self.text[facts.clone()]).ok()
    }

    /// Remembers something.
    pub(super) fn put(&mut self, key: String, stamp: Stamp, facts: &Facts) {
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

    /// Writes what is new. An index that cannot be written costs time at the next call, nothing else.
    pub(super) fn close(self) {
        if self.fresh.is_empty() {
            return;
        }
        let Some((path, folder)) = self.path.as_deref().and_then(|path| Some((path, path.parent()?))) else {
            return;
        };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            // Only the user may read it: it holds the beginnings of prompts. Others see the old one or the new one whole.
            let mut file = tempfile::Builder::new().prefix(".sessions").tempfile_in(folder)?;
            let mut out = std::io::BufWriter::with_capacity(1 << 20, file.as_file_mut());
            self.write(&mut out)?;
            out.into_inner()?;
            file.persist(path)?;
            Ok(())
        };
        // There is nobody to tell, and nothing that they could do.
        let _ = write();
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, &Header::ours())?;
        out.write_all(b"\n")?;
        for (key, (stamp, facts)) in &self.known {
            // What belongs to files that are gone goes with them.
            if self.fresh.contains_key(key) || !key.split('\n').all(|path| Path::new(path).exists()) {
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
