//! A copy of a workspace in which an agent works without touching the original, and the way back: what changed in the
//! copy, and the same changes in the original.

use crate::fs::{
    path_bytes::path_from_bytes,
    regular_file::read_regular,
    stamp::{FileKind, FileStamp},
};
use crate::process::OverlayLayers;
use crate::workspace::{
    change_in_copy::ChangeInCopy,
    snapshot::{ActiveWorkspace, stamps::FileStamps},
    write_back::{FileState, WriteBack},
};
use std::{
    fs::{self, File, Metadata},
    io,
    path::{Component, Path, PathBuf},
};

/// The maximum number of files and directories that are copied.
const MAX_ENTRIES: usize = 500_000;
/// The number of changed paths that a message names.
const NAMED: usize = 5;

/// A copy of a workspace.
#[derive(Debug)]
pub struct WorkspaceCopy {
    original: PathBuf,
    root: PathBuf,
    /// The files of the original before it was copied.
    original_before: FileStamps,
    /// The files of the copy before its agent started.
    before: FileStamps,
    /// Files that could not be part of the copy, with the reason.
    pub(crate) left_out: Vec<String>,
    /// The layers of the copy if it is an overlay. Then only what is in the upper one is compared.
    layers: Option<OverlayLayers>,
    /// Whether a later change of the original leaves the copy as it is. It shows through an overlay.
    is_independent: bool,
}

