//! Walks a workspace by git's ignore rules and records its files.

use crate::fs::disk_fs::canonicalize;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::fs::{path_bytes, stamp::FileStamp};
use crate::process::{OverlayLayers, mounts};
use crate::workspace::snapshot::rules::{IgnoreRules, RuleFiles};
use crate::workspace::snapshot::{Entry, Snapshot, SnapshotOptions};

/// The number of files and directories after which more threads are started.
const PARALLEL_THRESHOLD: usize = 300;

/// Records names, sizes and times.
pub(super) fn take(root: &Path, options: &SnapshotOptions, deadline: Option<Instant>) -> Snapshot {
    walk(root, None, None, options, deadline)
}

/// Records names, sizes and times by the ignore rules of another directory. A repository that is only in `root` is
/// recorded as well.
pub(super) fn take_by_rules_of(original: &Path, root: &Path, options: &SnapshotOptions) -> Snapshot {
    walk(root, None, Some(original), options, options.deadline())
}

/// Records what an overlay may have changed: in the overlay, or in its template. The ignore rules are those in `root`, or
/// in the directory `rules_of`.
pub(super) fn take_changed(
    root: &Path,
    layers: &OverlayLayers,
    rules_of: Option<&Path>,
    options: &SnapshotOptions,
    deadline: Option<Instant>,
) -> Snapshot {
    let mut snapshot = walk(root, Some(layers), rules_of, options, deadline);
    // Other directories may change.
    snapshot.dirs.clear();
    snapshot
}

fn walk(
    root: &Path,
    layers: Option<&OverlayLayers>,
    rules_of: Option<&Path>,
    options: &SnapshotOptions,
    deadline: Option<Instant>,
) -> Snapshot {
    let mut snapshot = Snapshot::empty(root);
    let Ok(root) = canonicalize(root) else {
        snapshot.skipped = 1;
        return snapshot;
    };
    let walk = Walk {
        root: &root,
        options,
        deadline,
        recorded: AtomicUsize::new(0),
        skipped: AtomicU64::new(0),
        truncated: AtomicBool::new(false),
        lost_dir: AtomicBool::new(false),
        parts: Mutex::default(),
        queue: Queue::default(),
    };
    // The rules above a template do not apply to its overlay, which is elsewhere.
    let is_template = layers.is_some_and(|layers| layers.template == root);
    let rules = if is_template { IgnoreRules::outermost(&root) } else { IgnoreRules::above(&root) };
    let upper = layers.map(|layers| layers.upper.clone());
    walk.run(Dir { path: root.clone(), rules, upper, rules_of: rules_of.map(Path::to_owned) });
    snapshot.skipped = walk.skipped.into_inner();
    snapshot.truncated = walk.truncated.into_inner();
    let lost_dir = walk.lost_dir.into_inner();
    snapshot.join(walk.parts.into_inner().unwrap_or_else(PoisonError::into_inner));
    if lost_dir {
        snapshot.dirs.clear();
    }
    snapshot.root = root;
    snapshot
}

struct Walk<'a> {
    root: &'a Path,
    options: &'a SnapshotOptions,
    deadline: Option<Instant>,
    recorded: AtomicUsize,
    skipped: AtomicU64,
    truncated: AtomicBool,
    /// Whether a directory could not be recorded.
    lost_dir: AtomicBool,
    parts: Mutex<Vec<Part>>,
    queue: Queue,
}

/// The entries that one thread has recorded.
#[derive(Default)]
struct Part {
    entries: Vec<Entry>,
    paths: Vec<u8>,
    dirs: Vec<Entry>,
}

/// Records entries on one thread and adds them to the walk on drop.
struct Recorder<'a> {
    walk: &'a Walk<'a>,
    part: Part,
    /// Whether directories are recorded too.
    dirs: bool,
    /// The number of entries that this thread has seen.
    seen: usize,
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        let part = std::mem::take(&mut self.part);
        self.walk.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }
}

/// Directories that were found but not walked yet.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: Vec<Dir>,
    /// The number of threads that are walking a directory and may find more.
    busy: usize,
    /// Whether a limit was reached.
    is_over: bool,
}

