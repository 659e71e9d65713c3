//! Detects runs that are active in the same or nested workspaces at the same time, across processes.
//!
//! Each run has a file in a shared directory. It begins with the resolved path of the workspace and a NUL, and grows by
//! one byte for each run that overlaps with this one. The run is active while a process holds the lock on its file. A
//! pool reuses the files of its runs, because creating a file is slow; the path of an idle file is empty. The runs of a
//! pool find each other in memory, so that they neither read nor mark each other's files.
//!
//! A run first registers itself and then looks for others. So of two overlapping runs, the later one always finds the
//! earlier and marks it. Locks end with their process however it dies, even across containers, where process
//! ids are not comparable. The next run removes the files of dead runs.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::fs::disk_fs::canonicalize;
use crate::fs::path_bytes;
use crate::fs::private_dir;
use crate::fs::regular_file::open_regular;

/// The maximum length of a file: a path and its marks.
const LONGEST_FILE: u64 = 64 << 10;
/// How long a file may stay incomplete. The process that created an older one died before it registered its run.
const MAX_INCOMPLETE_AGE: Duration = Duration::from_secs(600);

/// Registers the active runs of a pool, and keeps their files for later ones.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns {
    own: Arc<Mutex<OwnRuns>>,
}

impl ActiveRuns {
    /// Registers a run in a workspace whose links are already resolved, for all runs that use the same `runtime_dir`.
    pub(crate) fn enter(&self, runtime_dir: &Path, workspace: &Path) -> io::Result<ActiveWorkspace> {
        let file = match self.idle_file(runtime_dir) {
            Some(file) => file,
            None => RunFile::create(runtime_dir)?,
        };
        let met_at_start = lock(&self.own).enter(&file.path, workspace);
        let own = Arc::clone(&self.own);
        let mut run = ActiveWorkspace { file: Some(file), unmarked: u64::MAX, met_at_start, own };
        run.announce(runtime_dir, workspace)?;
        Ok(run)
    }

    fn idle_file(&self, runtime_dir: &Path) -> Option<RunFile> {
        let mut own = lock(&self.own);
        let at = own.idle.iter().position(|file| file.path.parent() == Some(runtime_dir))?;
        // A file that someone else has removed is invisible to other runs.
        Some(own.idle.swap_remove(at)).filter(|file| file.path.exists())
    }
}

fn lock(own: &Mutex<OwnRuns>) -> MutexGuard<'_, OwnRuns> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runs of a pool.
#[derive(Debug, Default)]
struct OwnRuns {
    idle: Vec<RunFile>,
    active: Vec<OwnRun>,
}

#[derive(Debug)]
struct OwnRun {
    /// The path of its file.
    file: PathBuf,
    workspace: PathBuf,
    /// Whether a run of the pool that began later overlaps with this one.
    is_met: bool,
}

impl OwnRuns {
    /// Adds a run. Marks the runs that overlap with it, and returns whether there are any.
    fn enter(&mut self, file: &Path, workspace: &Path) -> bool {
        let is_near = |other: &OwnRun| other.file.parent() == file.parent();
        let mut met = false;
        for other in self.active.iter_mut().filter(|other| is_near(other)) {
            if overlap(&other.workspace, workspace) {
                (other.is_met, met) = (true, true);
            }
        }
        self.active.push(OwnRun { file: file.to_owned(), workspace: workspace.to_owned(), is_met: false });
        met
    }

    /// Removes a run, and returns whether a later one overlapped with it.
    fn leave(&mut self, file: &Path) -> bool {
        let at = self.active.iter().position(|run| run.file == file);
        at.is_some_and(|at| self.active.swap_remove(at).is_met)
    }

    fn has_file(&self, name: &OsStr) -> bool {
        let files = self.idle.iter().map(|idle| &idle.path).chain(self.active.iter().map(|run| &run.file));
        // The names are unique, and this is faster than taking paths apart.
        let mut files = files.map(|file| file.as_os_str().as_encoded_bytes());
        files.any(|file| file.ends_with(name.as_encoded_bytes()))
    }
}

