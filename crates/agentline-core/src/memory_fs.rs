//! An in-memory file system for tests.

use crate::FileSystem;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Files and links by path; directories exist implicitly.
#[derive(Default)]
pub(crate) struct MemoryFs {
    files: BTreeMap<PathBuf, String>,
    links: BTreeMap<PathBuf, PathBuf>,
    plain: BTreeSet<PathBuf>,
    unreadable: BTreeSet<PathBuf>,
    pub(crate) guarded: bool,
}

impl MemoryFs {
    /// Adds an executable file.
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }

    /// Adds a file that is not executable.
    pub(crate) fn plain(mut self, path: &str, text: &str) -> Self {
        self.plain.insert(path.into());
        self.file(path, text)
    }

    /// Adds a file that exists but cannot be read.
    pub(crate) fn unreadable(mut self, path: &str) -> Self {
        self.unreadable.insert(path.into());
        self.file(path, "")
    }

    pub(crate) fn link(mut self, path: &str, to: &str) -> Self {
        self.links.insert(path.into(), to.into());
        self
    }

    /// Adds an npm package with a program that is linked from `bin`, as npm does.
    pub(crate) fn package(self, modules: &str, bin: &str, version: &str) -> Self {
        let package = format!("{modules}/@google/gemini-cli");
        let script = format!("{package}/bundle/gemini.js");
        self.plain(
            &format!("{package}/package.json"),
            &format!(r#"{{"name":"@google/gemini-cli","version":"{version}"}}"#),
        )
        .file(&script, "#!/usr/bin/env node\n")
        .link(bin, &script)
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.links.get(path).cloned().unwrap_or_else(|| path.to_path_buf())
    }
}

impl FileSystem for MemoryFs {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let path = self.real(path);
        if self.unreadable.contains(&path) {
            return None;
        }
        self.files.get(&path).map(|t| t.clone().into_bytes())
    }

    fn list(&self, path: &Path) -> Option<Vec<String>> {
        let names: BTreeSet<String> = self
            .files
            .keys()
            .chain(self.links.keys())
            .filter_map(|f| f.strip_prefix(path).ok()?.iter().next())
            .map(|n| n.to_string_lossy().into_owned())
            .collect();
        (!names.is_empty()).then(|| names.into_iter().collect())
    }

    fn exists(&self, path: &Path) -> bool {
        let path = self.real(path);
        self.files.contains_key(&path) || self.list(&path).is_some()
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.exists(path).then(|| self.real(path))
    }

    fn runnable(&self, path: &Path) -> bool {
        let path = self.real(path);
        self.files.contains_key(&path) && !self.plain.contains(&path)
    }

    fn guarded(&self, _path: &Path) -> bool {
        self.guarded
    }
}
