//! Writes the files of a stored run: all of them or none.

use super::{
    entry::{CacheEntry, ChangedContent, ChangedFile},
    key::CacheKey,
};
use crate::{
    agentline::Inner,
    fs::{digest::hex, digester::Digester},
    workspace::{
        snapshot::{ActiveWorkspace, prints::FilePrints},
        write_back::{FileState, WriteBack},
    },
};
use std::{io, path::Path};

/// Writes the files and verifies that the workspace then matches the state after the stored run.
///
/// # Errors
/// Fails if a file cannot be written or the workspace does not match. The changes are undone as far as possible.
pub(super) fn restore(inner: &Inner, cache_key: &CacheKey, entry: &CacheEntry) -> io::Result<()> {
    // Registers the write, so that other runs in this workspace know about it.
    let _active = ActiveWorkspace::enter(&inner.active_runs(), &cache_key.cwd);
    let mut files = WriteBack::new(&cache_key.cwd);
    let written = write_all(entry, &mut files).and_then(|()| {
        let after = FilePrints::take(&cache_key.cwd, &cache_key.own, &inner.memory.files)
            .map_err(io::Error::other)?;
        let as_it_was = state(&after) == entry.meta.after;
        as_it_was.then_some(()).ok_or_else(|| io::Error::other("another process changed the workspace"))
    });
    if written.is_err() {
        files.undo();
    }
    written
}

/// Returns the digest of a whole workspace.
pub(super) fn state(prints: &FilePrints) -> String {
    let mut digester = Digester::default();
    prints.digest(&mut digester);
    hex(&digester.finish())
}

/// Returns the current kind and content of a path.
pub(super) fn found(path: &Path) -> io::Result<(ChangedFile, Vec<u8>)> {
    let (what, mode, content) = match FileState::read(path)? {
        FileState::Missing => (ChangedContent::Nothing, None, Vec::new()),
        FileState::File { mode, content } => (ChangedContent::File, mode, content),
        FileState::Link { target } => (ChangedContent::Link, None, target),
    };
    Ok((ChangedFile { what, mode, bytes: content.len(), ..ChangedFile::default() }, content))
}

fn write_all(entry: &CacheEntry, files: &mut WriteBack<'_>) -> io::Result<()> {
    for (file, content) in entry.files() {
        let content = content.to_vec();
        let state = match file.what {
            ChangedContent::Nothing => FileState::Missing,
            ChangedContent::File => FileState::File { mode: file.mode, content },
            ChangedContent::Link => FileState::Link { target: content },
        };
        files.write(Path::new(&file.path), &state)?;
    }
    Ok(())
}
