//! Writes the files of a stored run: all of them or none.

use super::{
    entry::{CacheEntry, ChangedContent, ChangedFile},
    key::CacheKey,
};
use crate::{
    agentline::Inner,
    fs::{digest::hex, digester::Digester, regular_file::read_regular},
    workspace::snapshot::{ActiveWorkspace, prints::FilePrints},
};
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// Writes the files and verifies that the workspace then matches the state after the stored run.
///
/// # Errors
/// Fails if a file cannot be written or the workspace does not match. The changes are undone as far as possible.
pub(super) fn restore(inner: &Inner, cache_key: &CacheKey, entry: &CacheEntry) -> io::Result<()> {
    // Registers the write, so that other runs in this workspace know about it.
    let _active = ActiveWorkspace::enter(&inner.active_runs(), &cache_key.cwd);
    let mut undo = Undo::default();
    let written = write_all(&cache_key.cwd, entry, &mut undo).and_then(|()| {
        let after = FilePrints::take(&cache_key.cwd, &cache_key.own, &inner.memory.files)
            .map_err(io::Error::other)?;
        let as_it_was = state(&after) == entry.meta.after;
        as_it_was.then_some(()).ok_or_else(|| io::Error::other("another process changed the workspace"))
    });
    if written.is_err() {
        undo.undo();
    }
    written
}

/// Returns the digest of a whole workspace.
pub(super) fn state(prints: &FilePrints) -> String {
    let mut digester = Digester::default();
    prints.digest(&mut digester);
    hex(&digester.finish())
}

/// The state before the restore, for undoing it.
#[derive(Default)]
struct Undo {
    before: Vec<(PathBuf, ChangedFile, Vec<u8>)>,
    dirs: Vec<PathBuf>,
}

impl Undo {
    fn remember(&mut self, path: &Path) -> io::Result<()> {
        let (file, content) = found(path)?;
        self.before.push((path.to_owned(), file, content));
        Ok(())
    }

    fn undo(self) {
        // Errors are ignored here; the error that caused the undo is reported.
        for (path, file, content) in self.before.into_iter().rev() {
            let _ = match file.what {
                ChangedContent::Nothing => fs::remove_file(path),
                ChangedContent::File | ChangedContent::Link => put(&path, &file, &content),
            };
        }
        for dir in self.dirs.into_iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Returns the current kind and content of a path.
pub(super) fn found(path: &Path) -> io::Result<(ChangedFile, Vec<u8>)> {
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((ChangedFile { what: ChangedContent::Nothing, ..ChangedFile::default() }, Vec::new()));
        }
        metadata => metadata?,
    };
    let (kind, content) = match metadata.file_type() {
        kind if kind.is_file() => (ChangedContent::File, read_regular(path, u64::MAX)?),
        kind if kind.is_symlink() => {
            (ChangedContent::Link, fs::read_link(path)?.into_os_string().into_encoded_bytes())
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    Ok((
        ChangedFile { what: kind, mode: mode(&metadata), bytes: content.len(), ..ChangedFile::default() },
        content,
    ))
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> Option<u32> {
    Some(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777)
}

#[cfg(not(unix))]
fn mode(_about: &fs::Metadata) -> Option<u32> {
    None
}

fn write_all(cwd: &Path, entry: &CacheEntry, undo: &mut Undo) -> io::Result<()> {
    for (file, content) in entry.files() {
        let path = target_path(cwd, &file.path).ok_or(io::ErrorKind::InvalidInput)?;
        undo.remember(&path)?;
        match file.what {
            ChangedContent::Nothing => fs::remove_file(&path)?,
            ChangedContent::File | ChangedContent::Link => {
                create_parents(cwd, &path, undo)?;
                put(&path, file, content)?;
            }
        }
    }
    Ok(())
}

/// Returns the path of a file in the workspace; `None` if it leaves the workspace or passes through a link.
fn target_path(cwd: &Path, path: &str) -> Option<PathBuf> {
    let inside = Path::new(path);
    // Git's own files are never part of an entry, because hooks and configuration can start programs.
    let is_git = |part: &std::ffi::OsStr| part.eq_ignore_ascii_case(".git");
    let is_plain = inside.components().all(|part| matches!(part, Component::Normal(name) if !is_git(name)));
    let mut dir = cwd.to_owned();
    for part in inside.parent()?.components() {
        dir.push(part);
        if dir.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
            return None;
        }
    }
    (is_plain && !path.is_empty()).then(|| cwd.join(inside))
}

fn create_parents(cwd: &Path, path: &Path, undo: &mut Undo) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let missing: Vec<&Path> = parent.ancestors().take_while(|dir| *dir != cwd && !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        fs::create_dir(dir)?;
        undo.dirs.push(dir.to_owned());
    }
    Ok(())
}

/// Writes a file atomically, so that a partial file is never visible.
fn put(path: &Path, file: &ChangedFile, content: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    if file.what == ChangedContent::Link {
        return put_link(path, parent, content);
    }
    let mut temporary = tempfile::Builder::new().prefix(".agentline-").tempfile_in(parent)?;
    io::Write::write_all(&mut temporary, content)?;
    #[cfg(unix)]
    if let Some(mode) = file.mode {
        use std::os::unix::fs::PermissionsExt as _;
        temporary.as_file().set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
    }
    temporary.persist(path)?;
    Ok(())
}

#[cfg(unix)]
fn put_link(path: &Path, parent: &Path, target: &[u8]) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let target = Path::new(std::ffi::OsStr::from_bytes(target));
    let link = tempfile::Builder::new()
        .prefix(".agentline-")
        .make_in(parent, |at| std::os::unix::fs::symlink(target, at))?;
    link.into_temp_path().persist(path)?;
    Ok(())
}

#[cfg(not(unix))]
fn put_link(_path: &Path, _parent: &Path, _target: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        for bad in
            ["", "/etc/passwd", "../a", "a/../../b", "./a/..", ".git/hooks/post-commit", "a/.Git/config"]
        {
            assert_eq!(target_path(cwd, bad), None, "{bad}");
        }
        assert_eq!(target_path(cwd, "new/folder/a"), Some(cwd.join("new/folder/a")));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/", cwd.join("out")).unwrap();
            assert_eq!(target_path(cwd, "out/a"), None);
        }
    }
}
