//! Walks a workspace under git's ignore rules and records what is there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use ignore::{DirEntry, Error, WalkBuilder, WalkState};

use super::stamp::{self, Stamp};
use super::{Entry, Snapshot, SnapshotOptions};

/// So many files and folders are walked without help.
const FEW: usize = 300;

/// Records names, sizes and times.
pub(super) fn take(root: &Path, options: &SnapshotOptions) -> Snapshot {
    let began = SystemTime::now();
    let mut snapshot = Snapshot {
        root: root.to_path_buf(),
        began,
        entries: Vec::new(),
        paths: Vec::new(),
        contents: Arc::default(),
        folders: Vec::new(),
        skipped: 0,
        truncated: false,
    };
    let Ok(root) = root.canonicalize() else {
        snapshot.skipped = 1;
        return snapshot;
    };
    let walk = Walk {
        root: &root,
        options,
        deadline: Instant::now().checked_add(options.max_time),
        recorded: AtomicUsize::new(0),
        skipped: AtomicU64::new(0),
        truncated: AtomicBool::new(false),
        lost_folder: AtomicBool::new(false),
        parts: Mutex::default(),
    };
    walk.run();
    snapshot.skipped = walk.skipped.into_inner();
    snapshot.truncated = walk.truncated.into_inner();
    let lost_folder = walk.lost_folder.into_inner();
    snapshot.join(walk.parts.into_inner().unwrap_or_else(PoisonError::into_inner));
    if lost_folder {
        snapshot.folders.clear();
    }
    snapshot.root = root;
    snapshot
}

/// The ignore rules of a workspace, ready to walk it or to be asked about single paths.
pub(super) fn rules(root: &Path) -> WalkBuilder {
    let repository = root.ancestors().find(|folder| folder.join(".git").exists());
    // A workspace that its own repository ignores is a scratch folder: the rules that hide it would hide all that is in it.
    let governed = repository.filter(|repository| !is_ignored(repository, root));
    let mut rules = git_rules(root, governed.is_some());
    // Rules above the workspace come from its repository or not at all; a stray `~/.gitignore` is no concern of ours.
    rules.parents(governed.is_some());
    rules
}

fn is_ignored(repository: &Path, folder: &Path) -> bool {
    let Ok(inside) = folder.strip_prefix(repository) else { return false };
    let mut matchers = git_rules(repository, true).build_matchers();
    matchers.first_mut().is_some_and(|rules| rules.matched(inside, true).is_ignore())
}

fn git_rules(root: &Path, in_repository: bool) -> WalkBuilder {
    let mut rules = WalkBuilder::new(root);
    rules
        .current_dir(root)
        .hidden(false)
        .ignore(false)
        .parents(true)
        .git_ignore(true)
        .git_exclude(true)
        .git_global(true)
        .require_git(in_repository)
        .follow_links(false)
        // From `/` alone, the other file systems are machinery such as `/proc`.
        .same_file_system(root.parent().is_none())
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    rules
}

struct Walk<'a> {
    root: &'a Path,
    options: &'a SnapshotOptions,
    deadline: Option<Instant>,
    recorded: AtomicUsize,
    skipped: AtomicU64,
    truncated: AtomicBool,
    /// A folder could not be recorded.
    lost_folder: AtomicBool,
    parts: Mutex<Vec<Part>>,
}

/// What one thread has recorded.
#[derive(Default)]
struct Part {
    entries: Vec<Entry>,
    paths: Vec<u8>,
    folders: Vec<Entry>,
}

/// Hands the part of a thread over when the thread is done with it.
struct Recorder<'a> {
    walk: &'a Walk<'a>,
    part: Part,
    /// Folders are recorded too.
    folders: bool,
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        let part = std::mem::take(&mut self.part);
        self.walk.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }
}