/// A directory and the rules that apply to its content from above.
struct Dir {
    path: PathBuf,
    rules: IgnoreRules,
    /// The same directory in the upper layer of an overlay, if only what is there is recorded.
    upper: Option<PathBuf>,
    /// The same directory elsewhere, if its ignore rules count and not those here.
    rules_of: Option<PathBuf>,
}

/// Whether to continue a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Continue,
    Quit,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next directory, or `None` if all are walked or a limit was reached. Blocks while other threads may
    /// find more.
    fn next(&self) -> Option<Dir> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(dir) = state.waiting.pop() {
                state.busy += 1;
                return Some(dir);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks a directory as walked and adds the directories found in it.
    fn done(&self, found: &mut Vec<Dir>, step: Step) {
        let mut state = self.lock();
        state.waiting.append(found);
        state.busy = state.busy.saturating_sub(1);
        state.is_over |= step == Step::Quit;
        drop(state);
        self.changed.notify_all();
    }
}

impl Walk<'_> {
    fn run(&self, root: Dir) {
        self.queue.lock().waiting.push(root);
        // Most workspaces are small, and starting threads takes longer than walking them.
        let few = if self.options.threads == 1 { usize::MAX } else { PARALLEL_THRESHOLD };
        let mut recorder = Recorder { walk: self, part: Part::default(), dirs: true, seen: 0 };
        recorder.walk_on(few);
        if self.is_walked() {
            return;
        }
        recorder.dirs = false;
        self.lost_dir.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads {
                let helper = || {
                    let part = Part::default();
                    Recorder { walk: self, part, dirs: false, seen: 0 }.walk_on(usize::MAX);
                };
                // If no thread can be started, this one walks alone.
                let _ = std::thread::Builder::new().spawn_scoped(scope, helper);
            }
            recorder.walk_on(usize::MAX);
        });
    }

    fn is_walked(&self) -> bool {
        let state = self.queue.lock();
        state.is_over || state.waiting.is_empty()
    }

    /// Returns whether a directory is on another file system. Only checked from `/`, to skip those such as `/proc`.
    fn is_elsewhere(&self, dir: &DirEntry) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let device = |found: std::fs::Metadata| found.dev();
            self.root.parent().is_none()
                && dir.metadata().map(device).ok() != self.root.symlink_metadata().map(device).ok()
        }
        #[cfg(not(unix))]
        {
            let _ = dir;
            false
        }
    }
}

