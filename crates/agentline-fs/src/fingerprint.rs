//! A record of what was read from the disk, to check later whether it has changed.
//!
//! Checking for changes is cheaper than reading everything again.

use crate::{disk_fs::DiskFs, stamp::FileStamp};
use agentline_core::FileSystem as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

/// The recorded state of all paths that were read.
#[derive(Debug)]
pub struct Fingerprint {
    sights: Vec<(PathBuf, Observation)>,
    missing: Vec<Missing>,
}

/// One recorded fact about a path.
#[derive(Debug)]
pub(crate) enum Observation {
    Absent,
    Present,
    /// The complete metadata stamp of the path.
    Like(FileStamp),
    /// The content that was read, and the stamp under which it was last confirmed.
    Content(ObservedContent, LastStamp),
    /// The path with all symbolic links resolved.
    Leads(Option<PathBuf>),
    Guarded(bool),
}

/// The content of a file or directory.
#[derive(Debug)]
pub(crate) enum ObservedContent {
    Bytes(Vec<u8>),
    Names(Vec<String>),
}

/// The stamp under which a path was last confirmed as unchanged; `None` if it was too recent to reveal changes.
#[derive(Debug, Default)]
pub(crate) struct LastStamp(Mutex<Option<FileStamp>>);

/// Paths that did not exist.
#[derive(Debug)]
struct Missing {
    /// The nearest existing directory, which changes when the first of them is created.
    folder: PathBuf,
    stamp: LastStamp,
    /// The direct entries of that directory that would have to be created first.
    first: BTreeSet<PathBuf>,
}

impl Fingerprint {
    /// Builds the record from the facts about each path.
    pub(crate) fn of(sights: BTreeMap<PathBuf, Vec<Observation>>) -> Self {
        let mut fingerprint = Self { sights: Vec::with_capacity(sights.len()), missing: Vec::new() };
        let mut missing: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        let mut absent: Option<PathBuf> = None;
        for (path, mut sights) in sights {
            if !sights.iter().any(|sight| matches!(sight, Observation::Absent)) {
                if sights.iter().any(|sight| matches!(sight, Observation::Like(_) | Observation::Content(..)))
                {
                    sights.retain(|sight| !matches!(sight, Observation::Present));
                }
                fingerprint.sights.extend(sights.into_iter().map(|sight| (path.clone(), sight)));
                continue;
            }
            // A missing path has no other facts, and a missing directory has no entries.
            if absent.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            match comes_to(&path) {
                Some((folder, first)) => {
                    missing.entry(folder.to_owned()).or_default().insert(first.to_owned());
                }
                None => fingerprint.sights.push((path.clone(), Observation::Absent)),
            }
            absent = Some(path);
        }
        let missing = missing.into_iter();
        fingerprint.missing =
            missing.map(|(folder, first)| Missing { folder, first, stamp: LastStamp::default() }).collect();
        fingerprint
    }

    /// Returns whether reading the disk now would give the same result.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.missing.iter().all(Missing::is_unchanged)
            && self.sights.iter().all(|(path, sight)| sight.is_unchanged(path))
    }
}

/// Returns the nearest existing directory above a missing path, and the entry that would have to be created in it
/// first.
fn comes_to(path: &Path) -> Option<(&Path, &Path)> {
    let (mut first, mut folder) = (path, path.parent()?);
    while !folder.is_dir() {
        (first, folder) = (folder, folder.parent()?);
    }
    // The target of a broken symbolic link may be created in another directory.
    first.symlink_metadata().is_err().then_some((folder, first))
}

impl Observation {
    /// Creates a fact from content that was read, and the stamp from before the read if it is old enough to reveal
    /// changes.
    pub(crate) fn content(content: ObservedContent, stamp: Option<FileStamp>) -> Self {
        Self::Content(content, LastStamp(Mutex::new(stamp)))
    }

    fn is_unchanged(&self, path: &Path) -> bool {
        match self {
            Self::Absent => path.metadata().is_err(),
            Self::Present => path.metadata().is_ok(),
            Self::Like(before) => FileStamp::of_path(path).as_ref() == Some(before),
            Self::Content(content, stamp) => stamp.is_unchanged(path, || content.is_still_in(path)),
            Self::Leads(real) => DiskFs.canonical(path) == *real,
            Self::Guarded(guarded) => DiskFs.guarded(path) == *guarded,
        }
    }
}

impl ObservedContent {
    fn is_still_in(&self, path: &Path) -> bool {
        match self {
            Self::Bytes(bytes) => DiskFs.read(path).as_ref() == Some(bytes),
            Self::Names(names) => DiskFs.list(path).as_ref() == Some(names),
        }
    }
}

impl LastStamp {
    /// Returns whether a path is unchanged: by its stamp, or by `look_closer` if the stamp differs.
    fn is_unchanged(&self, path: &Path, look_closer: impl FnOnce() -> bool) -> bool {
        let now = SystemTime::now();
        let stamp = FileStamp::of_path(path);
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && *before == stamp {
            return true;
        }
        let is_unchanged = look_closer();
        // A recent time stamp does not reveal changes made right after it was set.
        *before = stamp.filter(|stamp| is_unchanged && !stamp.is_racy(now));
        is_unchanged
    }
}

impl Missing {
    fn is_unchanged(&self) -> bool {
        let are_missing = || self.first.iter().all(|path| path.symlink_metadata().is_err());
        self.stamp.is_unchanged(&self.folder, are_missing)
    }
}
