//! The directories that clients may use.

use crate::{http_error::ApiError, options::ServeError};
use agentline_fs::disk_fs::canonicalize;
use std::path::{Component, Path, PathBuf};

/// The directories in which runs may work, with links resolved.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    roots: Vec<PathBuf>,
}

impl Roots {
    pub(crate) fn new(roots: &[PathBuf]) -> Result<Self, ServeError> {
        let mut resolved = Vec::new();
        for root in roots {
            let path = canonicalize(root).map_err(ServeError::io(root.display()))?;
            if !path.is_dir() {
                let message = format!("`{}` is not a directory", root.display());
                return Err(ServeError::option("--root", message, "name an existing directory"));
            }
            resolved.push(path);
        }
        Ok(Self { roots: resolved })
    }

    /// Returns the directories.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Returns whether a path without links is in one of the directories.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// Returns a path with its links resolved. A relative path starts at the first directory.
    ///
    /// A path outside and a missing one have the same error, so that clients cannot probe the file system.
    pub(crate) fn resolve(&self, key: &str, path: &str) -> Result<PathBuf, ApiError> {
        let base = self.roots.first().ok_or_else(|| ApiError::forbidden("no directory is served"))?;
        resolve_in(base, path).filter(|path| self.contain(path)).ok_or_else(|| {
            let error =
                ApiError::forbidden(format!("`{key}` is not in a directory that this server may use"));
            error.hint(
                "choose an existing path below one of the roots, or start `agentline serve` with --root",
            )
        })
    }
}

/// Returns a path below a directory with its links resolved, or `None` if it does not exist or leaves the directory.
pub(crate) fn below(dir: &Path, path: &str) -> Option<PathBuf> {
    let dir = canonicalize(dir).ok()?;
    let goes_up =
        Path::new(path).components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
    if goes_up {
        return None;
    }
    resolve_in(&dir, path).filter(|path| path.starts_with(&dir))
}

fn resolve_in(base: &Path, path: &str) -> Option<PathBuf> {
    if path.contains('\0') {
        return None;
    }
    canonicalize(&base.join(path)).ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn links_and_parents_do_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("out"), root.join("link")).unwrap();
        let roots = Roots::new(std::slice::from_ref(&root)).unwrap();
        let root = canonicalize(&root).unwrap();
        assert_eq!(roots.resolve("x", "in").unwrap(), root.join("in"));
        for bad in ["link", "../out", "in/../../out", "/", "missing", "in\0", "link/../../out"] {
            assert!(roots.resolve("x", bad).is_err(), "{bad:?}");
        }
        assert_eq!(below(&root, "./in"), Some(root.join("in")));
        std::fs::write(dir.path().join("out/file"), "").unwrap();
        let outside = dir.path().join("out/file");
        for bad in ["link", "link/file", "../root/in", "in/..", outside.to_str().unwrap(), ""] {
            assert!(below(&root, bad).is_none() || bad.is_empty(), "{bad:?}");
        }
    }
}
