//! A view of the disk that caches everything it has read, so that a decision is based on one state of the
//! disk.

use crate::{
    disk_fs::DiskFs,
    fingerprint::{Fingerprint, Observation, ObservedContent},
    stamp::FileStamp,
};
use agentline_core::FileSystem;
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Reads the disk for one decision. Each file and directory is read once, even if several parts of the decision need
/// it; `runnable` and `small` are not cached.
#[derive(Debug)]
pub struct CachingFs {
    began: SystemTime,
    read: PathCache<Option<Vec<u8>>>,
    list: PathCache<Option<Vec<String>>>,
    exists: PathCache<bool>,
    canonical: PathCache<Option<PathBuf>>,
    guarded: PathCache<bool>,
    /// The stamps of files and directories right before they were read.
    stamps: PathCache<Option<FileStamp>>,
    /// Paths for which more than the content matters.
    exact: RefCell<HashSet<PathBuf>>,
}

type PathCache<T> = RefCell<HashMap<PathBuf, T>>;

impl Default for CachingFs {
    fn default() -> Self {
        Self {
            began: SystemTime::now(),
            read: PathCache::default(),
            list: PathCache::default(),
            exists: PathCache::default(),
            canonical: PathCache::default(),
            guarded: PathCache::default(),
            stamps: PathCache::default(),
            exact: RefCell::default(),
        }
    }
}

fn once<T: Clone>(cache: &PathCache<T>, path: &Path, inspect: impl FnOnce(&Path) -> T) -> T {
    if let Some(known) = cache.borrow().get(path) {
        return known.clone();
    }
    let found = inspect(path);
    cache.borrow_mut().insert(path.to_owned(), found.clone());
    found
}

impl CachingFs {
    fn mark(&self, path: &Path) {
        once(&self.stamps, path, FileStamp::of_path);
    }

    /// Records a file or directory for which any change matters.
    pub fn note(&self, path: &Path) {
        self.mark(path);
        self.exact.borrow_mut().insert(path.to_owned());
    }

    /// Records whether a path exists; no other change matters.
    pub fn note_presence(&self, path: &Path) {
        self.exists(path);
    }

    /// Returns everything that was read, for checking later whether it is unchanged. Returns `None` if that cannot be
    /// checked, because a file was written too recently for its timestamp to be reliable.
    #[must_use]
    pub fn fingerprint(self) -> Option<Fingerprint> {
        let mut sights: BTreeMap<PathBuf, Vec<Observation>> = BTreeMap::new();
        let mut add = |path, sight| sights.entry(path).or_default().push(sight);
        let (mut read, mut listed) = (self.read.into_inner(), self.list.into_inner());
        let exact = self.exact.into_inner();
        for (path, stamp) in self.stamps.into_inner() {
            let is_young = stamp.is_some_and(|stamp| stamp.is_racy(self.began));
            let content = match (read.remove(&path).flatten(), listed.remove(&path).flatten()) {
                _ if exact.contains(&path) => None,
                (Some(bytes), None) => Some(ObservedContent::Bytes(bytes)),
                (None, Some(names)) => Some(ObservedContent::Names(names)),
                _ => None,
            };
            let sight = match (stamp, content) {
                (None, _) => Observation::Absent,
                (Some(stamp), Some(content)) => Observation::content(content, (!is_young).then_some(stamp)),
                (Some(_), None) if is_young => return None,
                (Some(stamp), None) => Observation::Like(stamp),
            };
            add(path, sight);
        }
        for (path, exists) in self.exists.into_inner() {
            add(path, if exists { Observation::Present } else { Observation::Absent });
        }
        // A path that does not exist resolves to nothing and is not guarded.
        let is_away = |path: &Path| path.symlink_metadata().is_err();
        for (path, real) in self.canonical.into_inner() {
            let sight =
                if real.is_none() && is_away(&path) { Observation::Absent } else { Observation::Leads(real) };
            add(path, sight);
        }
        for (path, guarded) in self.guarded.into_inner() {
            let sight =
                if !guarded && is_away(&path) { Observation::Absent } else { Observation::Guarded(guarded) };
            add(path, sight);
        }
        Some(Fingerprint::of(sights))
    }
}

