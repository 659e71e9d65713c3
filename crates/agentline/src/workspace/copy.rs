//! A copy of a workspace in which an agent works without touching the original, and the way back: what changed in the
//! copy, and the same changes in the original.

mod everything;

pub use everything::StoredChanges;

use crate::fs::{
    path_bytes::path_from_bytes,
    regular_file::read_regular,
    stamp::{FileKind, FileStamp},
};
use crate::process::OverlayLayers;
#[cfg(feature = "diffs")]
use crate::workspace::patch::CopyPatch;
use crate::workspace::{
    change_in_copy::ChangeInCopy,
    snapshot::{ActiveWorkspace, stamps::FileStamps},
    tree::TreeStamps,
    write_back::{FileState, WriteBack},
};
#[cfg(feature = "diffs")]
use agentline_core::Redactor;
use agentline_core::{DiskChange, FileChangeKind};
#[cfg(feature = "diffs")]
use std::collections::HashSet;
use std::{
    fs::{self, File, Metadata},
    io,
    path::{Component, Path, PathBuf},
};

/// The maximum number of files and directories that are copied.
const MAX_ENTRIES: usize = 500_000;
/// The sum of the sizes of all changed files that are read, in bytes.
const MAX_CHANGED: u64 = 4 << 30;
/// The number of changed paths that a message names.
const NAMED: usize = 5;

/// A copy of a workspace.
#[derive(Debug)]
pub struct WorkspaceCopy {
    original: PathBuf,
    root: PathBuf,
    /// The files of the original before it was copied.
    original_before: FileStamps,
    /// The files of the copy before its agent started.
    before: FileStamps,
    /// Files that could not be part of the copy, with the reason.
    pub(crate) left_out: Vec<String>,
    /// The files after the commands that prepare the copy, if there were any, by the ignore rules of the original.
    prepared: Option<FileStamps>,
    /// Everything in the copy before its agent started, also what Git ignores, if that was requested.
    everything: Option<TreeStamps>,
    /// Everything in the copy after the commands that prepare it.
    everything_prepared: Option<TreeStamps>,
    /// The layers of the copy if it is an overlay. Then only what is in the upper one is compared.
    layers: Option<OverlayLayers>,
    /// Whether a later change of the original leaves the copy as it is. It shows through an overlay.
    is_independent: bool,
}