impl Recorder<'_> {
    /// Walks directories until none is left, a limit is reached, or this many entries were seen.
    fn walk_on(&mut self, most: usize) {
        let mut found = Vec::new();
        while self.seen < most
            && let Some(dir) = self.walk.queue.next()
        {
            let step = self.walk_dir(&dir, &mut found);
            self.walk.queue.done(&mut found, step);
        }
    }

    fn walk_dir(&mut self, dir: &Dir, found: &mut Vec<Dir>) -> Step {
        if self.dirs {
            self.record_dir(&dir.path);
        }
        let entries = match std::fs::read_dir(&dir.path) {
            Ok(entries) => entries,
            Err(error) => {
                self.skip(&error);
                return Step::Continue;
            }
        };
        let mut files = RuleFiles::default();
        let mut listed = Vec::new();
        for entry in entries {
            if self.is_late() {
                return Step::Quit;
            }
            match entry {
                Ok(entry) => {
                    files.note(&entry.file_name());
                    listed.push(entry);
                }
                Err(error) => self.skip(&error),
            }
        }
        let rules = match &dir.rules_of {
            None => dir.rules.enter(&dir.path, files),
            Some(original) => dir.rules.enter_as(&dir.path, original, RuleFiles::of(original)),
        };
        let upper = dir.upper.as_deref();
        for entry in listed {
            // Whatever is not in the upper layer is as in the template.
            let in_upper = upper.map(|upper| upper.join(entry.file_name()));
            if in_upper.as_deref().is_some_and(|path| path.symlink_metadata().is_err()) {
                continue;
            }
            let in_upper = in_upper.filter(|path| path.is_dir() && !mounts::is_opaque(path));
            let rules_of = dir.rules_of.as_ref().map(|original| original.join(entry.file_name()));
            if entry.file_name() == ".git" && rules_of.as_ref().is_none_or(|git| git.exists()) {
                continue;
            }
            if self.take(&entry, &rules, in_upper, rules_of, found) == Step::Quit {
                return Step::Quit;
            }
        }
        Step::Continue
    }

    fn take(
        &mut self,
        entry: &DirEntry,
        rules: &IgnoreRules,
        upper: Option<PathBuf>,
        rules_of: Option<PathBuf>,
        found: &mut Vec<Dir>,
    ) -> Step {
        self.seen += 1;
        if self.is_late() {
            return Step::Quit;
        }
        let path = entry.path();
        let is_dir = match entry.file_type() {
            Ok(kind) => kind.is_dir(),
            Err(error) => {
                self.skip(&error);
                return Step::Continue;
            }
        };
        if rules.is_ignored(&path, is_dir) {
            return Step::Continue;
        }
        if is_dir {
            if !self.walk.is_elsewhere(entry) {
                found.push(Dir { path, rules: rules.clone(), upper, rules_of });
            }
            return Step::Continue;
        }
        match entry.metadata() {
            Ok(metadata) => match FileStamp::of(&metadata) {
                Some(stamp) => self.record(&path, stamp),
                None => Step::Continue,
            },
            Err(error) => {
                self.skip(&error);
                Step::Continue
            }
        }
    }

    /// Returns whether the deadline has passed.
    fn is_late(&self) -> bool {
        let is_late = self.walk.deadline.is_some_and(|deadline| Instant::now() > deadline);
        if is_late {
            self.walk.truncated.store(true, Ordering::Relaxed);
        }
        is_late
    }

    fn record(&mut self, path: &Path, stamp: FileStamp) -> Step {
        let before = self.part.paths.len();
        let room = self.walk.recorded.fetch_add(1, Ordering::Relaxed) < self.walk.options.max_files;
        match self.entry(path, stamp).filter(|_| room) {
            Some(entry) => {
                self.part.entries.push(entry);
                Step::Continue
            }
            None => {
                self.part.paths.truncate(before);
                self.walk.truncated.store(true, Ordering::Relaxed);
                Step::Quit
            }
        }
    }

    /// Records a directory before it is walked, so that a concurrent change is visible in its time afterwards.
    fn record_dir(&mut self, dir: &Path) {
        let metadata = dir.symlink_metadata();
        match metadata.ok().and_then(|metadata| self.entry(dir, FileStamp::of_any(&metadata))) {
            Some(entry) => self.part.dirs.push(entry),
            None => self.walk.lost_dir.store(true, Ordering::Relaxed),
        }
    }

    /// Stores the path and returns its entry, or `None` if the offsets overflow.
    fn entry(&mut self, path: &Path, stamp: FileStamp) -> Option<Entry> {
        let before = self.part.paths.len();
        if let Ok(inside) = path.strip_prefix(self.walk.root) {
            path_bytes::push_path_bytes(inside.as_os_str(), &mut self.part.paths);
        }
        let (offset, len) =
            (u32::try_from(before).ok()?, u32::try_from(self.part.paths.len() - before).ok()?);
        Some(Entry { offset, len, stamp })
    }

    /// Counts an unreadable file. A file that vanished during the walk is not counted.
    fn skip(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.walk.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Snapshot {
    fn join(&mut self, parts: Vec<Part>) {
        self.entries.reserve_exact(parts.iter().map(|part| part.entries.len()).sum());
        self.paths.reserve_exact(parts.iter().map(|part| part.paths.len()).sum());
        for part in parts {
            let Ok(shift) = u32::try_from(self.paths.len()) else {
                self.truncated = true;
                break;
            };
            let fits =
                |entry: &Entry| entry.offset.checked_add(shift).map(|offset| Entry { offset, ..*entry });
            let shifted = part.entries.iter().map_while(fits);
            let known = self.entries.len();
            self.entries.extend(shifted);
            self.truncated |= self.entries.len() - known < part.entries.len();
            // There are directories only if one thread recorded everything, so no offset needs to be shifted.
            self.dirs.extend(part.dirs);
            self.paths.extend_from_slice(&part.paths);
        }
        let Self { entries, paths, .. } = self;
        let path = |entry: &Entry| &paths[entry.offset as usize..][..entry.len as usize];
        entries.sort_unstable_by(|one, other| path(one).cmp(path(other)));
    }
}
