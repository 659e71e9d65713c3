//! Stores the content of a large session in an unnamed file that only this process can read.

use agentline_core::ContentStore;
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    ops::Range,
    sync::{Arc, Mutex},
};

/// A temporary file to which content is appended.
#[derive(Debug)]
pub(crate) struct TemporaryStore(Mutex<File>);

impl TemporaryStore {
    pub(crate) fn create() -> io::Result<Arc<dyn ContentStore>> {
        Ok(Arc::new(Self(Mutex::new(tempfile::tempfile()?))))
    }
}

impl ContentStore for TemporaryStore {
    fn write(&self, bytes: &[u8]) -> Option<Range<u64>> {
        let mut file = self.0.lock().ok()?;
        let start = file.seek(SeekFrom::End(0)).ok()?;
        file.write_all(bytes).ok()?;
        Some(start..start + bytes.len() as u64)
    }

    fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
        let mut file = self.0.lock().ok()?;
        file.seek(SeekFrom::Start(range.start)).ok()?;
        file.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}