/// Why the changes of a copy were not applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Files of the original changed since it was copied.
    #[error("the workspace has changed since it was copied: {}", path_list(.0))]
    Changed(Vec<PathBuf>),
    /// Files changed after the change was applied.
    #[error("files have changed since: {}", path_list(.0))]
    ChangedSince(Vec<PathBuf>),
    /// No applied change of this run is stored.
    #[error("no applied change of the run `{0}` is stored")]
    NotApplied(String),
    /// The workspace is too large to be compared as a whole.
    #[error("the workspace is too large, or not readable enough, to tell whether it has changed")]
    Unknown,
    /// A file could not be read or written. All earlier changes were undone.
    #[error("cannot write {}", .path.display())]
    Io {
        /// The path in the workspace.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn path_list(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

impl WorkspaceCopy {
    /// Copies a workspace to a path that does not exist or is an empty directory, without the directory `skip`. File systems that can share the content of files do so. Blocks.
    ///
    /// # Errors
    /// Fails if a file cannot be copied, the workspace is too large, or `is_cancelled` returns `true`.
    pub fn make(
        original: &Path,
        root: &Path,
        skip: &Path,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let original_before = FileStamps::take(original);
        let mut copier = Copier { original, root, skip, is_cancelled, entries: 0, left_out: Vec::new() };
        copier.tree()?;
        let left_out = copier.left_out;
        let (original, root) = (original.to_owned(), root.to_owned());
        let before = FileStamps::take(&root);
        Ok(Self { original, root, original_before, before, left_out, layers: None, is_independent: true })
    }

    /// Treats an existing directory with the files of a workspace, such as an overlay, as a copy of it. Blocks.
    #[must_use]
    pub fn existing(original: &Path, root: &Path) -> Self {
        let (original_before, before) = (FileStamps::take(original), FileStamps::take(root));
        let (original, root) = (original.to_owned(), root.to_owned());
        let left_out = Vec::new();
        Self { original, root, original_before, before, left_out, layers: None, is_independent: false }
    }

    /// Treats a mounted overlay as a copy of its template. Its changes can be read, but not applied.
    pub(crate) fn of_layers(root: &Path, layers: &OverlayLayers) -> Self {
        Self {
            original: layers.template.clone(),
            root: root.to_owned(),
            original_before: FileStamps::default(),
            before: FileStamps::default(),
            left_out: Vec::new(),
            layers: Some(layers.clone()),
            is_independent: false,
        }
    }

    /// Records the state of the original, so that changes can be applied to it. Blocks.
    pub(crate) fn with_original(self) -> Self {
        Self { original_before: FileStamps::take(&self.original), ..self }
    }

    /// Returns the directory of the original.
    pub(crate) fn original(&self) -> &Path {
        &self.original
    }

    /// Returns the directory of the copy.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the files that differ from the original, each with its state in the copy. Files that Git ignores, and
    /// Git's own, are not compared. Blocks.
    ///
    /// # Errors
    /// Fails with the path that cannot be read.
    fn changes(&self) -> Result<Vec<(PathBuf, FileState)>, ApplyError> {
        let in_overlay = self
            .layers
            .as_ref()
            .map(|layers| [&layers.template, &self.root].map(|root| FileStamps::take_changed(root, layers)));
        let (before, after) = match &in_overlay {
            Some([before, after]) => (before, after),
            None => (&self.before, &FileStamps::take(&self.root)),
        };
        if !before.is_complete || !after.is_complete {
            return Err(ApplyError::Unknown);
        }
        let mut changes = Vec::new();
        for path in before.differing(after) {
            let failed = |source| ApplyError::Io { path: path.to_owned(), source };
            let now = match FileState::read(&self.root.join(path)) {
                // A directory took the place of the file.
                Err(_) if self.root.join(path).is_dir() => FileState::Missing,
                now => self.as_in_original(now.map_err(failed)?),
            };
            if !now.is_same_as(&FileState::read(&self.original.join(path)).unwrap_or(FileState::Missing)) {
                changes.push((path.to_owned(), now));
            }
        }
        Ok(changes)
    }

    /// Returns the files that differ from the original, each with its content. Blocks.
    ///
    /// # Errors
    /// Fails if the copy cannot be compared with the original.
    pub fn changed_files(&self) -> Result<Vec<ChangeInCopy>, ApplyError> {
        let changes = self.changes()?;
        Ok(changes.into_iter().map(|(path, state)| ChangeInCopy::new(&path, state)).collect())
    }

    /// Lets a link into the copy lead into the original.
    fn as_in_original(&self, state: FileState) -> FileState {
        let FileState::Link { target } = &state else { return state };
        let copied = path_from_bytes(target);
        let Ok(inside) = copied.strip_prefix(&self.root) else { return state };
        FileState::Link { target: self.original.join(inside).into_os_string().into_encoded_bytes() }
    }

    /// Applies the changes of the copy to the original, unless the original has changed. Either all changes are applied
    /// or none. Returns the paths. Blocks.
    ///
    /// # Errors
    /// Fails if the original has changed, or if a file cannot be written.
    pub(crate) fn apply(&self, active_runs: &Path) -> Result<Vec<PathBuf>, ApplyError> {
        // Registers the write, so that other runs in this workspace know about it.
        let _active = ActiveWorkspace::enter(active_runs, &self.original);
        let changes = self.changes()?;
        self.check_original(&changes)?;
        let mut files = WriteBack::new(&self.original);
        // A file may have to be removed before a directory can take its place, and vice versa.
        let (removed, written): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(_, state)| *state == FileState::Missing);
        let is_gone = |dir: &Path| !self.root.join(dir).is_dir();
        for (path, state) in removed.into_iter().chain(written) {
            if let Err(source) = files.write(path, state) {
                files.undo();
                return Err(ApplyError::Io { path: path.clone(), source });
            }
            if *state == FileState::Missing {
                files.remove_empty_parents(path, is_gone);
            }
        }
        Ok(changes.into_iter().map(|(path, _)| path).collect())
    }

    /// Checks that the original is as it was when it was copied. A file that was only touched has not changed.
    fn check_original(&self, changes: &[(PathBuf, FileState)]) -> Result<(), ApplyError> {
        let now = FileStamps::take(&self.original);
        if !self.original_before.is_complete || !now.is_complete {
            return Err(ApplyError::Unknown);
        }
        let is_untouched = |path: &Path| {
            let state = |root: &Path| FileState::read(&root.join(path)).ok();
            let is_changed_in_copy = changes.iter().any(|(changed, _)| changed == path);
            self.is_independent
                && !is_changed_in_copy
                && state(&self.original).zip(state(&self.root)).is_some_and(|(a, b)| a.is_same_as(&b))
        };
        let differing = self.original_before.differing(&now).filter(|path| !is_untouched(path));
        let changed: Vec<PathBuf> = differing.map(Path::to_owned).collect();
        if changed.is_empty() { Ok(()) } else { Err(ApplyError::Changed(changed)) }
    }
}