/// Returns whether one workspace is the other or contains it.
fn overlap(one: &Path, other: &Path) -> bool {
    one.as_os_str() == other.as_os_str() || one.starts_with(other) || other.starts_with(one)
}

/// The file of a run, locked. Dropping it removes it.
#[derive(Debug)]
struct RunFile {
    path: PathBuf,
    file: File,
}

impl RunFile {
    fn create(runtime_dir: &Path) -> io::Result<Self> {
        let path = runtime_dir.join(Uuid::new_v4().to_string());
        let file = match private_dir::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_dir::create_dir_all(runtime_dir).and_then(|()| private_dir::create_new(&path))
            }
            created => created,
        }?;
        let new = Self { path, file };
        // The file is locked before it is complete, so that a complete file without a lock belongs to a dead run.
        new.file.lock()?;
        Ok(new)
    }

    /// Overwrites the beginning of the file.
    fn write(&self, content: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(content)
    }

    fn is_longer_than(&self, length: u64) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() > length)
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // A forked child may hold a copy of the descriptor, and with it the lock.
        let _ = self.file.unlock();
    }
}

/// A registered active run. Dropping it ends the registration.
#[derive(Debug)]
pub struct ActiveWorkspace {
    /// Missing only after the end.
    file: Option<RunFile>,
    /// The length of the file without the marks of this run.
    unmarked: u64,
    met_at_start: bool,
    own: Arc<Mutex<OwnRuns>>,
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
        ActiveRuns::default().enter(runtime_dir, &canonicalize(workspace)?)
    }

    /// Writes the file of the run, and looks for runs of others.
    fn announce(&mut self, runtime_dir: &Path, workspace: &Path) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut content = Vec::new();
        path_bytes::push_path_bytes(workspace.as_os_str(), &mut content);
        content.push(0);
        file.write(&content)?;
        self.unmarked = file.file.metadata()?.len();
        self.met_at_start |= mark_others(runtime_dir, &self.own, workspace)?;
        Ok(())
    }

    /// Returns whether another run has been active in the same, an inner or an outer directory since `enter`.
    #[must_use]
    pub fn overlapped(&self) -> bool {
        let is_met = |file: &RunFile| {
            lock(&self.own).active.iter().any(|run| run.is_met && run.file == file.path)
                || file.is_longer_than(self.unmarked)
        };
        self.met_at_start || self.file.as_ref().is_some_and(is_met)
    }

    /// Ends the registration and returns whether another run overlapped with this one.
    pub(crate) fn leave(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(file) = self.file.take() else { return false };
        let is_hidden = file.write(&[0]).is_ok();
        let is_marked = file.is_longer_than(self.unmarked);
        let mut own = lock(&self.own);
        let is_met = own.leave(&file.path);
        // A file with marks is removed. Otherwise it would grow beyond the limit, and other runs would no longer read it.
        if is_hidden && !is_marked {
            own.idle.push(file);
        }
        self.met_at_start || is_met || is_marked
    }
}

impl Drop for ActiveWorkspace {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the file of another run says.
enum OtherRun {
    /// It is active in this workspace.
    Active(PathBuf),
    /// Its file is incomplete or idle. If a run uses it later, that run looks for others and finds this one.
    Inactive,
    /// Its process has exited without removing the file.
    Dead,
}

impl OtherRun {
    fn read(path: &Path) -> io::Result<Self> {
        let mut file = open_regular(path, LONGEST_FILE)?;
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            let age = metadata.modified()?.elapsed().unwrap_or_default();
            return Ok(if age < MAX_INCOMPLETE_AGE { Self::Inactive } else { Self::Dead });
        }
        // The probe takes a shared lock, so that two probes do not mistake each other for a live run.
        if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return Ok(Self::Dead);
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        match content.iter().position(|&byte| byte == 0) {
            None | Some(0) => Ok(Self::Inactive),
            Some(end) => Ok(Self::Active(path_bytes::path_from_bytes(&content[..end]))),
        }
    }
}

