//! Everything in which a copy differs from the original, so that its state can be restored: also what Git ignores,
//! repositories, empty directories and permissions.

use super::{ApplyError, WorkspaceCopy, is_in_repository, spelled};
use crate::fs::path_bytes::path_from_bytes;
use crate::workspace::{
    change_in_copy::ChangeInCopy,
    tree::{TreeStamps, mode},
    write_back::FileState,
};
use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
};

/// The changes of a copy, to restore its state later with [`restore`](crate::isolate::restore).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredChanges {
    /// The changes.
    pub changes: Vec<ChangeInCopy>,
    /// Why the changes of ignored files and of repositories are not among them, if they are not.
    pub ignored_left_out: Option<String>,
}

impl WorkspaceCopy {
    /// Also records what Git ignores, for [`stored_changes`](Self::stored_changes). An overlay needs no record. Blocks.
    ///
    /// # Errors
    /// Fails if a directory cannot be read.
    pub fn with_ignored(self) -> io::Result<Self> {
        if self.layers.is_some() {
            return Ok(self);
        }
        Ok(Self { everything: Some(TreeStamps::take(&self.root, None)?), ..self })
    }

    /// Returns everything in which the copy differs from the original, except for pipes, sockets and devices. The changed
    /// files have at most `limit` bytes. If those that the original makes Git ignore, and those of repositories, have
    /// more than `limit_of_ignored` bytes, they are left out. Blocks.
    ///
    /// # Errors
    /// Fails if the copy cannot be compared with the original, or if the changed files are too large.
    pub fn stored_changes(&self, limit: u64, limit_of_ignored: u64) -> Result<StoredChanges, ApplyError> {
        let differing = self.everything_differing()?;
        if differing.is_empty() {
            return Ok(StoredChanges::default());
        }
        let candidates = self.candidates(&self.stamps_by_original_rules())?;
        let (mut left, mut left_of_ignored) = (limit, limit_of_ignored);
        let (mut changes, mut ignored) = (Vec::new(), Vec::new());
        let mut ignored_left_out = None;
        let is_counted: HashSet<&Path> = candidates.iter().map(PathBuf::as_path).collect();
        for path in differing {
            let is_ignored = !is_counted.contains(path.as_path());
            if is_ignored && ignored_left_out.is_some() {
                continue;
            }
            let (left, list) =
                if is_ignored { (&mut left_of_ignored, &mut ignored) } else { (&mut left, &mut changes) };
            match self.stored_change(&path, left) {
                Ok(change) => list.extend(change),
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge && is_ignored => {
                    ignored_left_out = Some(format!(
                        "the changed files that Git ignores, with {}, have more than {limit_of_ignored} bytes",
                        path.display()
                    ));
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Err(ApplyError::TooLarge { path, limit });
                }
                Err(source) => return Err(ApplyError::Io { path, source }),
            }
        }
        if ignored_left_out.is_none() {
            changes.append(&mut ignored);
        }
        Ok(StoredChanges { changes, ignored_left_out })
    }

    /// Returns at most this many files that differ from the original although its rules make Git ignore them, those that
    /// the original has first. Repositories, directories, permissions and what the commands did that prepared the copy do
    /// not count. Blocks.
    ///
    /// # Errors
    /// Fails if the copy cannot be compared with the original.
    pub fn ignored_changes(&self, most: usize) -> Result<Vec<String>, ApplyError> {
        let differing = self.everything_differing()?;
        if differing.is_empty() {
            return Ok(Vec::new());
        }
        let candidates = self.candidates(&self.stamps_by_original_rules())?;
        let is_counted: HashSet<&Path> = candidates.iter().map(PathBuf::as_path).collect();
        let after = match &self.everything_prepared {
            Some(_) => {
                Some(TreeStamps::take(&self.root, self.layers.as_ref()).map_err(|_| ApplyError::Unknown)?)
            }
            None => None,
        };
        let is_prepared = |path: &Path| {
            let both = self.everything_prepared.as_ref().zip(after.as_ref());
            both.is_some_and(|(prepared, after)| prepared.has_same(after, path))
        };
        let is_file = |root: &Path, path: &Path| {
            root.join(path).symlink_metadata().is_ok_and(|metadata| !metadata.is_dir())
        };
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for path in differing {
            if is_counted.contains(path.as_path()) || is_in_repository(&path) || is_prepared(&path) {
                continue;
            }
            let was_file = is_file(&self.original, &path);
            if (was_file || is_file(&self.root, &path)) && self.change_kind(&path)?.is_some() {
                if was_file { &mut known } else { &mut new }.push(spelled(&path));
            }
        }
        known.extend(new);
        known.truncate(most);
        Ok(known)
    }

    /// Returns the paths of everything whose metadata is not as in the original, or which only one of both has.
    fn everything_differing(&self) -> Result<Vec<PathBuf>, ApplyError> {
        let take = |root: &Path| {
            let taken = TreeStamps::take(root, self.layers.as_ref());
            taken.map_err(|source| ApplyError::Io { path: root.to_owned(), source })
        };
        let template = self.layers.as_ref().map(|layers| take(&layers.template)).transpose()?;
        let before = template.as_ref().or(self.everything.as_ref()).ok_or(ApplyError::Unknown)?;
        Ok(before.differing(&take(&self.root)?).into_iter().map(Path::to_owned).collect())
    }

    /// Returns how a path differs from the original. Its content is subtracted from the bytes that are left.
    fn stored_change(&self, path: &Path, left: &mut u64) -> io::Result<Option<ChangeInCopy>> {
        let before = self.original.join(path).symlink_metadata().ok();
        let now = match self.root.join(path).symlink_metadata() {
            Err(_) => {
                return Ok(before.map(|_| ChangeInCopy::Missing { path: path.to_owned() }));
            }
            Ok(now) => now,
        };
        if now.is_dir() {
            let is_same = before.is_some_and(|before| before.is_dir() && mode(&before) == mode(&now));
            let directory = || ChangeInCopy::Directory { path: path.to_owned(), mode: mode(&now) };
            return Ok((!is_same).then(directory));
        }
        if !now.is_file() && !now.is_symlink() {
            return Ok(None);
        }
        let state = self.with_relative_link(path, FileState::read_up_to(&self.root.join(path), *left)?);
        if before.is_some_and(|before| !before.is_dir()) && state == self.state_in_original(path) {
            return Ok(None);
        }
        *left = left.checked_sub(state.size()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(Some(ChangeInCopy::new(path, state)))
    }

    /// Makes a link into the copy a relative one, because the state is restored in another place.
    fn with_relative_link(&self, path: &Path, state: FileState) -> FileState {
        let FileState::Link { target } = &state else { return state };
        let target = path_from_bytes(target);
        let Ok(inside) = target.strip_prefix(&self.root) else { return state };
        let up: PathBuf = path.components().skip(1).map(|_| "..").collect();
        let relative = up.join(inside);
        let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
        FileState::Link { target: relative.into_os_string().into_encoded_bytes() }
    }
}