struct Copier<'a> {
    original: &'a Path,
    root: &'a Path,
    /// A directory that is never copied: the one that holds the copies.
    skip: &'a Path,
    is_cancelled: &'a dyn Fn() -> bool,
    entries: usize,
    left_out: Vec<String>,
}

impl Copier<'_> {
    fn tree(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.root)?;
        let mut modes: Vec<(PathBuf, Metadata)> = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(dir) = waiting.pop() {
            let source = self.original.join(&dir);
            for entry in fs::read_dir(&source).map_err(at(&source))? {
                let entry = entry.map_err(at(&source))?;
                self.count()?;
                let path = dir.join(entry.file_name());
                let metadata = match entry.metadata() {
                    // The file vanished after the directory was listed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    metadata => metadata.map_err(at(&entry.path()))?,
                };
                if metadata.is_dir() {
                    if entry.path() != self.skip {
                        fs::create_dir(self.root.join(&path)).map_err(at(&path))?;
                        modes.push((self.root.join(&path), metadata));
                        waiting.push(path);
                    }
                } else {
                    self.file(&path, &metadata).map_err(at(&entry.path()))?;
                }
            }
        }
        // Children first: a directory may not be writable.
        for (dir, metadata) in modes.into_iter().rev() {
            fs::set_permissions(&dir, metadata.permissions())?;
        }
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        self.entries += 1;
        if (self.is_cancelled)() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.entries > MAX_ENTRIES {
            return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} files")));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let (from, to) = (self.original.join(path), self.root.join(path));
        match FileStamp::of_any(metadata).kind {
            FileKind::Link => link(&self.target(path, &fs::read_link(&from)?), &to),
            FileKind::File
                if path.file_name().is_some_and(|name| name == ".git") && !self.stays_inside(path) =>
            {
                let reason = "it leads to a repository outside the workspace, which the copy must not change";
                self.left_out.push(format!("{}: {reason}", path.display()));
                Ok(())
            }
            FileKind::File => {
                match fs::copy(&from, &to) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    copied => copied?,
                };
                // Build tools compare these times. Without them, they only do more work.
                if let (Ok(copy), Ok(modified)) = (File::open(&to), metadata.modified()) {
                    let _ = copy.set_modified(modified);
                }
                Ok(())
            }
            // A pipe, socket or device.
            _ => Ok(()),
        }
    }

    /// Returns the target of a copied link: one inside the workspace leads to the copy, and one outside leads to the
    /// same file as the original link.
    fn target(&self, link: &Path, target: &Path) -> PathBuf {
        if target.is_absolute() {
            let inside = target.strip_prefix(self.original);
            return inside.map_or_else(|_| target.to_owned(), |inside| self.root.join(inside));
        }
        let resolved = without_dots(&self.original.join(link.parent().unwrap_or(Path::new(""))).join(target));
        if resolved.starts_with(self.original) { target.to_owned() } else { resolved }
    }

    /// Returns whether the file `.git` of a submodule leads to a directory that is copied as well.
    fn stays_inside(&self, path: &Path) -> bool {
        let text = read_regular(&self.original.join(path), 64 << 10).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let Some(target) = text.trim().strip_prefix("gitdir:").map(str::trim) else { return false };
        let dir = self.original.join(path.parent().unwrap_or(Path::new("")));
        Path::new(target).is_relative() && without_dots(&dir.join(target)).starts_with(self.original)
    }
}