/// Why the changes of a copy were not applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Files of the original changed since it was copied.
    #[error("the workspace has changed since it was copied: {}", path_list(.0))]
    Changed(Vec<PathBuf>),
    /// Files changed after the change was applied.
    #[error("files have changed since: {}", path_list(.0))]
    ChangedSince(Vec<PathBuf>),
    /// No applied change of this run is stored.
    #[error("no applied change of the run `{0}` is stored")]
    NotApplied(String),
    /// The workspace is too large to be compared as a whole.
    #[error("the workspace is too large, or not readable enough, to tell whether it has changed")]
    Unknown,
    /// A file is too large, or all changed files together are.
    #[error("the changed files, with {}, have more than {limit} bytes", .path.display())]
    TooLarge {
        /// The path in the workspace.
        path: PathBuf,
        /// The number of bytes that all changed files may have.
        limit: u64,
    },
    /// A file could not be read or written. All earlier changes were undone.
    #[error("cannot write {}", .path.display())]
    Io {
        /// The path in the workspace.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn path_list(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

impl WorkspaceCopy {
    /// Copies a workspace to a path that does not exist or is an empty directory, without the directory `skip`. File systems that can share the content of files do so. Blocks.
    ///
    /// # Errors
    /// Fails if a file cannot be copied, the workspace is too large, or `is_cancelled` returns `true`.
    pub fn make(
        original: &Path,
        root: &Path,
        skip: &Path,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let original_before = FileStamps::take(original);
        let mut copier = Copier { original, root, skip, is_cancelled, entries: 0, left_out: Vec::new() };
        copier.tree()?;
        let left_out = copier.left_out;
        let (original, root) = (original.to_owned(), root.to_owned());
        let before = FileStamps::take(&root);
        Ok(Self {
            original,
            root,
            original_before,
            before,
            left_out,
            prepared: None,
            everything: None,
            everything_prepared: None,
            layers: None,
            is_independent: true,
        })
    }

    /// Treats an existing directory with the files of a workspace, such as an overlay, as a copy of it. Blocks.
    #[must_use]
    pub fn existing(original: &Path, root: &Path) -> Self {
        let (original_before, before) = (FileStamps::take(original), FileStamps::take(root));
        let (original, root) = (original.to_owned(), root.to_owned());
        let left_out = Vec::new();
        Self {
            original,
            root,
            original_before,
            before,
            left_out,
            prepared: None,
            everything: None,
            everything_prepared: None,
            layers: None,
            is_independent: false,
        }
    }

    /// Treats a mounted overlay as a copy of its template. Its changes can be read, but not applied.
    pub(crate) fn of_layers(root: &Path, layers: &OverlayLayers) -> Self {
        Self {
            original: layers.template.clone(),
            root: root.to_owned(),
            original_before: FileStamps::default(),
            before: FileStamps::default(),
            left_out: Vec::new(),
            prepared: None,
            everything: None,
            everything_prepared: None,
            layers: Some(layers.clone()),
            is_independent: false,
        }
    }

    /// Records the state of the original, so that changes can be applied to it. Blocks.
    pub(crate) fn with_original(self) -> Self {
        Self { original_before: FileStamps::take(&self.original), ..self }
    }

    /// Returns the directory of the original.
    pub(crate) fn original(&self) -> &Path {
        &self.original
    }

    /// Returns the directory of the copy.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the files that differ from the original, each with its state in the copy. Files that Git ignores, and
    /// Git's own, are not compared. Blocks.
    ///
    /// # Errors
    /// Fails with the path that cannot be read.
    fn changes(&self) -> Result<Vec<(PathBuf, FileState)>, ApplyError> {
        let take = |root: &Path| match &self.layers {
            Some(layers) => FileStamps::take_changed(root, layers, None),
            None => FileStamps::take(root),
        };
        self.read_changes(&take(&self.root), MAX_CHANGED)
    }

    /// Reads the files that are not as in the original, at most `limit` bytes.
    fn read_changes(&self, after: &FileStamps, limit: u64) -> Result<Vec<(PathBuf, FileState)>, ApplyError> {
        let mut changes = Vec::new();
        let mut left = limit;
        for path in self.candidates(after)? {
            let now = match self.state_in_copy(&path, left) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Err(ApplyError::TooLarge { path, limit });
                }
                now => now.map_err(|source| ApplyError::Io { path: path.clone(), source })?,
            };
            if !now.is_same_as(&self.state_in_original(&path)) {
                left = left.saturating_sub(now.size());
                changes.push((path, now));
            }
        }
        Ok(changes)
    }

    /// Returns the state of a file in the copy.
    fn state_in_copy(&self, path: &Path, limit: u64) -> io::Result<FileState> {
        match FileState::read_up_to(&self.root.join(path), limit) {
            // A directory took the place of the file.
            Err(_) if self.root.join(path).is_dir() => Ok(FileState::Missing),
            now => now.map(|now| self.as_in_original(now)),
        }
    }

    fn state_in_original(&self, path: &Path) -> FileState {
        FileState::read(&self.original.join(path)).unwrap_or(FileState::Missing)
    }

    /// Returns the paths whose metadata is not as in the original, or which only one of both has.
    fn candidates(&self, after: &FileStamps) -> Result<Vec<PathBuf>, ApplyError> {
        let template =
            self.layers.as_ref().map(|layers| FileStamps::take_changed(&layers.template, layers, None));
        let before = template.as_ref().unwrap_or(&self.before);
        if !before.is_complete || !after.is_complete {
            return Err(ApplyError::Unknown);
        }
        Ok(before.differing(after).map(Path::to_owned).collect())
    }

    /// Returns how a file differs from the original, other than by its permissions. Reads only what must be compared.
    fn change_kind(&self, path: &Path) -> Result<Option<FileChangeKind>, ApplyError> {
        let failed = |source| ApplyError::Io { path: path.to_owned(), source };
        let found = |root: &Path| root.join(path).symlink_metadata().ok();
        let (now, before) = (found(&self.root), found(&self.original));
        match (now.filter(Metadata::is_file), &before) {
            (Some(now), Some(before)) if before.is_file() && now.len() != before.len() => {
                return Ok(Some(FileChangeKind::Modified));
            }
            (Some(_), Some(before)) if before.is_symlink() => return Ok(Some(FileChangeKind::Modified)),
            (Some(_), before) if before.as_ref().is_none_or(|before| !before.is_file()) => {
                return Ok(Some(FileChangeKind::Created));
            }
            _ => {}
        }
        let now = self.state_in_copy(path, MAX_CHANGED).map_err(failed)?;
        Ok(match (&now, &self.state_in_original(path)) {
            (now, before) if now.is_same_as(before) => None,
            (FileState::File { content: now, .. }, FileState::File { content: before, .. })
                if now == before =>
            {
                None
            }
            (FileState::Missing, _) => Some(FileChangeKind::Deleted),
            (_, FileState::Missing) => Some(FileChangeKind::Created),
            _ => Some(FileChangeKind::Modified),
        })
    }

    /// Notes that the copy is prepared: what differs from the original now is not reported by
    /// [`all_changes`](Self::all_changes) and [`ignored_changes`](Self::ignored_changes) later. Blocks.
    pub fn note_prepared(&mut self) {
        self.prepared = Some(self.stamps_by_original_rules());
        self.everything_prepared = TreeStamps::take(&self.root, self.layers.as_ref()).ok();
    }

    fn stamps_by_original_rules(&self) -> FileStamps {
        match &self.layers {
            Some(layers) => FileStamps::take_changed(&self.root, layers, Some(&self.original)),
            None => FileStamps::take_by_rules_of(&self.original, &self.root),
        }
    }

    /// Returns at most this many files that differ from the original, by the ignore rules of the original: a rule that
    /// was added in the copy hides nothing, and neither does a repository. Permissions do not count. Blocks.
    ///
    /// # Errors
    /// Fails if the copy cannot be compared with the original.
    pub fn all_changes(&self, most: usize) -> Result<Vec<DiskChange>, ApplyError> {
        let after = self.stamps_by_original_rules();
        let mut changes = Vec::new();
        for path in self.candidates(&after)?.into_iter().filter(|path| !self.is_prepared(path, &after)) {
            let Some(kind) = self.change_kind(&path)? else { continue };
            changes.push(DiskChange::new(spelled(&path), kind));
            if changes.len() == most {
                break;
            }
        }
        Ok(changes)
    }

    /// Returns whether a file is as the commands left it that prepared the copy.
    fn is_prepared(&self, path: &Path, after: &FileStamps) -> bool {
        self.prepared.as_ref().is_some_and(|prepared| prepared.get(path) == after.get(path))
    }

    /// Returns the files that differ from the original, each with its content, by the ignore rules of the original: a
    /// rule that was added in the copy hides nothing. Together, they have at most `limit` bytes. Blocks.
    ///
    /// # Errors
    /// Fails if the copy cannot be compared with the original, or if the changed files are too large.
    pub fn changed_files(&self, limit: u64) -> Result<Vec<ChangeInCopy>, ApplyError> {
        let changes = self.read_changes(&self.stamps_by_original_rules(), limit)?;
        Ok(changes.into_iter().map(|(path, state)| ChangeInCopy::new(&path, state)).collect())
    }

    /// Returns the files that [`apply`](Self::apply) writes. Blocks.
    pub(crate) fn applied_files(&self) -> Result<Vec<ChangeInCopy>, ApplyError> {
        let changes = self.changes()?;
        Ok(changes.into_iter().map(|(path, state)| ChangeInCopy::new(&path, state)).collect())
    }

    /// Returns a patch from the original to these changes of the copy, as `git apply` takes it. What the commands did that
    /// prepared the copy is not in it, and neither are repositories and files that the rules of the original make Git
    /// ignore. Secrets are redacted. Blocks.
    ///
    /// # Errors
    /// Fails if the copy cannot be compared with the original.
    #[cfg(feature = "diffs")]
    pub fn patch(&self, changes: &[ChangeInCopy], redactors: &[&Redactor]) -> Result<CopyPatch, ApplyError> {
        if changes.is_empty() {
            return Ok(CopyPatch::default());
        }
        let after = self.stamps_by_original_rules();
        let candidates: HashSet<PathBuf> = self.candidates(&after)?.into_iter().collect();
        let mut patch = CopyPatch::default();
        for change in changes {
            let path = change.path();
            if is_in_repository(path) || !candidates.contains(path) || self.is_prepared(path, &after) {
                continue;
            }
            let now = match change.state() {
                // A directory took the place of the file.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => FileState::Missing,
                now => now.map_err(|source| ApplyError::Io { path: path.to_owned(), source })?,
            };
            let before = self.state_in_original(path);
            if !now.is_same_as(&before) {
                patch.add(&spelled(path), &before, &now, redactors);
            }
        }
        Ok(patch)
    }

    /// Lets a link into the copy lead into the original.
    fn as_in_original(&self, state: FileState) -> FileState {
        let FileState::Link { target } = &state else { return state };
        let copied = path_from_bytes(target);
        let Ok(inside) = copied.strip_prefix(&self.root) else { return state };
        FileState::Link { target: self.original.join(inside).into_os_string().into_encoded_bytes() }
    }

    /// Applies the changes of the copy to the original, unless the original has changed. Either all changes are applied
    /// or none. Returns the paths. Blocks.
    ///
    /// # Errors
    /// Fails if the original has changed, or if a file cannot be written.
    pub(crate) fn apply(&self, active_runs: &Path) -> Result<Vec<PathBuf>, ApplyError> {
        // Registers the write, so that other runs in this workspace know about it.
        let _active = ActiveWorkspace::enter(active_runs, &self.original);
        let changes = self.changes()?;
        self.check_original(&changes)?;
        let mut files = WriteBack::new(&self.original);
        // A file may have to be removed before a directory can take its place, and vice versa.
        let (removed, written): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(_, state)| *state == FileState::Missing);
        let is_gone = |dir: &Path| !self.root.join(dir).is_dir();
        for (path, state) in removed.into_iter().chain(written) {
            if let Err(source) = files.write(path, state) {
                files.undo();
                return Err(ApplyError::Io { path: path.clone(), source });
            }
            if *state == FileState::Missing {
                files.remove_empty_parents(path, is_gone);
            }
        }
        Ok(changes.into_iter().map(|(path, _)| path).collect())
    }

    /// Checks that the original is as it was when it was copied. A file that was only touched has not changed.
    fn check_original(&self, changes: &[(PathBuf, FileState)]) -> Result<(), ApplyError> {
        let now = FileStamps::take(&self.original);
        if !self.original_before.is_complete || !now.is_complete {
            return Err(ApplyError::Unknown);
        }
        let is_untouched = |path: &Path| {
            let state = |root: &Path| FileState::read(&root.join(path)).ok();
            let is_changed_in_copy = changes.iter().any(|(changed, _)| changed == path);
            self.is_independent
                && !is_changed_in_copy
                && state(&self.original).zip(state(&self.root)).is_some_and(|(a, b)| a.is_same_as(&b))
        };
        let differing = self.original_before.differing(&now).filter(|path| !is_untouched(path));
        let changed: Vec<PathBuf> = differing.map(Path::to_owned).collect();
        if changed.is_empty() { Ok(()) } else { Err(ApplyError::Changed(changed)) }
    }
}

