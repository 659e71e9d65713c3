//! The directory of the cache. Several processes may use it at the same time: an entry is created by a rename,
//! never changes, and may disappear at any time.

use super::entry::CacheEntry;
use crate::fs::private_dir;
use crate::fs::regular_file::read_regular;
use crate::fs::space::RemainingSpace;
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::{Duration, SystemTime},
};

/// The default maximum size of a cache in megabytes.
const MAX_MB: u64 = 1024;
/// The modification time of a used entry is updated if it is older than this.
const MARK: Duration = Duration::from_secs(60);
/// A temporary file of this age is abandoned: its writer is dead.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The maximum size of an entry that is read, in bytes.
const LARGEST_ENTRY: u64 = 4 << 30;
const EXTENSION: &str = "run";
/// How many times a write is retried after its directory disappeared.
const WRITE_ATTEMPTS: u32 = 20;

/// One cache directory.
#[derive(Clone, Debug)]
pub(super) struct CacheStore {
    dir: PathBuf,
    most: u64,
}

/// The size of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// The path of the directory.
    pub folder: PathBuf,
    /// The number of stored runs.
    pub entries: u64,
    /// The size of the stored runs in bytes.
    pub bytes: u64,
    /// The maximum size in bytes.
    pub max_bytes: u64,
}

struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    is_entry: bool,
}

impl CacheStore {
    pub(super) fn new(dir: PathBuf, most_mb: Option<u64>) -> Self {
        Self { dir, most: most_mb.unwrap_or(MAX_MB).saturating_mul(1 << 20) }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(key.get(..2).unwrap_or("00")).join(format!("{key}.{EXTENSION}"))
    }

    /// Returns the entry of a key. Removes it if it is damaged.
    pub(super) fn get(&self, key: &str) -> Option<CacheEntry> {
        let path = self.path(key);
        let bytes = read_regular(&path, LARGEST_ENTRY).ok()?;
        let Some(entry) = CacheEntry::decode(bytes, key) else {
            self.remove(key);
            return None;
        };
        // Updates the time of last use; `trim` removes the least recently used entries first.
        let age = || path.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().ok();
        if age().is_some_and(|age| age > MARK)
            && let Ok(file) = fs::File::options().append(true).open(&path)
        {
            // Another process may have removed the entry in the meantime.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(entry)
    }

    /// Removes an entry, if it still exists.
    pub(super) fn remove(&self, key: &str) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Stores an entry, and removes old entries if the cache is full.
    pub(super) fn put(&self, key: &str, bytes: &[u8], room: &RemainingSpace) -> io::Result<()> {
        // Another process that clears the cache may remove the directory during the write.
        let mut written = self.write(key, bytes);
        for _ in 0..WRITE_ATTEMPTS {
            // `AlreadyExists` is reported if the directory existed when it was to be created and was gone when it was
            // checked.
            let vanished = |error: &io::Error| {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
            };
            match &written {
                Err(error) if vanished(error) => written = self.write(key, bytes),
                _ => break,
            }
        }
        written?;
        let size = bytes.len() as u64;
        let is_full = {
            let mut left = room.left.lock().unwrap_or_else(PoisonError::into_inner);
            match left.get_mut(&self.dir) {
                Some(left) if *left > size => {
                    *left -= size;
                    false
                }
                _ => true,
            }
        };
        if is_full {
            let free = self.trim();
            // Other processes may write there too, so only a part of the free space is assigned.
            let next = (free / 4).max(self.most / 64);
            room.left.lock().unwrap_or_else(PoisonError::into_inner).insert(self.dir.clone(), next);
        }
        Ok(())
    }

    fn write(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let parent = path.parent().unwrap_or(&self.dir);
        private_dir::create_dir_all(parent)?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(parent)?;
        io::Write::write_all(&mut file, bytes)?;
        file.persist(&path)?;
        Ok(())
    }

    /// Removes the least recently used entries until the cache fits, and returns the number of free bytes.
    fn trim(&self) -> u64 {
        let mut found = self.list();
        let mut bytes = found.iter().map(|found| found.bytes).sum::<u64>();
        if bytes > self.most {
            found.sort_by_key(|found| found.used);
            for old in found.iter().filter(|found| found.is_entry) {
                if bytes <= self.most / 10 * 9 {
                    break;
                }
                if fs::remove_file(&old.path).is_ok() {
                    bytes = bytes.saturating_sub(old.bytes);
                }
            }
        }
        for half in found.iter().filter(|found| !found.is_entry) {
            if half.used.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(&half.path);
            }
        }
        self.most.saturating_sub(bytes)
    }