impl Walk<'_> {
    fn run(&self) {
        let mut rules = rules(self.root);
        if self.is_done_alone(&rules) {
            return;
        }
        rules.threads(self.options.threads).build_parallel().run(|| {
            let mut recorder = Recorder { walk: self, part: Part::default(), folders: false };
            Box::new(move |found| recorder.take(found))
        });
    }

    /// Walks in this thread, and gives up where there is much: most workspaces are small, and to start threads costs
    /// more than to walk those.
    fn is_done_alone(&self, rules: &WalkBuilder) -> bool {
        let few = if self.options.threads == 1 { usize::MAX } else { FEW };
        let mut recorder = Recorder { walk: self, part: Part::default(), folders: few == FEW };
        for (seen, found) in rules.build().enumerate() {
            if seen == few {
                recorder.part = Part::default();
                self.recorded.store(0, Ordering::Relaxed);
                self.skipped.store(0, Ordering::Relaxed);
                return false;
            }
            if recorder.take(found) == WalkState::Quit {
                break;
            }
        }
        true
    }
}

impl Recorder<'_> {
    fn take(&mut self, found: Result<DirEntry, Error>) -> WalkState {
        if self.walk.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            self.walk.truncated.store(true, Ordering::Relaxed);
            return WalkState::Quit;
        }
        let about = match &found {
            Ok(entry) if entry.depth() == 0 || entry.file_type().is_some_and(|kind| kind.is_dir()) => {
                return if self.folders { self.folder(entry) } else { WalkState::Continue };
            }
            Ok(entry) => entry.metadata(),
            Err(why) => {
                self.skip(why);
                return WalkState::Continue;
            }
        };
        match (found, about) {
            (Ok(entry), Ok(about)) => match Stamp::of(&about) {
                Some(stamp) => self.record(entry.path(), stamp),
                None => WalkState::Continue,
            },
            (_, Err(why)) | (Err(why), _) => {
                self.skip(&why);
                WalkState::Continue
            }
        }
    }

    fn record(&mut self, path: &Path, stamp: Stamp) -> WalkState {
        let before = self.part.paths.len();
        let room = self.walk.recorded.fetch_add(1, Ordering::Relaxed) < self.walk.options.max_files;
        match self.entry(path, stamp).filter(|_| room) {
            Some(entry) => {
                self.part.entries.push(entry);
                WalkState::Continue
            }
            None => {
                self.part.paths.truncate(before);
                self.walk.truncated.store(true, Ordering::Relaxed);
                WalkState::Quit
            }
        }
    }

    /// Records a folder before it is walked: what comes to it meanwhile changes it again.
    fn folder(&mut self, folder: &DirEntry) -> WalkState {
        let about = folder.path().symlink_metadata();
        match about.ok().and_then(|about| self.entry(folder.path(), Stamp::of_any(&about))) {
            Some(entry) => self.part.folders.push(entry),
            None => self.walk.lost_folder.store(true, Ordering::Relaxed),
        }
        WalkState::Continue
    }

    /// Keeps the path; `None` where there is no room for more.
    fn entry(&mut self, path: &Path, stamp: Stamp) -> Option<Entry> {
        let before = self.part.paths.len();
        if let Ok(inside) = path.strip_prefix(self.walk.root) {
            stamp::push_path_bytes(inside.as_os_str(), &mut self.part.paths);
        }
        let (offset, len) =
            (u32::try_from(before).ok()?, u32::try_from(self.part.paths.len() - before).ok()?);
        Some(Entry { offset, len, stamp })
    }

    /// Counts what could not be read. What vanished while we walked was not there, which is nothing to count.
    fn skip(&self, why: &Error) {
        if why.io_error().is_none_or(|why| why.kind() != std::io::ErrorKind::NotFound) {
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
            // They are there only where one thread recorded everything, so that nothing is shifted.
            self.folders.extend(part.folders);
            self.paths.extend_from_slice(&part.paths);
        }
        let Self { entries, paths, .. } = self;
        let path = |entry: &Entry| &paths[entry.offset as usize..][..entry.len as usize];
        entries.sort_unstable_by(|one, other| path(one).cmp(path(other)));
    }
}
