//! Caches the snapshots of small workspaces, so that an unchanged workspace is not walked again.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::fs::{caching_fs::CachingFs, fingerprint::Fingerprint};
use crate::workspace::snapshot::rules::{git_settings, user_excludes};
use crate::workspace::snapshot::{SINGLE_THREAD_LIMIT, Snapshot, SnapshotOptions, shared_walk::SharedWalks};

/// The maximum number of cached workspaces.
const MAX_WORKSPACES: usize = 16;

/// The cache of recent snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotMemo {
    known: Mutex<VecDeque<Arc<Known>>>,
    /// Walks that concurrent runs share.
    pub(crate) walks: Arc<SharedWalks>,
}

#[derive(Debug)]
struct Known {
    snapshot: Snapshot,
    /// The files from which the ignore rules were read.
    rules: Fingerprint,
}

impl SnapshotMemo {
    /// Takes a snapshot like [`Snapshot::take`] of a workspace whose links are resolved. Blocks.
    pub(crate) fn take(&self, root: &Path, options: &SnapshotOptions) -> Snapshot {
        let began = SystemTime::now();
        let known = self.lock().iter().find(|known| known.snapshot.root == root).cloned();
        if let Some(known) = known {
            if known.rules.is_unchanged() && known.snapshot.is_small_and_current() {
                return known.snapshot.taken_at(began);
            }
            self.lock().retain(|other| !Arc::ptr_eq(other, &known));
        }
        let fs = CachingFs::default();
        let snapshot = self.walks.take(options.walk_key(root, true), || Snapshot::take(root, options));
        if snapshot.root == root
            && snapshot.is_settled()
            && snapshot.can_note_rules(&fs)
            && let Some(rules) = fs.fingerprint()
        {
            let mut all = self.lock();
            all.truncate(MAX_WORKSPACES - 1);
            all.push_front(Arc::new(Known { snapshot: snapshot.taken_at(snapshot.began), rules }));
        }
        snapshot
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot {
    /// Returns whether the snapshot is small and its times show every later change. Times do not show changes right
    /// after they were set.
    pub(super) fn is_settled(&self) -> bool {
        let mut all = self.dirs.iter().chain(&self.entries);
        cfg!(unix)
            && !self.dirs.is_empty()
            && self.dirs.len() + self.entries.len() <= SINGLE_THREAD_LIMIT
            && self.complete()
            && all.all(|entry| !entry.stamp.is_racy(self.began))
    }

    /// Returns a copy of this snapshot with another start time.
    pub(super) fn taken_at(&self, began: SystemTime) -> Self {
        Self {
            root: self.root.clone(),
            began,
            entries: self.entries.clone(),
            paths: self.paths.clone(),
            contents: Arc::clone(&self.contents),
            dirs: self.dirs.clone(),
            skipped: self.skipped,
            truncated: self.truncated,
        }
    }

    /// Records all files from which the ignore rules of the workspace are read, and returns whether they are known. A
    /// file that changed since the snapshot began is too new to be cached.
    fn can_note_rules(&self, fs: &CachingFs) -> bool {
        let inside = self.dirs.iter().map(|dir| self.on_disk(self.path(dir)));
        for dir in self.root.ancestors().map(Path::to_owned).chain(inside) {
            let git = dir.join(".git");
            fs.note_presence(&git);
            if git.is_file() {
                // The other files of a linked work tree are elsewhere.
                return false;
            }
            fs.note(&git.join("info/exclude"));
            fs.note(&dir.join(".gitignore"));
            // A repository of another kind also ends the scope of rules.
            fs.note_presence(&dir.join(".jj"));
        }
        git_settings().iter().for_each(|file| fs.note(file));
        user_excludes().iter().for_each(|file| fs.note(file));
        true
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::workspace::snapshot::ChangeKind;
    use std::{fs, time::Duration};

    /// Waits until a later change is sure to have a different time.
    fn settle() {
        std::thread::sleep(Duration::from_millis(150));
    }

    #[test]
    fn unchanged_directories_are_not_walked_again_and_changes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let options = SnapshotOptions::default();
        let snapshots = SnapshotMemo::default();
        let is_known = || !snapshots.lock().is_empty();
        let write = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
        let changes = |before: &Snapshot| -> Vec<(String, ChangeKind)> {
            let after = before.take_again(&options);
            before.compare(&after, &[]).into_iter().map(|change| (change.path, change.kind)).collect()
        };
        write("a.txt", "one\n");
        snapshots.take(&root, &options);
        assert!(!is_known(), "its times are too recent");
        settle();
        let first = snapshots.take(&root, &options);
        assert!(is_known());
        let again = snapshots.take(&root, &options);
        assert!(Arc::ptr_eq(&first.contents, &again.contents) && again.began > first.began);
        assert_eq!(changes(&again), []);
        // The content dates from when the snapshot was reused.
        write("a.txt", "two\n");
        write("b.txt", "new\n");
        assert_eq!(
            changes(&again),
            [("a.txt".into(), ChangeKind::Modified), ("b.txt".into(), ChangeKind::Created)]
        );
        assert_eq!(again.compare(&again.take_again(&options), &[])[0].removed, Some(1));
        assert_eq!(snapshots.take(&root, &options).file_count(), 2);
        assert!(!is_known());
        // Changes to rules count too, even in a file that the rules themselves ignore.
        fs::create_dir(root.join("sub")).unwrap();
        write("sub/.gitignore", "*\n");
        settle();
        assert_eq!(snapshots.take(&root, &options).file_count(), 2);
        assert!(is_known());
        write("sub/.gitignore", "c*\n");
        assert_eq!(snapshots.take(&root, &options).file_count(), 3);
        settle();
        assert_eq!(snapshots.take(&root, &options).file_count(), 3);
        assert!(is_known());
        write(".gitignore", "b.txt\n");
        assert_eq!(
            snapshots.take(&root, &options).file_count(),
            3,
            "`.gitignore` is added and `b.txt` is ignored"
        );
        // Rules above the workspace count if it is in a repository.
        settle();
        let inner = root.join("sub");
        snapshots.take(&inner, &options);
        assert!(is_known());
        fs::create_dir_all(root.join(".git/info")).unwrap();
        write("sub/x.log", "");
        write(".gitignore", "*.log\n");
        assert_eq!(
            snapshots.take(&inner, &options).file_count(),
            1,
            "rules of the parent directory do not apply"
        );
        settle();
        snapshots.take(&inner, &options);
        assert!(is_known());
        write(".gitignore", "");
        assert_eq!(snapshots.take(&inner, &options).file_count(), 2);
    }
}
