//! Tells runs that are active in the same or nested workspaces at the same time about each other, across processes.
//!
//! Each run has files of its own in a folder that all share, named by an id that is never used twice:
//!
//! | file | content | meaning |
//! |---|---|---|
//! | `ID.early` | the resolved path of the workspace | the run is about to show itself |
//! | `ID.run` | the same file under its later name | the run is active while someone holds the lock on it |
//! | `ID.met` | nothing | another run has seen this one |
//!
//! A run first shows itself and then looks for others, so of two that overlap the later one always sees the earlier and
//! leaves it a mark. Locks end with their process however it dies, also where process ids mean different things
//! (containers), so nothing has to be guessed about what a dead process left; whoever looks next removes it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::stamp;
use crate::private_dir;
use crate::regular_file::open_regular;

/// The longest path of a workspace that is read.
const LONGEST_PATH: u64 = 64 << 10;
/// A run that has not shown itself this long after it began to has died on the way.
const ENTERING: Duration = Duration::from_secs(600);

/// An active run; it ends when this is dropped.
#[derive(Debug)]
pub struct ActiveRun {
    files: RunFiles,
    lock: File,
    met_at_start: bool,
    is_over: bool,
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
        Self::enter_resolved(runtime_dir, &workspace.canonicalize()?)
    }

    /// The same for a workspace whose links are resolved.
    pub(crate) fn enter_resolved(runtime_dir: &Path, workspace: &Path) -> io::Result<Self> {
        let files = RunFiles::new(runtime_dir, &Uuid::new_v4().to_string());
        let shown = match Self::show(&files, workspace) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                private_dir::create_dir_all(runtime_dir).and_then(|()| Self::show(&files, workspace))
            }
            shown => shown,
        };
        let entered = shown.and_then(|lock| {
            let met_at_start = meet_others(runtime_dir, &files, workspace)?;
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

    /// Whether any other run was active in the same, an inner or an outer folder at any moment so far.
    #[must_use]
    pub fn overlapped(&self) -> bool {
        self.met_at_start || self.files.met.exists()
    }

    /// Ends it, and says whether any other run was active there at any moment.
    pub(crate) fn leave(mut self) -> bool {
        self.is_over = true;
        self.end() || self.met_at_start
    }

    /// Says whether somebody has left a mark.
    fn end(&self) -> bool {
        // It was renamed, and a mark is seldom there.
        let _ = fs::remove_file(&self.files.run);
        let is_met = fs::remove_file(&self.files.met).is_ok();
        // A forked child may still hold a copy of the file, and with it the lock.
        let _ = self.lock.unlock();
        is_met
    }

    fn show(files: &RunFiles, workspace: &Path) -> io::Result<File> {
        let mut path = Vec::new();
        stamp::push_path_bytes(workspace.as_os_str(), &mut path);
        // The lock is held and the path is there before the name appears, so that nobody ever sees a live run without them.
        let mut lock = private_dir::create_new(&files.early)?;
        lock.lock()?;
        lock.write_all(&path)?;
        fs::rename(&files.early, &files.run)?;
        Ok(lock)
    }
}

impl Drop for ActiveRun {
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

    /// The file that makes the run visible goes first; what cannot be removed is found stale by others.
    fn remove(&self) {
        for file in [&self.run, &self.early, &self.met] {
            let _ = fs::remove_file(file);
        }
    }

    /// The workspace of a run that is active. A probe takes a shared lock, so that two probes never take each other for a
    /// live run.
    fn place(&self) -> Option<PathBuf> {
        let mut file = open_regular(&self.run, LONGEST_PATH).ok()?;
        if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return None;
        }
        let mut place = Vec::new();
        file.read_to_end(&mut place).ok()?;
        Some(stamp::path_from_bytes(&place))
    }

    fn is_entering(&self) -> bool {
        let written = self.early.metadata().and_then(|about| about.modified());
        written.is_ok_and(|written| written.elapsed().map_or(true, |age| age < ENTERING))
    }
}

/// Marks every live run whose workspace touches ours, clears away dead ones, and says whether there was a live one.
fn meet_others(folder: &Path, own: &RunFiles, workspace: &Path) -> io::Result<bool> {
    let mut met = false;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let path = Path::new(&name);
        let Some(id) = path.file_stem().and_then(|id| id.to_str()) else { continue };
        let other = RunFiles::new(folder, id);
        // Asked first: one that shows itself in this moment has its later name already.
        if other.run == own.run || other.is_entering() {
            continue;
        }
        let Some(place) = other.place() else {
            other.remove();
            continue;
        };
        if place.starts_with(workspace) || workspace.starts_with(&place) {
            met = true;
            private_dir::create_file(&other.met)?;
            if !other.run.exists() {
                // It ended in the meantime and has no more use for the mark.
                let _ = fs::remove_file(&other.met);
            }
        }
    }
    Ok(met)
}
