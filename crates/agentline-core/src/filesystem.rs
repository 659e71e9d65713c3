//! Read access to files, for code that has no file system of its own.

use std::path::{Path, PathBuf};

/// Read access to the user's files. The core has no file system; the shell provides this.
pub trait FileSystem {
    /// Returns the content of a file, or `None` if it cannot be read.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
    /// Returns the names in a directory, or `None` if it cannot be listed.
    fn list(&self, path: &Path) -> Option<Vec<String>>;
    /// Returns whether the path exists.
    fn exists(&self, path: &Path) -> bool;

    /// Returns the path with all links resolved, or `None` if it does not exist. The default assumes that there are no
    /// links.
    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.exists(path).then(|| path.to_path_buf())
    }

    /// Returns whether the path is a file that the user may execute.
    fn runnable(&self, path: &Path) -> bool {
        self.exists(path)
    }

    /// Returns whether only the administrator owns and may write to the file and all its parent directories.
    fn guarded(&self, _path: &Path) -> bool {
        false
    }

    /// Returns the content of a file of at most `most` bytes.
    fn small(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        self.read(path).filter(|bytes| bytes.len() <= most)
    }

    /// Returns the content of a file as text.
    fn text(&self, path: &Path) -> Option<String> {
        String::from_utf8(self.read(path)?).ok()
    }
}
