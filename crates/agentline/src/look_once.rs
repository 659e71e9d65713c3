//! A look at the disk that asks for everything once: whoever asks again is told the same, whatever happened meanwhile.

use crate::look::DiskLook;
use agentline_core::Look;
use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Looks at the disk for one decision, which is then made from one state of it; and a file that several parts of the
/// decision need is read once.
#[derive(Debug, Default)]
pub(crate) struct LookOnce {
    read: Kept<Option<Vec<u8>>>,
    list: Kept<Option<Vec<String>>>,
    exists: Kept<bool>,
    canonical: Kept<Option<PathBuf>>,
    guarded: Kept<bool>,
}

type Kept<T> = RefCell<HashMap<PathBuf, T>>;

fn once<T: Clone>(kept: &Kept<T>, path: &Path, look: impl FnOnce(&Path) -> T) -> T {
    if let Some(known) = kept.borrow().get(path) {
        return known.clone();
    }
    let found = look(path);
    kept.borrow_mut().insert(path.to_owned(), found.clone());
    found
}

impl Look for LookOnce {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        once(&self.read, path, |path| DiskLook.read(path))
    }

    fn list(&self, path: &Path) -> Option<Vec<String>> {
        once(&self.list, path, |path| DiskLook.list(path))
    }

    fn exists(&self, path: &Path) -> bool {
        once(&self.exists, path, |path| DiskLook.exists(path))
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        once(&self.canonical, path, |path| DiskLook.canonical(path))
    }

    fn runnable(&self, path: &Path) -> bool {
        DiskLook.runnable(path)
    }

    fn guarded(&self, path: &Path) -> bool {
        once(&self.guarded, path, |path| DiskLook.guarded(path))
    }

    fn small(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        match self.read.borrow().get(path) {
            Some(known) => known.clone().filter(|bytes| bytes.len() <= most),
            None => DiskLook.small(path, most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_stays_and_what_was_not_there_stays_away() {
        let dir = tempfile::tempdir().unwrap();
        let (here, later) = (dir.path().join("here"), dir.path().join("later"));
        std::fs::write(&here, "one").unwrap();
        let look = LookOnce::default();
        let seen = || {
            let names = look.list(dir.path());
            (look.text(&here), look.small(&here, 2), look.exists(&later), look.text(&later), names)
        };
        let first = seen();
        assert_eq!(first, (Some("one".into()), None, false, None, Some(vec!["here".into()])));
        std::fs::write(&here, "two").unwrap();
        std::fs::write(&later, "new").unwrap();
        assert_eq!(seen(), first);
    }
}