struct Copier<'a> {
    original: &'a Path,
    root: &'a Path,
    /// A directory that is never copied: the one that holds the copies.
    skip: &'a Path,
    is_cancelled: &'a dyn Fn() -> bool,
    entries: usize,
    left_out: Vec<String>,
}

impl Copier<'_> {
    fn tree(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.root)?;
        let mut modes: Vec<(PathBuf, Metadata)> = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(dir) = waiting.pop() {
            let source = self.original.join(&dir);
            for entry in fs::read_dir(&source).map_err(at(&source))? {
                let entry = entry.map_err(at(&source))?;
                self.count()?;
                let path = dir.join(entry.file_name());
                let metadata = match entry.metadata() {
                    // The file vanished after the directory was listed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    metadata => metadata.map_err(at(&entry.path()))?,
                };
                if metadata.is_dir() {
                    if entry.path() != self.skip {
                        fs::create_dir(self.root.join(&path)).map_err(at(&path))?;
                        modes.push((self.root.join(&path), metadata));
                        waiting.push(path);
                    }
                } else {
                    self.file(&path, &metadata).map_err(at(&entry.path()))?;
                }
            }
        }
        // Children first: a directory may not be writable.
        for (dir, metadata) in modes.into_iter().rev() {
            fs::set_permissions(&dir, metadata.permissions())?;
        }
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        self.entries += 1;
        if (self.is_cancelled)() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.entries > MAX_ENTRIES {
            return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} files")));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let (from, to) = (self.original.join(path), self.root.join(path));
        match FileStamp::of_any(metadata).kind {
            FileKind::Link => link(&self.target(path, &fs::read_link(&from)?), &to),
            FileKind::File
                if path.file_name().is_some_and(|name| name == ".git") && !self.stays_inside(path) =>
            {
                let reason = "it leads to a repository outside the workspace, which the copy must not change";
                self.left_out.push(format!("{}: {reason}", path.display()));
                Ok(())
            }
            FileKind::File => {
                match fs::copy(&from, &to) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    copied => copied?,
                };
                // Build tools compare these times. Without them, they only do more work.
                if let (Ok(copy), Ok(modified)) = (File::open(&to), metadata.modified()) {
                    let _ = copy.set_modified(modified);
                }
                Ok(())
            }
            // A pipe, socket or device.
            _ => Ok(()),
        }
    }

    /// Returns the target of a copied link: one inside the workspace leads to the copy, and one outside leads to the
    /// same file as the original link.
    fn target(&self, link: &Path, target: &Path) -> PathBuf {
        if target.is_absolute() {
            let inside = target.strip_prefix(self.original);
            return inside.map_or_else(|_| target.to_owned(), |inside| self.root.join(inside));
        }
        let resolved = without_dots(&self.original.join(link.parent().unwrap_or(Path::new(""))).join(target));
        if resolved.starts_with(self.original) { target.to_owned() } else { resolved }
    }

    /// Returns whether the file `.git` of a submodule leads to a directory that is copied as well.
    fn stays_inside(&self, path: &Path) -> bool {
        let text = read_regular(&self.original.join(path), 64 << 10).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let Some(target) = text.trim().strip_prefix("gitdir:").map(str::trim) else { return false };
        let dir = self.original.join(path.parent().unwrap_or(Path::new("")));
        Path::new(target).is_relative() && without_dots(&dir.join(target)).starts_with(self.original)
    }
}

/// Returns whether a file means the same in an overlay at another path: it is no link into the original, no relative link
/// out of it, and no file `.git` that leads to a repository outside.
pub(super) fn is_portable(original: &Path, path: &Path, metadata: &Metadata) -> io::Result<bool> {
    let copier = Copier {
        original,
        root: original,
        skip: original,
        is_cancelled: &|| false,
        entries: 0,
        left_out: vec![],
    };
    Ok(match FileStamp::of_any(metadata).kind {
        FileKind::Link => {
            let target = fs::read_link(original.join(path))?;
            // A relative link out of the original becomes an absolute one in a copy.
            !target.starts_with(original) && copier.target(path, &target) == target
        }
        FileKind::File => path.file_name().is_none_or(|name| name != ".git") || copier.stays_inside(path),
        _ => true,
    })
}

/// Adds the path to an error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| match error.kind() {
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("{path}: {error}")),
    }
}

/// Returns whether a path is Git's own.
fn is_in_repository(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == ".git")
}

/// Formats a path as in reports, with `/`.
fn spelled(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

/// Resolves `.` and `..` without looking at the disk.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(unix)]
fn link(target: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

#[cfg(not(unix))]
fn link(_target: &Path, _at: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "symbolic links cannot be copied on this system"))
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
