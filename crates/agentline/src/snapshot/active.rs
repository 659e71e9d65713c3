//! Tells runs that are active in the same or nested workspaces at the same time about each other, across processes.
//!
//! Each run has files of its own in a folder that all share, named by an id that is never used twice:
//!
//! | file | content | meaning |
//! |---|---|---|
//! | `ID.place` | the resolved path of the workspace | written first |
//! | `ID.run` | nothing | the run is active while someone holds the lock on it |
//! | `ID.met` | nothing | another run has seen this one |
//!
//! A run first shows itself and then looks for others, so of two that overlap the later one always sees the earlier and
//! leaves it a mark. Locks end with their process however it dies, also where process ids mean different things
//! (containers), so nothing has to be guessed about what a dead process left; whoever looks next removes it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::stamp;

/// A run that has not shown itself this long after it began to has died on the way.
const ENTERING: Duration = Duration::from_secs(600);

/// An active run; it ends when this is dropped.
#[derive(Debug)]
pub struct ActiveRun {
    files: RunFiles,
    lock: File,
    met_at_start: bool,
}

impl ActiveRun {
    /// Shows a run in `workspace` to all others that use the same `runtime_dir`, which is made if need be.
    ///
    /// Enter before the first snapshot, and ask [`ActiveRun::overlapped`] after the last.
    ///
    /// # Errors
    ///
    /// When the folder cannot be written to, or its file system has no locks.
    pub fn enter(runtime_dir: &Path, workspace: &Path) -> io::Result<Self> {
        let workspace = workspace.canonicalize()?;
        fs::create_dir_all(runtime_dir)?;
        let files = RunFiles::new(runtime_dir, &Uuid::new_v4().to_string());
        let entered = Self::show(&files, &workspace).and_then(|lock| {
            let met_at_start = meet_others(runtime_dir, &files, &workspace)?;
            Ok((lock, met_at_start))
        });
        match entered {
            Ok((lock, met_at_start)) => Ok(Self { files, lock, met_at_start }),
            Err(why) => {
                files.remove();
                Err(why)
            }
        }
    }

    /// Whether any other run was active in the same, an inner or an outer folder at any moment so far.
    #[must_use]
    pub fn overlapped(&self) -> bool {
        self.met_at_start || self.files.met.exists()
    }

    fn show(files: &RunFiles, workspace: &Path) -> io::Result<File> {
        let mut path = Vec::new();
        stamp::push_path_bytes(workspace.as_os_str(), &mut path);
        fs::write(&files.place, path)?;
        // The lock is held before the name appears, so that nobody ever sees a live run without one.
        let lock = File::create_new(&files.early)?;
        lock.lock()?;
        fs::rename(&files.early, &files.run)?;
        Ok(lock)
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.files.remove();
        // A forked child may still hold a copy of the file, and with it the lock.
        let _ = self.lock.unlock();
    }
}

#[derive(Debug)]
struct RunFiles {
    place: PathBuf,
    early: PathBuf,
    run: PathBuf,
    met: PathBuf,
}

impl RunFiles {
    fn new(folder: &Path, id: &str) -> Self {
        let named = |kind| folder.join(format!("{id}.{kind}"));
        Self { place: named("place"), early: named("early"), run: named("run"), met: named("met") }
    }

    /// The file that makes the run visible goes first; what cannot be removed is found stale by others.
    fn remove(&self) {
        for file in [&self.run, &self.early, &self.met, &self.place] {
            let _ = fs::remove_file(file);
        }
    }

    /// A probe takes a shared lock, so that two probes never take each other for a live run.
    fn is_live(&self) -> bool {
        match File::open(&self.run).map(|file| file.try_lock_shared()) {
            Ok(Err(TryLockError::WouldBlock)) => true,
            Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
        }
    }

    fn is_entering(&self) -> bool {
        let written = self.place.metadata().and_then(|about| about.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        !self.run.exists() && age.is_none_or(|age| age < ENTERING)
    }
}

/// Marks every live run whose workspace touches ours, clears away dead ones, and says whether there was a live one.
fn meet_others(folder: &Path, own: &RunFiles, workspace: &Path) -> io::Result<bool> {
    let mut met = false;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_other = path.extension().is_some_and(|kind| kind == "place") && path != own.place;
        let Some(id) = path.file_stem().and_then(|id| id.to_str()).filter(|_| is_other) else { continue };
        let other = RunFiles::new(folder, id);
        if !other.is_live() {
            if !other.is_entering() {
                other.remove();
            }
            continue;
        }
        let Ok(place) = fs::read(&other.place) else { continue };
        let place = stamp::path_from_bytes(&place);
        if place.starts_with(workspace) || workspace.starts_with(&place) {
            met = true;
            File::create(&other.met)?;
            if !other.run.exists() {
                // It ended in the meantime and has no more use for the mark.
                let _ = fs::remove_file(&other.met);
            }
        }
    }
    Ok(met)
}
