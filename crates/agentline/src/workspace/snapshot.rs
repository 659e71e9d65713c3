//! Detects which files really changed, by comparing snapshots of the workspace before and after a run.
//!
//! A snapshot records names, sizes and times and, for a small workspace, contents. Which files belong to the
//! workspace follows git: nested `.gitignore` files, `.git/info/exclude` and the user's own excludes apply, with or
//! without a repository. Hidden files are included, `.git` never is. Directories themselves are not recorded.
//!
//! A regular file is compared as follows:
//!
//! | difference | result |
//! |---|---|
//! | size | modified |
//! | modification time | modified, unless the old content is known and is the same |
//! | only change time and inode (replaced by a file of the same age) | as for the modification time |
//! | only change time (mode, owner, links) | unchanged, unless the old content is known and differs |
//! | none | unchanged, unless a racy file's old content is known and differs |
//!
//! The old content is known in two cases. For a workspace of at most 500 files and 2 MiB, all contents are kept, which
//! also gives exact counts of added and removed lines. Otherwise a fingerprint is kept of racy files, as git calls
//! them: files written so shortly before the snapshot that a later write may leave the same time. So a file of a large
//! workspace that is rewritten with the same content is reported as modified.
//!
//! Changes to files that git tracks although an ignore rule covers them are not detected, unless a tool reported them.

mod active;
mod compare;
mod content;
mod gitignore;
mod lines;
pub(crate) mod memo;
pub(crate) mod prints;
mod reported;
mod rules;
pub(crate) mod shared_walk;
pub(crate) mod stamps;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

pub(crate) use crate::workspace::snapshot::active::ActiveRuns;
pub use crate::workspace::snapshot::active::ActiveWorkspace;
pub use crate::workspace::snapshot::content::line_count;

use crate::fs::stamp::FileStamp;
use crate::process::OverlayLayers;
use crate::workspace::snapshot::content::KnownContent;

/// The maximum number of files and directories that one thread checks faster than a second thread can start.
const SINGLE_THREAD_LIMIT: usize = 32;

/// Limits of one snapshot, so that a run in `/` or in a home directory does not take minutes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// The maximum number of files to record. The default is 1,000,000.
    pub max_files: usize,
    /// The maximum time to spend. The default is 10 s.
    pub max_time: Duration,
    /// The number of threads that walk the tree. The default is the number of cores, at most 4.
    pub threads: usize,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        // Counting the cores reads several files, so it is done once.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(2, usize::from));
        Self { max_files: 1_000_000, max_time: Duration::from_secs(10), threads: cores.min(4) }
    }
}

impl SnapshotOptions {
    /// Sets the maximum number of files to record.
    #[must_use]
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// Sets the maximum time to spend.
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = time;
        self
    }

    /// Returns what a walk with these limits has in common with others that it can be shared with.
    pub(crate) fn walk_key(&self, root: &Path, with_contents: bool) -> shared_walk::WalkKey {
        shared_walk::WalkKey { root: root.to_owned(), with_contents, max_time: self.max_time }
    }

    /// Returns the deadline of a snapshot that begins now.
    fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.max_time)
    }

    /// Sets the number of threads that walk the tree.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }
}

/// The state of a workspace's files at one time.
#[derive(Debug)]
pub struct Snapshot {
    /// The workspace with all links resolved, so that every path to it is the same.
    root: PathBuf,
    began: SystemTime,
    /// Sorted by path.
    entries: Vec<Entry>,
    /// The bytes of all paths, concatenated. Paths are relative to the root and use `/`.
    paths: Vec<u8>,
    /// The known contents, sorted by the index of the entry.
    contents: Arc<Vec<(u32, KnownContent)>>,
    /// The walked directories including the root, or none if there are too many to check again.
    dirs: Vec<Entry>,
    skipped: u64,
    truncated: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u32,
    len: u32,
    stamp: FileStamp,
}

/// One file that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotChange {
    /// Relative to the workspace, with `/`, if inside it; absolute otherwise. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// How the change is known.
    pub evidence: Evidence,
    /// The number of added lines, if known: all lines of a new text file, none of a deleted one.
    pub added: Option<u64>,
    /// The number of removed lines, if known: none of a new file; of others only if the old content was kept.
    pub removed: Option<u64>,
}

impl SnapshotChange {
    /// Returns whether the disk itself proves that the file changed.
    #[must_use]
    pub fn verified(&self) -> bool {
        self.evidence != Evidence::Missing
    }
}

/// The kind of change to a file. A rename is one deletion and one creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The file did not exist before.
    Created,
    /// The file existed before and is different now.
    Modified,
    /// The file existed before and does not exist now.
    Deleted,
}

/// The evidence for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Both snapshots cover the path, and they differ.
    Compared,
    /// The earlier snapshot does not cover the path (ignored, outside, or past a limit), but the file's own times are
    /// later than the snapshot. A file that was replaced as a whole is reported as created.
    Times,
    /// The earlier snapshot does not cover the path, the file does not exist, and its directory changed since. Whether
    /// the file existed before is not known.
    Missing,
}

impl Snapshot {
    /// Records the files under `root`. Unreadable files are skipped and counted, so this never fails.
    ///
    /// Blocks on the file system.
    ///
    /// ```
    /// use agentline::internals::snapshot::{ChangeKind, Snapshot, SnapshotOptions};
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

