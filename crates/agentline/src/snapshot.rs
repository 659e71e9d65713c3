//! Learns which files really changed: a snapshot of the workspace before, one after, and their comparison.
//!
//! A snapshot holds names, sizes and times, and contents only of a small workspace. What counts as a file of the workspace follows git: nested
//! `.gitignore` files, `.git/info/exclude` and the user's own excludes are honoured, with or without a repository; hidden
//! files count, `.git` never does. Directories are not listed, only what is in them.
//!
//! How two sightings of the same regular file are judged:
//!
//! | seen | verdict |
//! |---|---|
//! | size differs | modified |
//! | modification time differs | modified, unless the old content is known to be the same |
//! | only change time and inode differ (replaced by a file of the same age) | the same |
//! | only change time differs (mode, owner, links) | not a change, unless the old content is known to differ |
//! | nothing differs | the same |
//!
//! The old content is known in two cases. In a workspace of at most 500 files and 2 MiB all contents are kept, which also
//! gives exact counts of added and removed lines. Elsewhere there are fingerprints where the times alone could
//! lie: for files that were written so shortly before the snapshot that a later write may leave the same time (git calls
//! them racy). A file of a large workspace that is rewritten with the content it had is therefore told as modified: the
//! disk says that it was written, and nothing affordable says otherwise.
//!
//! What it cannot see: files that are tracked by git although an ignore rule covers them, unless a tool reported them.

mod active;
pub(crate) mod again;
mod compare;
mod content;
mod lines;
pub(crate) mod prints;
mod reported;
mod rules;
pub(crate) mod stamp;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

pub use active::ActiveRun;
pub use content::line_count;

use content::Known;
use stamp::Stamp;

/// So many files and folders are looked at in less time than another thread takes to wake up.
const SMALL: usize = 32;

/// Bounds on the work of one snapshot, so that a run in `/` or in a home folder never takes minutes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// The most files to record; 1,000,000 unless told.
    pub max_files: usize,
    /// The longest time to spend; 10 s unless told.
    pub max_time: Duration,
    /// How many threads walk the tree; as many as there are cores, at most 4, unless told.
    pub threads: usize,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        // To count them takes a dozen looks at the disk.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(2, usize::from));
        Self { max_files: 1_000_000, max_time: Duration::from_secs(10), threads: cores.min(4) }
    }
}

impl SnapshotOptions {
    /// Records at most this many files.
    #[must_use]
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// Spends at most this long.
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = time;
        self
    }

    /// When the time for a snapshot that begins now is over.
    fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.max_time)
    }

    /// Walks with this many threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }
}

/// What the files of a workspace looked like at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// The workspace with all links resolved, so that every spelling of it leads here.
    root: PathBuf,
    began: SystemTime,
    /// Sorted by path.
    entries: Vec<Entry>,
    /// The bytes of all paths, relative to the root and with `/`, one after the other.
    paths: Vec<u8>,
    /// What is known of contents, sorted by the number of the entry.
    contents: Arc<Vec<(u32, Known)>>,
    /// The folders that were walked, the workspace itself included; none where they are too many to be looked at again.
    folders: Vec<Entry>,
    skipped: u64,
    truncated: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u32,
    len: u32,
    stamp: Stamp,
}

/// One file that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Relative to the workspace, with `/`, when inside it; absolute otherwise. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// How we know.
    pub evidence: Evidence,
    /// Lines added, where that can be known: all lines of a new text file, none of a deleted one.
    pub added: Option<u64>,
    /// Lines removed, where that can be known: none of a new file; of others where the old content was kept.
    pub removed: Option<u64>,
}

impl Change {
    /// Whether the disk itself shows that the file changed in the meantime.
    #[must_use]
    pub fn verified(&self) -> bool {
        self.evidence != Evidence::Missing
    }
}

/// What happened to a file; a rename is one deleted and one created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there before.
    Created,
    /// It was there before and is different now.
    Modified,
    /// It was there before and is gone.
    Deleted,
}

/// How a change is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Both snapshots cover the path, and they differ.
    Compared,
    /// The snapshot before does not cover the path (ignored, outside, or past a limit), but the file's own times lie
    /// after it. A file that was replaced as a whole looks created this way.
    Times,
    /// The snapshot before does not cover the path, the file is not there, and something was removed from or added to its
    /// folder in the meantime. Whether the file existed before is not known.
    Missing,
}

