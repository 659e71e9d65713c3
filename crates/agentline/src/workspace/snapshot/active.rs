//! Detects runs that are active in the same or nested workspaces at the same time, across processes.
//!
//! Each run has its own files in a shared directory, named by an id that is never reused:
//!
//! | file | content | meaning |
//! |---|---|---|
//! | `ID.early` | the resolved path of the workspace | the run is about to be registered |
//! | `ID.run` | the same file, renamed | the run is active while a process holds the lock on it |
//! | `ID.met` | nothing | another run has overlapped with this one |
//!
//! A run first registers itself and then looks for others. So of two overlapping runs, the later one always finds the
//! earlier and marks it. Locks end with their process however it dies, even across containers, where process
//! ids are not comparable. The next run removes the files of dead runs.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use crate::fs::path_bytes;
use crate::fs::private_dir;
use crate::fs::regular_file::open_regular;

/// The maximum length of a workspace path.
const LONGEST_PATH: u64 = 64 << 10;
/// The maximum age of an `ID.early` file. An older one belongs to a process that died.
const MAX_EARLY_AGE: Duration = Duration::from_secs(600);

/// A registered active run. Dropping it ends the registration.
#[derive(Debug)]
pub struct ActiveWorkspace {
    files: RunFiles,
    lock: File,
    met_at_start: bool,
    is_over: bool,
}

impl ActiveWorkspace {
    /// Registers a run in `workspace` for all runs that use the same `runtime_dir`, which is created if missing.
    ///
    /// Call this before the first snapshot, and [`ActiveWorkspace::overlapped`] after the last.
    ///
    /// # Errors
    ///
    /// Fails if the directory is not writable, or its file system does not support locks.
    pub fn enter(runtime_dir: &Path, workspace: &Path) -> io::Result<Self> {
        Self::enter_resolved(runtime_dir, &workspace.canonicalize()?)
    }

    /// Registers a run in a workspace whose links are already resolved.
    pub(crate) fn enter_resolved(runtime_dir: &Path, workspace: &Path) -> io::Result<Self> {
        let files = RunFiles::new(runtime_dir, &Uuid::new_v4().to_string());
        let shown = match Self::show(&files, workspace) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                private_dir::create_dir_all(runtime_dir).and_then(|()| Self::show(&files, workspace))
            }
            shown => shown,
        };
        let entered = shown.and_then(|lock| {
            let met_at_start = register_run(runtime_dir, &files, workspace)?;
            Ok((lock, met_at_start))
        });
        match entered {
            Ok((lock, met_at_start)) => Ok(Self { files, lock, met_at_start, is_over: false }),
            Err(why) => {
                files.remove();
                Err(why)
            }
        }
    }

    /// Returns whether another run has been active in the same, an inner or an outer directory since `enter`.
    #[must_use]
    pub fn overlapped(&self) -> bool {
        self.met_at_start || self.files.met.exists()
    }

    /// Ends the registration and returns whether another run overlapped with this one.
    pub(crate) fn leave(mut self) -> bool {
        self.is_over = true;
        self.end() || self.met_at_start
    }

    /// Removes the files and returns whether another run left a mark.
    fn end(&self) -> bool {
        // `ID.early` was renamed, and `ID.met` rarely exists.
        let _ = fs::remove_file(&self.files.run);
        let is_met = fs::remove_file(&self.files.met).is_ok();
        // A forked child may hold a copy of the descriptor, and with it the lock.
        let _ = self.lock.unlock();
        is_met
    }

    fn show(files: &RunFiles, workspace: &Path) -> io::Result<File> {
        let mut path = Vec::new();
        path_bytes::push_path_bytes(workspace.as_os_str(), &mut path);
        // The file is locked and complete before it gets its final name, so no process sees a live run without either.
        let mut lock = private_dir::create_new(&files.early)?;
        lock.lock()?;
        lock.write_all(&path)?;
        fs::rename(&files.early, &files.run)?;
        Ok(lock)
    }
}

impl Drop for ActiveWorkspace {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
        }
    }
}

#[derive(Debug)]
struct RunFiles {
    early: PathBuf,
    run: PathBuf,
    met: PathBuf,
}

impl RunFiles {
    fn new(folder: &Path, id: &str) -> Self {
        let named = |kind| folder.join(format!("{id}.{kind}"));
        Self { early: named("early"), run: named("run"), met: named("met") }
    }

    /// Removes the visible file first. Files that cannot be removed are treated as stale by others.
    fn remove(&self) {
        for file in [&self.run, &self.early, &self.met] {
            let _ = fs::remove_file(file);
        }
    }

    /// Returns the workspace of the run if it is active. The probe takes a shared lock, so that two probes do not
    /// mistake each other for a live run.
    fn active_workspace(&self) -> Option<PathBuf> {
        let mut file = open_regular(&self.run, LONGEST_PATH).ok()?;
        if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return None;
        }
        let mut place = Vec::new();
        file.read_to_end(&mut place).ok()?;
        Some(path_bytes::path_from_bytes(&place))
    }

    fn is_entering(&self) -> bool {
        let written = self.early.metadata().and_then(|about| about.modified());
        written.is_ok_and(|written| written.elapsed().map_or(true, |age| age < MAX_EARLY_AGE))
    }
}

/// Marks every live run whose workspace overlaps with this one, removes the files of dead runs, and returns whether
/// there was a live one.
fn register_run(folder: &Path, own: &RunFiles, workspace: &Path) -> io::Result<bool> {
    let mut met = false;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let path = Path::new(&name);
        let Some(id) = path.file_stem().and_then(|id| id.to_str()) else { continue };
        let other = RunFiles::new(folder, id);
        // `is_entering` must be checked first: a run that registers at this moment then already has its final name.
        if other.run == own.run || other.is_entering() {
            continue;
        }
        let Some(place) = other.active_workspace() else {
            other.remove();
            continue;
        };
        if place.starts_with(workspace) || workspace.starts_with(&place) {
            met = true;
            private_dir::create_file(&other.met)?;
            if !other.run.exists() {
                // The run ended in the meantime and did not remove the mark.
                let _ = fs::remove_file(&other.met);
            }
        }
    }
    Ok(met)
}