/// Marks every live run of others whose workspace overlaps with this one, removes the files of dead runs, and returns
/// whether there was a live one.
fn mark_others(runtime_dir: &Path, own: &Mutex<OwnRuns>, workspace: &Path) -> io::Result<bool> {
    let mut met = false;
    for entry in fs::read_dir(runtime_dir)? {
        let name = entry?.file_name();
        if lock(own).has_file(&name) {
            continue;
        }
        let path = runtime_dir.join(name);
        match OtherRun::read(&path) {
            Ok(OtherRun::Active(other)) if overlap(&other, workspace) => {
                met = true;
                match OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(&[1])) {
                    // The run has ended in the meantime.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    marked => marked?,
                }
            }
            Ok(OtherRun::Dead) => {
                let _ = fs::remove_file(&path);
            }
            // An unreadable file is most likely that of a run which has ended in the meantime.
            Ok(OtherRun::Active(_) | OtherRun::Inactive) | Err(_) => {}
        }
    }
    Ok(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reused_and_still_show_every_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let (long, short) = (dir.path().join("a/long/workspace"), dir.path().join("short"));
        let runtime = dir.path().join("runtime");
        let files = || fs::read_dir(&runtime).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let (ours, others) = (ActiveRuns::default(), ActiveRuns::default());

        assert!(!ours.enter(&runtime, &long).unwrap().leave());
        let idle = files();
        let run = ours.enter(&runtime, &short).unwrap();
        assert_eq!(files(), idle, "the file is reused");

        // An idle file is no active run, and a reused one shows its new workspace only.
        let other = others.enter(&runtime, &long).unwrap();
        assert!(!run.overlapped() && !other.overlapped());
        assert!(!other.leave());
        let same = others.enter(&runtime, &short).unwrap();
        assert!(run.overlapped() && same.overlapped());
        assert!(run.leave() && same.leave());
        assert_eq!(files().len(), 1, "the file of the first run has a mark, that of the second has none");

        assert!(!ours.enter(&runtime, &short).unwrap().leave());
        let idle = files();
        assert_eq!(idle.len(), 2);
        idle.iter().for_each(|path| fs::remove_file(path).unwrap());
        let third = ours.enter(&runtime, &short).unwrap();
        assert_eq!(files().len(), 1, "a removed file is not reused");
        assert!(!third.leave());
        drop(ours);
        drop(others);
        assert_eq!(files().len(), 0, "nothing is left");
    }

    #[test]
    fn runs_of_one_pool_overlap_without_marks_in_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let (outer, inner, apart) = (dir.path().join("a"), dir.path().join("a/b"), dir.path().join("c"));
        let (runtime, elsewhere) = (dir.path().join("runtime"), dir.path().join("elsewhere"));
        let lengths = || {
            let files = fs::read_dir(&runtime).unwrap().map(|entry| entry.unwrap());
            files.map(|file| file.metadata().unwrap().len()).collect::<Vec<_>>()
        };
        let pool = ActiveRuns::default();
        let first = pool.enter(&runtime, &outer).unwrap();
        let alone = pool.enter(&runtime, &apart).unwrap();
        let other_cache = pool.enter(&elsewhere, &outer).unwrap();
        assert!(!first.overlapped() && !alone.overlapped() && !other_cache.overlapped());
        let before = lengths();
        let second = pool.enter(&runtime, &inner).unwrap();
        assert!(first.overlapped() && second.overlapped());
        assert_eq!(lengths().iter().sum::<u64>(), before.iter().sum::<u64>() + second.unmarked);
        assert!(first.leave() && second.leave() && !alone.leave() && !other_cache.leave());

        assert_eq!(lengths().len(), 3, "the files are kept");
        let later = pool.enter(&runtime, &outer).unwrap();
        assert_eq!((lengths().len(), later.overlapped()), (3, false), "the runs before it have ended");
        // A run of another process marks the file.
        assert!(!ActiveRuns::default().enter(&runtime, &apart).unwrap().leave());
        assert!(ActiveRuns::default().enter(&runtime, &inner).unwrap().leave());
        assert!(later.leave());
        assert_eq!(lengths().len(), 2, "a file with marks is not kept");
    }
}