    /// Records what a run has changed in an overlay: the files as they are in the template, and as they are now. `began`
    /// is the time before the run.
    pub(crate) fn of_overlay(
        root: &Path,
        layers: &OverlayLayers,
        began: SystemTime,
        options: &SnapshotOptions,
    ) -> (Self, Self) {
        let deadline = options.deadline();
        let after = walk::take_changed(root, layers, None, options, deadline);
        let before =
            walk::take_changed(&layers.template, layers, None, options, deadline).with_contents(deadline);
        (Self { root: after.root.clone(), began, ..before }, after)
    }

    /// Returns the snapshot of an empty workspace.
    pub(crate) fn empty(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            began: SystemTime::now(),
            entries: Vec::new(),
            paths: Vec::new(),
            contents: Arc::default(),
            dirs: Vec::new(),
            skipped: 0,
            truncated: false,
        }
    }

    /// Records the same workspace again, as the later side of a comparison.
    ///
    /// This reads no contents, so it is cheaper than [`take`](Self::take), and cheaper still if nothing has changed.
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
            dirs: self.dirs.clone(),
            skipped: 0,
            truncated: false,
        }
    }

    /// Returns whether the snapshot is small and nothing has changed since it was taken.
    pub(crate) fn is_small_and_current(&self) -> bool {
        self.is_settled() && self.is_still_true()
    }

    /// Returns whether a new walk would give the same result: no directory has a new time, which adding or removing an
    /// entry sets, and every file has the same times.
    fn is_still_true(&self) -> bool {
        let is_same = |entry: &Entry| {
            let metadata = self.on_disk(self.path(entry)).symlink_metadata();
            metadata.is_ok_and(|metadata| FileStamp::of_any(&metadata) == entry.stamp)
        };
        // Times do not show changes right after they were set.
        let is_clear = |dir: &Entry| !dir.stamp.is_racy(self.began);
        cfg!(unix)
            && !self.dirs.is_empty()
            && self.complete()
            && self.dirs.iter().all(|dir| is_clear(dir) && is_same(dir))
            && self.entries.iter().all(is_same)
    }

    /// Returns the changes from this snapshot to `after`, sorted by path.
    ///
    /// Paths in `reported` (absolute, or relative to the workspace) are checked even if git ignores them or they are
    /// outside the workspace.
    #[must_use]
    pub fn compare(&self, after: &Self, reported: &[PathBuf]) -> Vec<SnapshotChange> {
        compare::compare(self, after, reported, None).changes
    }

    /// Compares like [`compare`](Self::compare) until a deadline, and returns whether the comparison is complete.
    pub(crate) fn compare_until(
        &self,
        after: &Self,
        reported: &[PathBuf],
        deadline: Instant,
    ) -> (Vec<SnapshotChange>, bool) {
        let compared = compare::compare(self, after, reported, Some(deadline));
        (compared.changes, compared.is_complete)
    }

    /// Formats a path like [`SnapshotChange::path`], so that a path reported by a tool can be matched with a change.
    #[must_use]
    pub fn spell(&self, path: &Path) -> String {
        reported::ReportedPath::of(&self.root, path).spelled()
    }

    /// Returns the old content of a regular file, by its path in a [`SnapshotChange`], if it was kept.
    pub(crate) fn content_before(&self, path: &str) -> Option<&[u8]> {
        compare::old_content(self, &reported::ReportedPath::of(&self.root, Path::new(path)))
    }

    /// Returns the current content of a regular file, by its path in a [`SnapshotChange`], unless it is large.
    pub(crate) fn content_now(&self, path: &str) -> Option<Vec<u8>> {
        const MOST: u64 = 2 << 20;
        let path = self.root.join(path);
        path.symlink_metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= MOST)?;
        content::whole(&path)
    }

    /// Returns the time before the workspace was walked.
    pub(crate) fn began(&self) -> SystemTime {
        self.began
    }

    /// Returns the number of recorded files.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of files and directories that could not be read.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns whether a limit of [`SnapshotOptions`] was reached, so that changes may be missing.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the number of bytes that this snapshot holds in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        (self.entries.capacity() + self.dirs.capacity()) * size_of::<Entry>()
            + self.paths.capacity()
            + self.contents.capacity() * size_of::<(u32, KnownContent)>()
            + self.contents.iter().map(|(_, known)| known.memory()).sum::<usize>()
    }

    /// Returns whether every readable file was recorded, so that a missing path did not exist.
    fn complete(&self) -> bool {
        !self.truncated && self.skipped == 0
    }

    fn path(&self, entry: &Entry) -> &[u8] {
        &self.paths[entry.offset as usize..][..entry.len as usize]
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.path(entry).cmp(path)).ok()
    }

    fn known(&self, entry: usize) -> Option<&KnownContent> {
        let number = u32::try_from(entry).ok()?;
        let found = self.contents.binary_search_by_key(&number, |(entry, _)| *entry).ok()?;
        Some(&self.contents[found].1)
    }

    /// Returns the location on disk of a recorded path.
    fn on_disk(&self, path: &[u8]) -> PathBuf {
        self.root.join(crate::fs::path_bytes::path_from_bytes(path))
    }
}
