//! Lets runs that need a snapshot of one workspace at the same time share a walk, so that many runs in a large workspace
//! do not slow each other down.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::workspace::snapshot::Snapshot;

/// What callers must have in common to share a walk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WalkKey {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// Whether the walk also reads contents.
    pub(crate) with_contents: bool,
    /// How long the walk may take. A walk that ends early is incomplete.
    pub(crate) max_time: Duration,
}

/// The walks in progress.
#[derive(Debug, Default)]
pub(crate) struct SharedWalks {
    workspaces: Mutex<HashMap<WalkKey, Walks>>,
    ended: Condvar,
}

/// The walks of one workspace.
#[derive(Debug, Default)]
struct Walks {
    is_walking: bool,
    /// The number of walks that have begun.
    begun: u64,
    /// The number of callers that walk or wait.
    callers: usize,
    /// The number and the result of the last walk, while others wait for one.
    last: Option<(u64, Arc<Snapshot>)>,
}

impl SharedWalks {
    /// Returns the result of a walk that begins after this call: one of its own, or one that all callers share that
    /// arrive during a walk. Blocks.
    pub(crate) fn take(&self, key: WalkKey, walk: impl FnOnce() -> Snapshot) -> Snapshot {
        let mut all = self.lock();
        let walks = all.entry(key.clone()).or_default();
        walks.callers += 1;
        let needed = walks.begun + 1;
        loop {
            let walks = all.entry(key.clone()).or_default();
            if let Some((_, shared)) = walks.last.as_ref().filter(|(number, _)| *number >= needed) {
                let shared = Arc::clone(shared);
                leave(&mut all, &key);
                drop(all);
                return shared.taken_at(shared.began);
            }
            if !walks.is_walking {
                walks.is_walking = true;
                walks.begun += 1;
                let number = walks.begun;
                drop(all);
                let mut walking = Walking { walks: self, key, result: None };
                let snapshot = Arc::new(walk());
                walking.result = Some((number, Arc::clone(&snapshot)));
                drop(walking);
                return Arc::try_unwrap(snapshot).unwrap_or_else(|shared| shared.taken_at(shared.began));
            }
            all = self.ended.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WalkKey, Walks>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a walk when it is dropped, also if the walk panicked. Then another caller walks.
struct Walking<'a> {
    walks: &'a SharedWalks,
    key: WalkKey,
    result: Option<(u64, Arc<Snapshot>)>,
}

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        let mut all = self.walks.lock();
        if let Some(walks) = all.get_mut(&self.key) {
            walks.is_walking = false;
            walks.last = self.result.take();
        }
        leave(&mut all, &self.key);
        self.walks.ended.notify_all();
    }
}

fn leave(all: &mut HashMap<WalkKey, Walks>, key: &WalkKey) {
    let Some(walks) = all.get_mut(key) else { return };
    walks.callers -= 1;
    if walks.callers == 0 {
        all.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::snapshot::SnapshotOptions;
    use std::{path::Path, sync::Barrier, thread};

    fn key(root: &Path) -> WalkKey {
        WalkKey { root: root.to_owned(), with_contents: true, max_time: Duration::from_secs(10) }
    }

    #[test]
    fn callers_that_arrive_during_a_walk_share_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let shared = SharedWalks::default();
        let walked = Mutex::new(0);
        let walk = || {
            *walked.lock().unwrap() += 1;
            Snapshot::take(&root, &SnapshotOptions::default())
        };
        let (begun, released) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                shared.take(key(&root), || {
                    begun.wait();
                    released.wait();
                    walk()
                })
            });
            begun.wait();
            let others: Vec<_> = (0..3).map(|_| scope.spawn(|| shared.take(key(&root), walk))).collect();
            while shared.lock().values().map(|walks| walks.callers).sum::<usize>() < 4 {
                thread::yield_now();
            }
            // The first walk does not see this file for sure, so the others must not use its result.
            std::fs::write(root.join("new.txt"), "x").unwrap();
            released.wait();
            first.join().unwrap();
            for other in others {
                assert_eq!(other.join().unwrap().file_count(), 1);
            }
        });
        assert_eq!(*walked.lock().unwrap(), 2, "one walk, and one that the other three share");
        assert!(shared.lock().is_empty(), "no result is kept");
    }

    #[test]
    fn a_walk_that_panics_does_not_block_others() {
        let dir = tempfile::tempdir().unwrap();
        let shared = SharedWalks::default();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            shared.take(key(dir.path()), || panic!("a bug"))
        }));
        assert!(failed.is_err() && shared.lock().is_empty());
        let taken = shared.take(key(dir.path()), || Snapshot::take(dir.path(), &SnapshotOptions::default()));
        assert_eq!(taken.file_count(), 0);
    }
}
