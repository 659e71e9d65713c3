//! A run in its own workspace, and what becomes of its changes: they are applied to the original and can be undone, or
//! they are discarded.

use crate::{
    Agentline, Error,
    fs::{
        disk_fs::canonicalize,
        private_dir::{ISOLATED, PrivateDir, create_dir_all, write_new},
        regular_file::read_regular,
        remove::remove_tree,
    },
    workspace::{
        change_in_copy::ChangeInCopy,
        copy::{ApplyError, WorkspaceCopy},
        overlay::{IsolationMethod, OverlayPlace, OverlayRoot, fits_overlay},
        snapshot::ActiveWorkspace,
        worktree,
        write_back::{FileState, WriteBack},
    },
};
use agentline_core::Problem;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The directory below the cache with the workspaces of runs.
const WORKSPACES: &str = "isolated";
/// The directory below the cache with the changes that were applied.
const APPLIED: &str = "applied";
/// The largest stored change that is read.
const MAX_CHANGE: u64 = 1 << 30;

/// A workspace of one run. Dropping it removes it.
#[derive(Debug)]
pub struct IsolatedWorkspace {
    copy: WorkspaceCopy,
    method: IsolationMethod,
    /// Unmounted before its directory is removed.
    _place: Option<OverlayPlace>,
    dir: PrivateDir,
    cache: PathBuf,
    active_runs: PathBuf,
}

/// A change that was applied, with what is needed to undo it.
#[derive(Debug, Serialize, Deserialize)]
struct AppliedChange {
    original: PathBuf,
    before: Vec<ChangeInCopy>,
    after: Vec<ChangeInCopy>,
    /// The directories that the change created, parents first.
    created_dirs: Vec<PathBuf>,
}

impl Agentline {
    /// Returns the directory in which isolated workspaces are created, for
    /// [`enter_namespace`](crate::isolate::enter_namespace).
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn isolated_workspaces(&self) -> Result<PathBuf, Error> {
        let parent = self.host_env().cache.join(WORKSPACES);
        create_dir_all(&parent).map_err(Error::io("create", &parent))?;
        Ok(parent)
    }

    /// Creates a workspace for one run with the files of `original`: by this method, or an overlay where that is possible
    /// and a copy otherwise. Blocks.
    ///
    /// # Errors
    /// Fails if the original is not a directory, or if it cannot be isolated by this method.
    pub fn isolate(
        &self,
        original: &Path,
        method: Option<IsolationMethod>,
    ) -> Result<IsolatedWorkspace, Error> {
        let original = self.host_env().cwd.join(original);
        let original = canonicalize(&original).ok().filter(|dir| dir.is_dir()).ok_or_else(|| {
            let problem = Problem::new("working_dir", format!("`{}` is not a directory", original.display()));
            Error::Usage(problem.hint("pass an existing directory with `--cwd`").into())
        })?;
        let parent = self.isolated_workspaces()?;
        let dir =
            PrivateDir::create(&parent, ISOLATED).map_err(Error::io("create a directory in", &parent))?;
        let refused = |method: IsolationMethod, error: &io::Error| {
            let message = format!("`{}` does not work for `{}`: {error}", method.name(), original.display());
            Error::Usage(Problem::new("isolate", message).hint("use `--isolate=copy`").into())
        };
        let (mut place, mut chosen) = (None, method.unwrap_or(IsolationMethod::Copy));
        if matches!(method, None | Some(IsolationMethod::Overlay)) {
            match overlay(&original, dir.path(), &[&self.host_env().home, &self.inner().temp_dir()]) {
                Ok(mounted) => (place, chosen) = (Some(mounted), IsolationMethod::Overlay),
                Err(error) if method.is_some() => return Err(refused(IsolationMethod::Overlay, &error)),
                Err(_) => {}
            }
        }
        let name = original.file_name().map_or_else(|| "workspace".into(), PathBuf::from);
        let root = dir.path().join(name);
        let copy = match (&place, chosen) {
            (Some(place), _) => place.copy().map(WorkspaceCopy::with_original),
            (None, IsolationMethod::Worktree) => {
                let added = worktree::check(&original).and_then(|()| worktree::add(&original, "HEAD", &root));
                added.map(|()| WorkspaceCopy::existing(&original, &root))
            }
            (None, _) => WorkspaceCopy::make(&original, &root, &parent, &|| false),
        };
        let copy = copy.map_err(|error| refused(chosen, &error))?;
        let (cache, active_runs) = (self.host_env().cache.clone(), self.inner().active_runs());
        Ok(IsolatedWorkspace { copy, method: chosen, _place: place, dir, cache, active_runs })
    }

    /// Takes back the applied change of a run, by the id of the run: all of it, or nothing. Returns the paths. Blocks.
    ///
    /// # Errors
    /// Fails if no change of this run is stored, if one of its files has changed since, or if a file cannot be written.
    pub fn undo(&self, run: &str) -> Result<Vec<PathBuf>, ApplyError> {
        let stored = stored_path(&self.host_env().cache, run);
        let applied = stored.as_deref().and_then(|path| read_regular(path, MAX_CHANGE).ok());
        let applied: AppliedChange = applied
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| ApplyError::NotApplied(run.to_owned()))?;
        let _active = ActiveWorkspace::enter(&self.inner().active_runs(), &applied.original);
        applied.undo()?;
        if let Some(path) = stored {
            let _ = fs::remove_file(path);
        }
        Ok(applied.before.iter().map(|change| change.path().to_owned()).collect())
    }
}

