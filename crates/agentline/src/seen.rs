//! What a look at the disk has seen, for whoever wants to know later whether it is still so: to look for changes is
//! cheaper than to look at everything.

use crate::{look::DiskLook, snapshot::stamp::Stamp};
use agentline_core::Look as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

/// What a look has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    sights: Vec<(PathBuf, Sight)>,
    missing: Vec<Missing>,
}

/// One thing that was seen of a path.
#[derive(Debug)]
pub(crate) enum Sight {
    Absent,
    Present,
    /// All that the system tells of it.
    Like(Stamp),
    /// What was read; and the stamp that it had when that was last known to be there.
    Told(Content, LastStamp),
    /// The path with all links resolved.
    Leads(Option<PathBuf>),
    Guarded(bool),
}

/// What was read of a file or folder.
#[derive(Debug)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Names(Vec<String>),
}

/// The stamp that something had when it was last found to be as it was; none where it was too young to tell of changes.
#[derive(Debug, Default)]
pub(crate) struct LastStamp(Mutex<Option<Stamp>>);

/// What was not there.
#[derive(Debug)]
struct Missing {
    /// It would have to come to this folder first, which changes with that.
    folder: PathBuf,
    stamp: LastStamp,
    /// What must come to it, directly, at the least.
    first: BTreeSet<PathBuf>,
}

impl Seen {
    /// What was seen of each path.
    pub(crate) fn of(sights: BTreeMap<PathBuf, Vec<Sight>>) -> Self {
        let mut seen = Self { sights: Vec::with_capacity(sights.len()), missing: Vec::new() };
        let mut missing: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        let mut absent: Option<PathBuf> = None;
        for (path, mut sights) in sights {
            if !sights.iter().any(|sight| matches!(sight, Sight::Absent)) {
                if sights.iter().any(|sight| matches!(sight, Sight::Like(_) | Sight::Told(..))) {
                    sights.retain(|sight| !matches!(sight, Sight::Present));
                }
                seen.sights.extend(sights.into_iter().map(|sight| (path.clone(), sight)));
                continue;
            }
            // Nothing else can be told of what is not there, nor can anything be in a folder that is not there.
            if absent.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            match comes_to(&path) {
                Some((folder, first)) => {
                    missing.entry(folder.to_owned()).or_default().insert(first.to_owned());
                }
                None => seen.sights.push((path.clone(), Sight::Absent)),
            }
            absent = Some(path);
        }
        let missing = missing.into_iter();
        seen.missing =
            missing.map(|(folder, first)| Missing { folder, first, stamp: LastStamp::default() }).collect();
        seen
    }

    /// Leaves out that this folder is where it says it is; for those who find that out themselves.
    pub(crate) fn without_place_of(mut self, folder: &Path) -> Self {
        let is_place = |path: &Path, sight: &Sight| {
            path == folder && matches!(sight, Sight::Leads(Some(real)) if real == folder)
        };
        self.sights.retain(|(path, sight)| !is_place(path, sight));
        self
    }

    /// Whether a look would see the same now.
    pub(crate) fn is_still_so(&self) -> bool {
        self.missing.iter().all(Missing::is_still_so)
            && self.sights.iter().all(|(path, sight)| sight.is_still_so(path))
    }
}

/// The folder to which something must come before there can be anything at a path where nothing is, and what that is.
fn comes_to(path: &Path) -> Option<(&Path, &Path)> {
    let (mut first, mut folder) = (path, path.parent()?);
    while !folder.is_dir() {
        (first, folder) = (folder, folder.parent()?);
    }
    // Where a link leads nowhere, it may come elsewhere.
    first.symlink_metadata().is_err().then_some((folder, first))
}

impl Sight {
    /// What was read, and the stamp that it had before that, where it was old enough to tell of changes.
    pub(crate) fn told(content: Content, stamp: Option<Stamp>) -> Self {
        Self::Told(content, LastStamp(Mutex::new(stamp)))
    }

    fn is_still_so(&self, path: &Path) -> bool {
        match self {
            Self::Absent => path.metadata().is_err(),
            Self::Present => path.metadata().is_ok(),
            Self::Like(before) => Stamp::of_path(path).as_ref() == Some(before),
            Self::Told(content, stamp) => stamp.is_still_so(path, || content.is_still_in(path)),
            Self::Leads(real) => DiskLook.canonical(path) == *real,
            Self::Guarded(guarded) => DiskLook.guarded(path) == *guarded,
        }
    }
}

impl Content {
    fn is_still_in(&self, path: &Path) -> bool {
        match self {
            Self::Bytes(bytes) => DiskLook.read(path).as_ref() == Some(bytes),
            Self::Names(names) => DiskLook.list(path).as_ref() == Some(names),
        }
    }
}

impl LastStamp {
    /// Whether something is as it was, by its stamp, or by a closer look where that has changed.
    fn is_still_so(&self, path: &Path, look_closer: impl FnOnce() -> bool) -> bool {
        let now = SystemTime::now();
        let stamp = Stamp::of_path(path);
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && *before == stamp {
            return true;
        }
        let is_still_so = look_closer();
        // Times say nothing of what happens right after they were set.
        *before = stamp.filter(|stamp| is_still_so && !stamp.is_racy(now));
        is_still_so
    }
}

impl Missing {
    fn is_still_so(&self) -> bool {
        let are_missing = || self.first.iter().all(|path| path.symlink_metadata().is_err());
        self.stamp.is_still_so(&self.folder, are_missing)
    }
}