    pub(super) fn stats(&self) -> CacheStats {
        let mut stats =
            CacheStats { folder: self.dir.clone(), max_bytes: self.most, ..CacheStats::default() };
        for found in self.list().iter().filter(|found| found.is_entry) {
            stats.entries += 1;
            stats.bytes += found.bytes;
        }
        stats
    }

    /// Removes all entries and nothing else: the directory may contain files of the user.
    pub(super) fn clear(&self) -> io::Result<CacheStats> {
        let stats = self.stats();
        for found in self.list() {
            match fs::remove_file(&found.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            if let Some(parent) = found.path.parent() {
                // Succeeds only after the last file of the directory is removed.
                let _ = fs::remove_dir(parent);
            }
        }
        Ok(stats)
    }

    /// Returns all entries and temporary files.
    fn list(&self) -> Vec<Found> {
        let dirs = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let cache_dirs = dirs.filter(|dir| {
            let name = dir.file_name();
            let name = name.to_string_lossy();
            name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        let files = cache_dirs.flat_map(|dir| fs::read_dir(dir.path()).into_iter().flatten().flatten());
        files
            .filter_map(|file| {
                let name = file.file_name();
                let name = name.to_string_lossy();
                let is_entry = name.strip_suffix(EXTENSION).is_some_and(|name| name.len() == 65);
                if !is_entry && !name.starts_with(".new-") {
                    return None;
                }
                let metadata = file.metadata().ok()?;
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                Some(Found { path: file.path(), bytes: metadata.len(), used, is_entry })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::entry, *};
    use crate::fs::digest::{digest, hex};

    fn entry_of(n: u32, bytes: usize) -> (String, Vec<u8>) {
        let key = hex(&digest(&n.to_le_bytes()));
        let events = vec![b'\n'; bytes];
        let meta =
            entry::CacheEntryMeta { key: key.clone(), events: bytes, ..entry::CacheEntryMeta::default() };
        (key, entry::encode(&meta, &events, &[]))
    }

    #[test]
    fn least_recently_used_entries_are_evicted_first() {
        let dir = tempfile::tempdir().unwrap();
        let store = CacheStore { dir: dir.path().join("c"), most: 100_000 };
        let room = RemainingSpace::default();
        let keys: Vec<String> = (0..30)
            .map(|n| {
                let (key, bytes) = entry_of(n, 9_000);
                store.put(&key, &bytes, &room).unwrap();
                let used = SystemTime::now() - Duration::from_secs(u64::from(1000 - n * 10));
                fs::File::options().append(true).open(store.path(&key)).unwrap().set_modified(used).unwrap();
                // Use the first entry each time, so that it stays recent.
                assert!(store.get(&entry_of(0, 9_000).0).is_some(), "{n}");
                key
            })
            .collect();
        let stats = store.stats();
        assert!(stats.bytes <= 100_000 && stats.entries >= 8, "{stats:?}");
        assert!(store.get(&keys[1]).is_none() && store.get(&keys[29]).is_some());
    }

    #[test]
    fn damaged_entry_is_removed_and_foreign_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = CacheStore::new(dir.path().to_owned(), None);
        let (key, bytes) = entry_of(1, 100);
        store.put(&key, &bytes, &RemainingSpace::default()).unwrap();
        fs::write(dir.path().join("note.txt"), "mine").unwrap();
        fs::write(store.path(&key), &bytes[..50]).unwrap();
        assert!(store.get(&key).is_none());
        assert!(!store.path(&key).exists());
        store.put(&key, &bytes, &RemainingSpace::default()).unwrap();
        assert_eq!(store.clear().unwrap().entries, 1);
        assert_eq!(store.stats().entries, 0);
        assert!(dir.path().join("note.txt").exists());
    }

    #[test]
    fn many_threads_share_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let store = CacheStore { dir: dir.path().join("c"), most: 200_000 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    let room = RemainingSpace::default();
                    for n in 0..200_u32 {
                        let (key, bytes) = entry_of(n % 50, 8_000);
                        store.put(&key, &bytes, &room).unwrap();
                        let (other, _) = entry_of((n + thread) % 50, 8_000);
                        if let Some(entry) = store.get(&other) {
                            assert_eq!(entry.events().len(), 8_000);
                        }
                        if n % 70 == 69 {
                            store.clear().unwrap();
                        }
                    }
                });
            }
        });
    }
}