/// Mounts an overlay of a directory. A cold agent starts in it.
fn overlay(original: &Path, dir: &Path, writable: &[&Path]) -> io::Result<OverlayPlace> {
    if !fits_overlay(original, &[writable, &[dir]].concat())? {
        let reason =
            "it has files of other users, links that lead back to it, or the home or temporary directory";
        return Err(io::Error::other(reason));
    }
    let mut place = OverlayRoot::new(dir, &[], &[original.to_owned()])?.place("run")?;
    place.mount(original, true)?;
    Ok(place)
}

/// Returns where the change of a run is stored; `None` if the id is not one.
fn stored_path(cache: &Path, run: &str) -> Option<PathBuf> {
    let is_id = !run.is_empty() && run.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    is_id.then(|| cache.join(APPLIED).join(format!("{run}.json")))
}

impl IsolatedWorkspace {
    /// Returns the directory in which the agent works.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.copy.root()
    }

    /// Returns how the workspace is isolated.
    #[must_use]
    pub fn method(&self) -> IsolationMethod {
        self.method
    }

    /// Applies the changes to the original: all of them, or none. Files that Git ignores, and Git's own, are not applied.
    /// Returns the paths. [`undo`](Agentline::undo) with the id of the run takes them back. Blocks.
    ///
    /// # Errors
    /// Fails if the original has changed in the meantime, or if a file cannot be written.
    pub fn apply(&self, run: &str) -> Result<Vec<PathBuf>, ApplyError> {
        let after = self.copy.applied_files()?;
        if after.is_empty() {
            return Ok(Vec::new());
        }
        let original = self.copy.original();
        let before = |change: &ChangeInCopy| {
            let path = change.path();
            let state = match FileState::read(&original.join(path)) {
                // A directory that a file replaces; its own files are further changes.
                Err(_) if original.join(path).is_dir() => FileState::Missing,
                state => state.map_err(|source| ApplyError::Io { path: path.to_owned(), source })?,
            };
            Ok(ChangeInCopy::new(path, state))
        };
        let change = AppliedChange {
            original: original.to_owned(),
            before: after.iter().map(before).collect::<Result<_, ApplyError>>()?,
            created_dirs: created_dirs(original, &after),
            after,
        };
        // Stored first, so that a change that was applied can always be undone.
        let stored = change.store(&self.cache, run);
        let stored = stored.map_err(|source| ApplyError::Io { path: self.cache.join(APPLIED), source })?;
        let applied = self.copy.apply(&self.active_runs);
        if applied.is_err() {
            let _ = fs::remove_file(stored);
        }
        applied
    }

    /// Keeps the files in a directory that is not removed, and returns it. Blocks.
    ///
    /// # Errors
    /// Fails if they cannot be copied.
    pub fn keep(self) -> io::Result<PathBuf> {
        let parent = self.dir.path().parent().unwrap_or(Path::new("/"));
        let id = uuid::Uuid::new_v4().simple().to_string();
        let kept = parent.join(format!("kept-{}", &id[..12]));
        WorkspaceCopy::make(self.path(), &kept, parent, &|| false)?;
        Ok(kept)
    }
}

impl Drop for IsolatedWorkspace {
    fn drop(&mut self) {
        if self.method == IsolationMethod::Worktree {
            remove_tree(self.path());
            let _ = worktree::prune(self.copy.original());
        }
    }
}

/// Returns the directories that these changes create, parents first.
fn created_dirs(original: &Path, changes: &[ChangeInCopy]) -> Vec<PathBuf> {
    let parents = changes.iter().flat_map(|change| change.path().ancestors().skip(1));
    let mut created: Vec<PathBuf> = parents
        .filter(|dir| !dir.as_os_str().is_empty() && !original.join(dir).is_dir())
        .map(Path::to_owned)
        .collect();
    created.sort();
    created.dedup();
    created
}

impl AppliedChange {
    fn store(&self, cache: &Path, run: &str) -> io::Result<PathBuf> {
        let path = stored_path(cache, run).ok_or(io::ErrorKind::InvalidInput)?;
        create_dir_all(&cache.join(APPLIED))?;
        write_new(&path, &serde_json::to_vec(self)?)?;
        Ok(path)
    }

    fn undo(&self) -> Result<(), ApplyError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ApplyError::Io { path, source }
        };
        let mut changed = Vec::new();
        for change in &self.after {
            let now = FileState::read(&self.original.join(change.path()));
            let applied = change.state().map_err(failed(change.path()))?;
            if !now.is_ok_and(|now| now.is_same_as(&applied)) {
                changed.push(change.path().to_owned());
            }
        }
        if !changed.is_empty() {
            return Err(ApplyError::ChangedSince(changed));
        }
        let mut files = WriteBack::new(&self.original);
        let is_removal = |change: &&ChangeInCopy| matches!(change, ChangeInCopy::Missing { .. });
        let (removed, written): (Vec<_>, Vec<_>) = self.before.iter().partition(is_removal);
        for change in removed.into_iter().chain(written) {
            let done = change.state().and_then(|state| files.write(change.path(), &state));
            if let Err(source) = done {
                files.undo();
                return Err(ApplyError::Io { path: change.path().to_owned(), source });
            }
            files.remove_empty_parents(change.path(), |dir| self.created_dirs.iter().any(|new| new == dir));
        }
        Ok(())
    }
}
