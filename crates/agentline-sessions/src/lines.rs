//! Reads sessions line by line, whatever the size of their files.

use crate::temporary_store::TemporaryStore;
use agentline_core::{
    Agent, ContentStore, MAX_CONTENT_IN_MEMORY, RawJson, ReadError, SavedSession, SessionFormat,
    SessionReader,
};
use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    sync::Arc,
};

/// The maximum length of a line in bytes. Longer lines are skipped.
pub(crate) const LONGEST_LINE: usize = 256 << 20;
/// The damage message for content that is not UTF-8.
pub(crate) const NOT_UTF8: &str = "contains invalid UTF-8, which is shown as U+FFFD";
/// The damage message for a line that is too long.
const TOO_LONG: &str = "longer than 256 MB; skipped";

/// Reads the lines of one session from one or more files.
///
/// It holds a bounded amount of content in memory and moves the rest to a temporary file. If that file cannot be
/// written, all content stays in memory.
pub(crate) struct LineSessionLoader {
    fold: Box<dyn SessionReader>,
    damage: Vec<ReadError>,
    lines: u64,
    /// Bytes of lines read since content was last moved to the store.
    buffered: usize,
    store: Option<Arc<dyn ContentStore>>,
}

impl LineSessionLoader {
    /// Creates a reader for this agent, or returns `None` if the agent does not store sessions as lines.
    pub(crate) fn new(agent: &dyn Agent) -> Option<Self> {
        let fold = agent.sessions().reader(SessionFormat::Lines)?;
        Some(Self { fold, damage: Vec::new(), lines: 0, buffered: 0, store: None })
    }

    /// Reads a file to its end.
    pub(crate) fn file(&mut self, file: File) -> io::Result<()> {
        let mut from = BufReader::with_capacity(256 << 10, file);
        let mut line = Vec::new();
        while read_line(&mut from, &mut line)? {
            self.line(&line);
            line.clear();
            line.shrink_to(1 << 20);
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        if line.len() > LONGEST_LINE {
            self.damage.push(ReadError::new(Some(self.lines), TOO_LONG));
            return;
        }
        let line =
            if self.lines == 1 { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) } else { line };
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        if matches!(text, Cow::Owned(_)) {
            self.damage.push(ReadError::new(Some(self.lines), NOT_UTF8));
        }
        self.buffered += text.len();
        self.fold.take(RawJson::new(text));
        if self.buffered > MAX_CONTENT_IN_MEMORY {
            self.buffered = 0;
            self.offload();
        }
    }

    fn offload(&mut self) {
        if self.store.is_none() {
            self.store = TemporaryStore::create().ok();
        }
        if let Some(store) = &self.store {
            self.fold.offload(store);
        }
    }

    /// Returns the session. The content of a large session is in a temporary file.
    pub(crate) fn finish(mut self) -> SavedSession {
        if self.store.is_some() {
            self.offload();
        }
        let mut session = self.fold.finish();
        session.damage.extend(self.damage);
        session
    }
}

/// Reads a line without its line feed. For a line that is too long, it keeps slightly more than the maximum length.
/// Returns whether there was a line.
fn read_line(from: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<bool> {
    let most = LONGEST_LINE as u64 + 2;
    let read = from.by_ref().take(most).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 == most {
        skip_line(from)?;
    }
    Ok(read > 0)
}

fn skip_line(from: &mut BufReader<File>) -> io::Result<()> {
    loop {
        let bytes = from.fill_buf()?;
        let end = memchr::memchr(b'\n', bytes);
        let used = end.map_or(bytes.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() || used == 0 {
            return Ok(());
        }
    }
}
