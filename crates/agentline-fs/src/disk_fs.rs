//! The real file system as a [`FileSystem`] for the core.

use crate::regular_file::read_regular;
use agentline_core::FileSystem;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The maximum size of a file in bytes. The core only reads small files: settings, shims and package descriptions.
const LONGEST: usize = 64 * 1024 * 1024;

/// Read access to the disk. Never writes, and never blocks on a pipe or device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFs;

impl FileSystem for DiskFs {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.small(path, LONGEST)
    }

    fn small(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        let limit = u64::try_from(most).unwrap_or(u64::MAX);
        read_regular(path, limit).ok()
    }

    fn list(&self, path: &Path) -> Option<Vec<String>> {
        let names = fs::read_dir(path).ok()?.flatten().filter_map(|e| e.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Some(names)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        canonicalize(path).ok()
    }

    fn runnable(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|m| m.is_file() && may_start(&m))
    }

    fn guarded(&self, path: &Path) -> bool {
        fs::canonicalize(path).is_ok_and(|real| real.ancestors().all(only_the_administrator_writes))
    }
}

#[cfg(unix)]
fn may_start(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn may_start(_metadata: &fs::Metadata) -> bool {
    true
}

#[cfg(unix)]
fn only_the_administrator_writes(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).is_ok_and(|m| m.uid() == 0 && m.mode() & 0o022 == 0)
}

/// Windows uses access control lists, which are not read here.
#[cfg(not(unix))]
fn only_the_administrator_writes(_path: &Path) -> bool {
    false
}

/// Resolves a path as [`fs::canonicalize`] does, in the form that people and programs expect on Windows too.
///
/// # Errors
/// Fails if the path does not exist or cannot be read.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path).map(plain)
}

/// Removes the `\\?\` prefix that Windows adds to resolved paths and that Node.js does not accept for scripts.
fn plain(path: PathBuf) -> PathBuf {
    let text = path.to_str().and_then(|t| t.strip_prefix(r"\\?\"));
    match text.filter(|t| t.as_bytes().get(1) == Some(&b':')) {
        Some(short) => PathBuf::from(short),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::{DiskFs, plain};
    use agentline_core::FileSystem;
    use std::{fs, path::PathBuf};

    #[test]
    fn reads_files_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        fs::write(&file, "hello").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        assert_eq!(DiskFs.text(&file).as_deref(), Some("hello"));
        assert_eq!(DiskFs.small(&file, 5).as_deref(), Some(&b"hello"[..]));
        assert_eq!(DiskFs.small(&file, 4), None);
        assert_eq!(DiskFs.read(dir.path()), None);
        assert_eq!(DiskFs.list(dir.path()).unwrap(), ["a.txt", "sub"]);
        assert_eq!(DiskFs.list(&file), None);
        assert!(DiskFs.exists(&file) && !DiskFs.exists(&dir.path().join("none")));
        assert_eq!(DiskFs.canonical(&dir.path().join("none")), None);
    }

    #[cfg(unix)]
    #[test]
    fn follows_links_and_detects_executables() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("run"), dir.path().join("link"));
        fs::write(&file, "#!/bin/sh\n").unwrap();
        symlink("run", &link).unwrap();
        symlink("nowhere", dir.path().join("broken")).unwrap();
        assert!(!DiskFs.runnable(&link) && !DiskFs.runnable(dir.path()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(DiskFs.runnable(&link));
        assert_eq!(DiskFs.canonical(&link), fs::canonicalize(&file).ok());
        assert!(!DiskFs.exists(&dir.path().join("broken")));
        // The directory for temporary files is writable by all users, so nothing below it is guarded.
        assert!(!DiskFs.guarded(&file) && !DiskFs.guarded(&dir.path().join("none")));
    }

    #[test]
    fn windows_paths_lose_their_prefix() {
        assert_eq!(plain(PathBuf::from(r"\\?\C:\a\b.js")), PathBuf::from(r"C:\a\b.js"));
        assert_eq!(plain(PathBuf::from(r"\\?\UNC\host\x")), PathBuf::from(r"\\?\UNC\host\x"));
    }
}