impl Snapshot {
    /// Records the files under `root`; what cannot be read is skipped and counted, so this always gives a snapshot.
    ///
    /// It blocks on the file system; call it on a thread where that is fine.
    ///
    /// ```
    /// use agentline::snapshot::{ChangeKind, Snapshot, SnapshotOptions};
    ///
    /// let workspace = tempfile::tempdir()?;
    /// let options = SnapshotOptions::default();
    /// let before = Snapshot::take(workspace.path(), &options);
    /// std::fs::write(workspace.path().join("hello.txt"), "Hello\n")?;
    /// let after = before.take_again(&options);
    ///
    /// let changes = before.compare(&after, &[]);
    /// assert_eq!((changes[0].path.as_str(), changes[0].kind), ("hello.txt", ChangeKind::Created));
    /// assert_eq!((changes[0].added, changes[0].removed), (Some(1), Some(0)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn take(root: &Path, options: &SnapshotOptions) -> Self {
        let deadline = options.deadline();
        walk::take(root, options, deadline).with_contents(deadline)
    }

    /// Records the same workspace again, as the later side of a comparison: it reads no contents and so costs less, and
    /// less still where nothing has changed.
    #[must_use]
    pub fn take_again(&self, options: &SnapshotOptions) -> Self {
        let began = SystemTime::now();
        if !self.is_still_true() {
            return walk::take(&self.root, options, options.deadline());
        }
        Self {
            root: self.root.clone(),
            began,
            entries: self.entries.clone(),
            paths: self.paths.clone(),
            contents: Arc::default(),
            folders: self.folders.clone(),
            skipped: 0,
            truncated: false,
        }
    }

    /// Whether it is so small that a look at all of it takes no time, and that shows that nothing has changed since.
    pub(crate) fn is_small_and_still_true(&self) -> bool {
        self.is_settled() && self.is_still_true()
    }

    /// Whether a walk would find what this one found: what comes to a folder or goes from it leaves its time there, and
    /// every file has the times that it had.
    fn is_still_true(&self) -> bool {
        let is_same = |entry: &Entry| {
            let about = self.on_disk(self.path(entry)).symlink_metadata();
            about.is_ok_and(|about| Stamp::of_any(&about) == entry.stamp)
        };
        // Times tell nothing of what happened right after they were set.
        let is_clear = |folder: &Entry| !folder.stamp.is_racy(self.began);
        cfg!(unix)
            && !self.folders.is_empty()
            && self.complete()
            && self.folders.iter().all(|folder| is_clear(folder) && is_same(folder))
            && self.entries.iter().all(is_same)
    }

    /// Lists what changed from this snapshot to `after`, sorted by path.
    ///
    /// Paths in `reported` (absolute, or relative to the workspace) are looked at even when git ignores them or when they
    /// lie outside the workspace.
    #[must_use]
    pub fn compare(&self, after: &Self, reported: &[PathBuf]) -> Vec<Change> {
        compare::compare(self, after, reported, None).changes
    }

    /// As [`compare`](Self::compare), until a deadline. Says whether it came to its end.
    pub(crate) fn compare_until(
        &self,
        after: &Self,
        reported: &[PathBuf],
        deadline: Instant,
    ) -> (Vec<Change>, bool) {
        let compared = compare::compare(self, after, reported, Some(deadline));
        (compared.changes, compared.is_complete)
    }

    /// Spells a path the way that [`Change::path`] does, so that a tool's word for a file can be matched with a change.
    #[must_use]
    pub fn spell(&self, path: &Path) -> String {
        reported::Place::of(&self.root, path).spelled()
    }

    /// How many files were recorded.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.entries.len()
    }

    /// How many files and folders could not be read.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether a limit of [`SnapshotOptions`] cut the walk short, so that changes may be missing.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The bytes that this snapshot holds in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        (self.entries.capacity() + self.folders.capacity()) * size_of::<Entry>()
            + self.paths.capacity()
            + self.contents.capacity() * size_of::<(u32, Known)>()
            + self.contents.iter().map(|(_, known)| known.memory()).sum::<usize>()
    }

    /// Whether a path that is not in this snapshot was certainly not there, as far as limits and permissions go.
    fn complete(&self) -> bool {
        !self.truncated && self.skipped == 0
    }

    fn path(&self, entry: &Entry) -> &[u8] {
        &self.paths[entry.offset as usize..][..entry.len as usize]
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.path(entry).cmp(path)).ok()
    }

    fn known(&self, entry: usize) -> Option<&Known> {
        let number = u32::try_from(entry).ok()?;
        let found = self.contents.binary_search_by_key(&number, |(entry, _)| *entry).ok()?;
        Some(&self.contents[found].1)
    }

    /// Where the file of a recorded path lies on the disk.
    fn on_disk(&self, path: &[u8]) -> PathBuf {
        self.root.join(stamp::path_from_bytes(path))
    }
}