/// Returns whether a file means the same in an overlay at another path: it is no link into the original, no relative link
/// out of it, and no file `.git` that leads to a repository outside.
pub(super) fn is_portable(original: &Path, path: &Path, metadata: &Metadata) -> io::Result<bool> {
    let copier = Copier {
        original,
        root: original,
        skip: original,
        is_cancelled: &|| false,
        entries: 0,
        left_out: vec![],
    };
    Ok(match FileStamp::of_any(metadata).kind {
        FileKind::Link => {
            let target = fs::read_link(original.join(path))?;
            // A relative link out of the original becomes an absolute one in a copy.
            !target.starts_with(original) && copier.target(path, &target) == target
        }
        FileKind::File => path.file_name().is_none_or(|name| name != ".git") || copier.stays_inside(path),
        _ => true,
    })
}

/// Adds the path to an error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| match error.kind() {
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("{path}: {error}")),
    }
}

/// Resolves `.` and `..` without looking at the disk.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(unix)]
fn link(target: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

#[cfg(not(unix))]
fn link(_target: &Path, _at: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "symbolic links cannot be copied on this system"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    struct Stage {
        dir: tempfile::TempDir,
    }

    impl Stage {
        fn new(files: &[(&str, &[u8])]) -> Self {
            let stage = Self { dir: tempfile::tempdir().unwrap() };
            fs::create_dir(stage.original()).unwrap();
            for (path, content) in files {
                write(&stage.original().join(path), content);
            }
            stage
        }

        fn original(&self) -> PathBuf {
            self.dir.path().join("original")
        }

        fn copy(&self) -> WorkspaceCopy {
            let root = self.dir.path().join("copies/1/original");
            WorkspaceCopy::make(&self.original(), &root, &self.dir.path().join("copies"), &|| false).unwrap()
        }

        fn apply(&self, copy: &WorkspaceCopy) -> Result<Vec<String>, ApplyError> {
            let mut paths: Vec<String> =
                copy.apply(self.dir.path())?.iter().map(|path| path.display().to_string()).collect();
            paths.sort();
            Ok(paths)
        }
    }

    fn write(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn run_bit(path: &Path) -> bool {
        path.metadata().unwrap().permissions().mode() & 0o100 != 0
    }

    #[test]
    fn changes_of_every_kind_are_applied() {
        let stage = Stage::new(&[
            ("text", b"old\n"),
            ("binary", &[0, 1, 255]),
            ("gone/deep/file", b"x"),
            ("becomes-dir", b"x"),
            ("dir/becomes-file", b"x"),
            ("script", b"#!/bin/sh\n"),
            (".gitignore", b"built/\n"),
            ("built/old", b"1"),
            (".git/config", b"[core]\n"),
        ]);
        symlink("text", stage.original().join("link")).unwrap();
        let copy = stage.copy();
        let root = copy.root().to_owned();
        assert_eq!(fs::read(root.join("built/old")).unwrap(), b"1", "ignored files are copied");
        assert!(stage.apply(&copy).unwrap().is_empty(), "nothing has changed yet");
        write(&root.join("text"), b"new\n");
        write(&root.join("binary"), &[0, 2, 255]);
        fs::remove_dir_all(root.join("gone")).unwrap();
        fs::remove_file(root.join("becomes-dir")).unwrap();
        write(&root.join("becomes-dir/inside"), b"y");
        fs::remove_dir_all(root.join("dir")).unwrap();
        write(&root.join("dir"), b"z");
        fs::set_permissions(root.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        symlink("binary", root.join("link")).unwrap();
        symlink(root.join("text"), root.join("absolute")).unwrap();
        write(&root.join("built/new"), b"2");
        write(&root.join(".git/hooks/post-commit"), b"evil");
        let applied = stage.apply(&copy).unwrap();
        let expected = [
            "absolute",
            "becomes-dir",
            "becomes-dir/inside",
            "binary",
            "dir",
            "dir/becomes-file",
            "gone/deep/file",
            "link",
            "script",
            "text",
        ];
        assert_eq!(applied, expected);
        let at = |path: &str| stage.original().join(path);
        assert_eq!(fs::read(at("text")).unwrap(), b"new\n");
        assert_eq!(fs::read(at("binary")).unwrap(), [0, 2, 255]);
        assert!(!at("gone").exists(), "the empty directory is removed");
        assert_eq!(fs::read(at("becomes-dir/inside")).unwrap(), b"y");
        assert_eq!(fs::read(at("dir")).unwrap(), b"z");
        assert!(run_bit(&at("script")) && !run_bit(&at("text")));
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("binary"));
        assert_eq!(fs::read_link(at("absolute")).unwrap(), at("text"), "the link leads into the original");
        assert!(!at("built/new").exists() && !at(".git/hooks").exists());
        assert!(stage.apply(&copy).unwrap_err().to_string().contains("has changed"), "it is applied once");
    }

    #[test]
    fn a_changed_original_is_refused_and_a_touched_one_is_not() {
        let stage = Stage::new(&[("a", b"1"), ("b", b"1")]);
        let copy = stage.copy();
        write(&copy.root().join("a"), b"agent");
        write(&stage.original().join("b"), b"1");
        assert_eq!(stage.apply(&copy).unwrap(), ["a"], "the same content was written again");
        for change in ["a", "b", "new"] {
            let stage = Stage::new(&[("a", b"1"), ("b", b"1")]);
            let copy = stage.copy();
            write(&copy.root().join("a"), b"agent");
            write(&stage.original().join(change), b"user");
            let error = stage.apply(&copy).unwrap_err();
            assert!(error.to_string().ends_with(&format!("copied: {change}")), "{error}");
            let now = fs::read(stage.original().join("a")).unwrap();
            assert_eq!(now, if change == "a" { b"user".to_vec() } else { b"1".to_vec() });
        }
    }

    #[test]
    fn links_of_the_copy_lead_to_the_copy_or_outside() {
        let stage = Stage::new(&[("dir/file", b"1")]);
        let original = stage.original();
        write(&stage.dir.path().join("outside/file"), b"2");
        symlink(original.join("dir"), original.join("absolute")).unwrap();
        symlink("../outside/file", original.join("relative")).unwrap();
        symlink("../dir/file", original.join("dir/inside")).unwrap();
        symlink("loop", original.join("loop")).unwrap();
        let copy = stage.copy();
        let target = |path: &str| fs::read_link(copy.root().join(path)).unwrap();
        assert_eq!(target("absolute"), copy.root().join("dir"));
        assert_eq!(fs::read(copy.root().join("relative")).unwrap(), b"2");
        assert_eq!(target("dir/inside"), Path::new("../dir/file"));
        assert_eq!(target("loop"), Path::new("loop"));
        assert!(stage.apply(&copy).unwrap().is_empty(), "copied links are not changes");
    }

    #[test]
    fn special_files_and_foreign_repositories_are_left_out() {
        let stage = Stage::new(&[
            (".git", b"gitdir: /somewhere/.git/worktrees/x\n"),
            ("module/.git", b"gitdir: ../modules/m\n"),
            ("read-only/file", b"1"),
        ]);
        let fifo = stage.original().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let read_only = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
        read_only(&stage.original().join("read-only"));
        let copy = stage.copy();
        assert!(!copy.root().join("fifo").exists() && !copy.root().join(".git").exists());
        assert!(copy.root().join("module/.git").exists());
        assert!(copy.left_out.len() == 1 && copy.left_out[0].starts_with(".git: "), "{:?}", copy.left_out);
        assert_eq!(copy.root().join("read-only").metadata().unwrap().permissions().mode() & 0o777, 0o555);
        for dir in [stage.original(), copy.root().to_owned()] {
            fs::set_permissions(dir.join("read-only"), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn a_cancelled_copy_stops() {
        let stage = Stage::new(&[("a", b"1")]);
        let root = stage.dir.path().join("copy");
        let error = WorkspaceCopy::make(&stage.original(), &root, Path::new(""), &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
