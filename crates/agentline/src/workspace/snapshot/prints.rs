//! Fingerprints of all files of a workspace, to detect whether its content is the same and which files a run
//! changed.

use crate::fs::{digest::digest, digester::Digester, path_bytes::path_from_bytes};
use crate::{
    fs::stamp::{FileKind, FileStamp},
    workspace::snapshot::{SnapshotOptions, content, walk},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// The limits of a workspace that is read before each run.
const MAX_FILES: usize = 20_000;
const MAX_BYTES: u64 = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(5);
/// The maximum number of cached files.
const MAX_REMEMBERED: usize = 100_000;

/// The digest of a file's content, its type and whether it is executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePrint {
    pub(crate) is_link: bool,
    pub(crate) runnable: bool,
    content: [u8; 32],
}

/// The files of a workspace, by their relative path.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilePrints {
    files: BTreeMap<Vec<u8>, FilePrint>,
}

/// A cache of files that need not be read again while their size, times and inode are the same.
#[derive(Debug, Default)]
pub(crate) struct PrintMemo {
    files: Mutex<HashMap<PathBuf, (FileStamp, FilePrint)>>,
}

impl FilePrints {
    /// Reads the files of a workspace, by the rules of a snapshot, without the directories in `skip`. Blocks.
    ///
    /// # Errors
    /// Returns the reason if the workspace is too large or cannot be read.
    pub(crate) fn take(root: &Path, skip: &[PathBuf], remembered: &PrintMemo) -> Result<Self, String> {
        let began = SystemTime::now();
        let options = SnapshotOptions::default().max_files(MAX_FILES).max_time(MAX_TIME);
        let deadline = options.deadline();
        let snapshot = walk::take(root, &options, deadline);
        let bytes = snapshot.entries.iter().map(|entry| entry.stamp.size).fold(0, u64::saturating_add);
        if snapshot.truncated || bytes > MAX_BYTES {
            return Err(format!("the workspace has more than {MAX_FILES} files or {} MB", MAX_BYTES >> 20));
        }
        if snapshot.skipped > 0 {
            return Err("some files of the workspace cannot be read".into());
        }
        let skip: Vec<&Path> =
            skip.iter().filter_map(|skip| skip.strip_prefix(&snapshot.root).ok()).collect();
        let mut files = BTreeMap::new();
        for entry in &snapshot.entries {
            let path = snapshot.path(entry);
            let is_skipped = || {
                let inside = path_from_bytes(path);
                skip.iter().any(|skip| !skip.as_os_str().is_empty() && inside.starts_with(skip))
            };
            // A pipe or a socket has no content.
            if entry.stamp.kind == FileKind::Other || (!skip.is_empty() && is_skipped()) {
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(format!("the workspace takes longer than {} s to read", MAX_TIME.as_secs()));
            }
            let on_disk = snapshot.on_disk(path);
            let known = remembered.get(&on_disk, &entry.stamp);
            let print = match known {
                Some(print) => print,
                None => {
                    let print = read(&on_disk, entry.stamp.kind)
                        .ok_or_else(|| format!("cannot read `{}`", on_disk.display()))?;
                    // A write right after this one could leave the same times.
                    if !entry.stamp.is_racy(began) {
                        remembered.put(on_disk, entry.stamp, print);
                    }
                    print
                }
            };
            files.insert(path.to_vec(), print);
        }
        Ok(Self { files })
    }

    /// Adds all files to a digest.
    pub(crate) fn digest(&self, into: &mut Digester) {
        for (path, print) in &self.files {
            into.bytes(path);
            into.bytes(&[u8::from(print.is_link), u8::from(print.runnable)]);
            into.bytes(&print.content);
        }
    }

    /// Returns whether a file exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path.as_bytes())
    }

    /// Returns the paths that differ in `later`, with their new state, or `None` if the file no longer exists.
    pub(crate) fn changes<'a>(&'a self, later: &'a Self) -> Vec<(&'a [u8], Option<FilePrint>)> {
        let written = later.files.iter().filter(|(path, print)| self.files.get(*path) != Some(print));
        let removed = self.files.keys().filter(|path| !later.files.contains_key(*path));
        written
            .map(|(path, print)| (path.as_slice(), Some(*print)))
            .chain(removed.map(|path| (path.as_slice(), None)))
            .collect()
    }
}

impl FilePrint {
    /// Returns whether this is the fingerprint of these bytes, which for a link are its target.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        digest(bytes) == self.content
    }
}

impl PrintMemo {
    fn get(&self, path: &Path, stamp: &FileStamp) -> Option<FilePrint> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(path).filter(|(then, _)| cfg!(unix) && then == stamp).map(|(_, print)| *print)
    }

    fn put(&self, path: PathBuf, stamp: FileStamp, print: FilePrint) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MAX_REMEMBERED {
            files.clear();
        }
        files.insert(path, (stamp, print));
    }
}

fn read(path: &Path, kind: FileKind) -> Option<FilePrint> {
    let is_link = kind == FileKind::Link;
    let bytes = if is_link { content::link_target(path)?.into_vec() } else { content::whole(path)? };
    Some(FilePrint { is_link, runnable: !is_link && is_runnable(path), content: digest(&bytes) })
}

#[cfg(unix)]
fn is_runnable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.symlink_metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o100 != 0)
}

#[cfg(not(unix))]
fn is_runnable(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn digest_of(prints: &FilePrints) -> [u8; 32] {
        let mut digester = Digester::default();
        prints.digest(&mut digester);
        digester.finish()
    }

    #[test]
    fn equal_files_have_equal_prints_and_each_change_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let remembered = PrintMemo::default();
        let take = || FilePrints::take(dir.path(), &[file("own")], &remembered).unwrap();
        fs::write(file("a"), "1").unwrap();
        fs::write(file("b"), "2").unwrap();
        fs::write(file(".gitignore"), "ignored\n").unwrap();
        let before = take();
        fs::write(file("ignored"), "x").unwrap();
        fs::create_dir(file("own")).unwrap();
        fs::write(file("own/log"), "x").unwrap();
        fs::write(file("a"), "1").unwrap();
        assert_eq!(
            digest_of(&before),
            digest_of(&take()),
            "ignored, skipped and rewritten files are not changes"
        );
        fs::write(file("a"), "3").unwrap();
        fs::remove_file(file("b")).unwrap();
        fs::write(file("c"), "").unwrap();
        let after = take();
        assert_ne!(digest_of(&before), digest_of(&after));
        let changes: Vec<(&[u8], bool)> =
            before.changes(&after).into_iter().map(|(path, print)| (path, print.is_some())).collect();
        assert_eq!(changes, [(&b"a"[..], true), (b"c", true), (b"b", false)]);
    }

    #[test]
    fn file_is_read_again_if_its_times_are_ambiguous() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        let remembered = PrintMemo::default();
        let take = || digest_of(&FilePrints::take(dir.path(), &[], &remembered).unwrap());
        for n in 0..200 {
            // The new content has the same length and is written immediately.
            fs::write(&file, format!("{n:03}")).unwrap();
            let first = take();
            fs::write(&file, format!("{:03}", n + 500)).unwrap();
            assert_ne!(first, take(), "{n}");
        }
    }
}