impl FileSystem for CachingFs {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        once(&self.read, path, |path| {
            self.mark(path);
            DiskFs.read(path)
        })
    }

    fn list(&self, path: &Path) -> Option<Vec<String>> {
        once(&self.list, path, |path| {
            self.mark(path);
            DiskFs.list(path)
        })
    }

    fn exists(&self, path: &Path) -> bool {
        once(&self.exists, path, |path| DiskFs.exists(path))
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        once(&self.canonical, path, |path| DiskFs.canonical(path))
    }

    fn runnable(&self, path: &Path) -> bool {
        self.note(path);
        DiskFs.runnable(path)
    }

    fn guarded(&self, path: &Path) -> bool {
        once(&self.guarded, path, |path| DiskFs.guarded(path))
    }

    fn small(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        match self.read.borrow().get(path) {
            Some(known) => known.clone().filter(|bytes| bytes.len() <= most),
            None => {
                self.note(path);
                DiskFs.small(path, most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, time::Duration};

    #[test]
    fn results_are_cached_including_missing_files() {
        let dir = tempfile::tempdir().unwrap();
        let (present, later) = (dir.path().join("here"), dir.path().join("later"));
        fs::write(&present, "one").unwrap();
        let caching_fs = CachingFs::default();
        let read_all = || {
            let names = caching_fs.list(dir.path());
            (
                caching_fs.text(&present),
                caching_fs.small(&present, 2),
                caching_fs.exists(&later),
                caching_fs.text(&later),
                names,
            )
        };
        let first = read_all();
        assert_eq!(first, (Some("one".into()), None, false, None, Some(vec!["here".into()])));
        fs::write(&present, "two").unwrap();
        fs::write(&later, "new").unwrap();
        assert_eq!(read_all(), first);
    }

    /// Waits longer than timestamps remain ambiguous.
    fn settle() {
        std::thread::sleep(Duration::from_millis(150));
    }

    #[cfg(unix)]
    #[test]
    fn changes_of_inspected_files_are_detected() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let begin = || {
            for name in ["folder", "other", "aside"] {
                let _ = fs::remove_dir_all(at(name));
                fs::create_dir(at(name)).unwrap();
            }
            fs::write(at("folder/file"), "one").unwrap();
            fs::write(at("small"), "one").unwrap();
            fs::write(at("aside/unseen"), "one").unwrap();
            for name in ["link", "new", "nowhere", "dangling"] {
                let _ = fs::remove_file(at(name));
            }
            symlink("folder", at("link")).unwrap();
            symlink("aside/target", at("dangling")).unwrap();
            settle();
            let caching_fs = CachingFs::default();
            caching_fs.read(&at("folder/file"));
            caching_fs.list(&at("folder"));
            caching_fs.small(&at("small"), 9);
            caching_fs.exists(&at("other"));
            caching_fs.exists(&at("new"));
            caching_fs.read(&at("new/deep/file"));
            caching_fs.canonical(&at("link"));
            caching_fs.canonical(&at("nowhere"));
            caching_fs.exists(&at("dangling/file"));
            caching_fs.fingerprint().unwrap()
        };
        let changes: [(&str, &dyn Fn()); 13] = [
            ("content", &|| fs::write(at("folder/file"), "two").unwrap()),
            ("new content with the same time and size", &|| {
                let age = fs::metadata(at("folder/file")).unwrap().modified().unwrap();
                fs::write(at("folder/file"), "two").unwrap();
                fs::File::options().append(true).open(at("folder/file")).unwrap().set_modified(age).unwrap();
            }),
            ("small content", &|| fs::write(at("small"), "two").unwrap()),
            ("a new entry", &|| fs::write(at("folder/more"), "").unwrap()),
            ("a removed entry", &|| fs::remove_file(at("folder/file")).unwrap()),
            ("a removed directory", &|| fs::remove_dir(at("other")).unwrap()),
            ("a new file", &|| fs::write(at("new"), "").unwrap()),
            ("a file in a new directory", &|| {
                fs::create_dir_all(at("new/deep")).unwrap();
                fs::write(at("new/deep/file"), "").unwrap();
            }),
            ("the target of a link", &|| {
                fs::create_dir(at("aside/target")).unwrap();
                fs::write(at("aside/target/file"), "").unwrap();
            }),
            ("a missing path that now exists", &|| fs::write(at("nowhere"), "").unwrap()),
            ("a new directory that could hold the missing file", &|| {
                fs::create_dir(at("new")).unwrap();
            }),
            ("a broken link", &|| symlink("aside/unseen-yet", at("nowhere")).unwrap()),
            ("a link", &|| {
                fs::remove_file(at("link")).unwrap();
                symlink("other", at("link")).unwrap();
            }),
        ];
        for (name, change) in changes {
            let _ = fs::remove_dir_all(at("new"));
            let fingerprint = begin();
            // The first check records the state of the directories; the second one uses it. Then one of them changes.
            assert!(fingerprint.is_unchanged() && fingerprint.is_unchanged());
            fs::write(at("unasked"), "").unwrap();
            assert!(fingerprint.is_unchanged() && fingerprint.is_unchanged());
            fs::write(at("aside/unseen"), "two").unwrap();
            assert!(fingerprint.is_unchanged(), "the file was not read");
            change();
            assert!(!fingerprint.is_unchanged(), "{name}");
        }
    }

    #[test]
    fn recent_files_are_trusted_only_if_their_content_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "one").unwrap();
        let caching_fs = CachingFs::default();
        caching_fs.note(&file);
        assert!(caching_fs.fingerprint().is_none());
        let caching_fs = CachingFs::default();
        caching_fs.read(&file);
        let fingerprint = caching_fs.fingerprint().unwrap();
        for _ in 0..3 {
            // The result holds however soon the file is rewritten, and whatever else is written.
            fs::write(&file, "one").unwrap();
            fs::write(dir.path().join("other"), "").unwrap();
            assert!(fingerprint.is_unchanged());
            fs::write(&file, "two").unwrap();
            assert!(!fingerprint.is_unchanged());
        }
        let caching_fs = CachingFs::default();
        caching_fs.list(dir.path());
        let fingerprint = caching_fs.fingerprint().unwrap();
        fs::write(dir.path().join("more"), "").unwrap();
        assert!(!fingerprint.is_unchanged());
        fs::remove_file(dir.path().join("more")).unwrap();
        assert!(fingerprint.is_unchanged(), "the directory has the same entries again");
    }
}
