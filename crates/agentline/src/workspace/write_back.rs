//! Writes files into a workspace: each atomically, none outside it, and undone as far as possible if one fails.

use crate::fs::regular_file::read_regular;
use crate::workspace::tree::mode;
use std::{
    ffi::OsStr,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// The size of the largest file that is read as a whole, in bytes.
const LARGEST_FILE: u64 = 1 << 30;

/// A file as it is or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// There is no file.
    Missing,
    /// A regular file.
    File {
        /// The permission bits, where the system has them.
        mode: Option<u32>,
        content: Vec<u8>,
    },
    /// A symbolic link.
    Link { target: Vec<u8> },
}

impl FileState {
    /// Reads the current state of a path.
    ///
    /// # Errors
    /// Fails if the path is a directory, pipe, socket or device, or cannot be read.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Self::read_up_to(path, LARGEST_FILE)
    }

    /// Reads the current state of a path, whose content has at most `limit` bytes.
    ///
    /// # Errors
    /// As [`FileState::read`], and with `FileTooLarge` if the content is longer.
    pub(crate) fn read_up_to(path: &Path, limit: u64) -> io::Result<Self> {
        let metadata = match path.symlink_metadata() {
            // A parent that is a file has no files in it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::Missing);
            }
            metadata => metadata?,
        };
        match metadata.file_type() {
            // A sparse file takes no space on the disk, but all of it in memory.
            kind if kind.is_file() && metadata.len() > limit => {
                Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {} bytes", metadata.len())))
            }
            kind if kind.is_file() => {
                Ok(Self::File { mode: mode(&metadata), content: read_regular(path, limit)? })
            }
            kind if kind.is_symlink() => {
                Ok(Self::Link { target: fs::read_link(path)?.into_os_string().into_encoded_bytes() })
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns the size of the content in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Missing => 0,
            Self::File { content, .. } => content.len() as u64,
            Self::Link { target } => target.len() as u64,
        }
    }

    /// Returns whether this is the same file for a workspace: the same content and target, and executable or not.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let runnable = |mode: &Option<u32>| mode.map(|mode| mode & 0o100 != 0);
        match (self, other) {
            (Self::File { mode, content }, Self::File { mode: other_mode, content: other }) => {
                content == other && runnable(mode) == runnable(other_mode)
            }
            _ => self == other,
        }
    }

    /// Writes a file or a link atomically, so that a partial file is never visible.
    pub(crate) fn put(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new("."));
        match self {
            Self::Missing => fs::remove_file(path),
            Self::Link { target } => put_link(path, parent, target),
            Self::File { mode, content } => {
                let mut temporary = tempfile::Builder::new().prefix(".agentline-").tempfile_in(parent)?;
                io::Write::write_all(&mut temporary, content)?;
                #[cfg(unix)]
                if let Some(mode) = mode {
                    use std::os::unix::fs::PermissionsExt as _;
                    temporary.as_file().set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
                }
                #[cfg(not(unix))]
                let _ = mode;
                temporary.persist(path)?;
                Ok(())
            }
        }
    }
}

#[cfg(unix)]
fn put_link(path: &Path, parent: &Path, target: &[u8]) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let target = Path::new(OsStr::from_bytes(target));
    let link = tempfile::Builder::new()
        .prefix(".agentline-")
        .make_in(parent, |at| std::os::unix::fs::symlink(target, at))?;
    link.into_temp_path().persist(path)?;
    Ok(())
}

#[cfg(not(unix))]
fn put_link(_path: &Path, _parent: &Path, _target: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Files that are being written into a workspace.
pub(crate) struct WriteBack<'a> {
    cwd: &'a Path,
    before: Vec<(PathBuf, FileState)>,
    created_dirs: Vec<PathBuf>,
    removed_dirs: Vec<PathBuf>,
}

impl<'a> WriteBack<'a> {
    /// Creates a list without files.
    pub(crate) fn new(cwd: &'a Path) -> Self {
        Self { cwd, before: Vec::new(), created_dirs: Vec::new(), removed_dirs: Vec::new() }
    }

    /// Writes or removes a file, by its path in the workspace.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if the path leaves the workspace, passes through a link or is Git's.
    pub(crate) fn write(&mut self, path: &Path, state: &FileState) -> io::Result<()> {
        let path = target_path(self.cwd, path).ok_or(io::ErrorKind::InvalidInput)?;
        self.before.push((path.clone(), FileState::read(&path)?));
        if *state != FileState::Missing {
            self.create_parents(&path)?;
        }
        state.put(&path)
    }

    /// Removes the directory of a removed file and its parents, as long as they are empty and `is_gone` says so.
    pub(crate) fn remove_empty_parents(&mut self, path: &Path, is_gone: impl Fn(&Path) -> bool) {
        for dir in path.ancestors().skip(1).take_while(|dir| !dir.as_os_str().is_empty()) {
            let on_disk = self.cwd.join(dir);
            // A directory with other files is not removed.
            if !is_gone(dir) || fs::remove_dir(&on_disk).is_err() {
                break;
            }
            self.removed_dirs.push(on_disk);
        }
    }

    /// Restores the earlier state. Errors are ignored; the error that caused the undo is reported.
    pub(crate) fn undo(self) {
        for dir in self.removed_dirs.into_iter().rev() {
            let _ = fs::create_dir_all(dir);
        }
        for (path, state) in self.before.into_iter().rev() {
            let _ = state.put(&path);
        }
        for dir in self.created_dirs.into_iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }

    fn create_parents(&mut self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        let missing: Vec<&Path> =
            parent.ancestors().take_while(|dir| *dir != self.cwd && !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(dir)?;
            self.created_dirs.push(dir.to_owned());
        }
        Ok(())
    }
}

/// Returns the path of a file in the workspace; `None` if it leaves the workspace or passes through a link.
fn target_path(cwd: &Path, inside: &Path) -> Option<PathBuf> {
    // Git's own files are never written, because hooks and configuration can start programs.
    let is_git = |part: &OsStr| part.eq_ignore_ascii_case(".git");
    let is_plain = inside.components().all(|part| matches!(part, Component::Normal(name) if !is_git(name)));
    let mut dir = cwd.to_owned();
    for part in inside.parent()?.components() {
        dir.push(part);
        if dir.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
            return None;
        }
    }
    (is_plain && !inside.as_os_str().is_empty()).then(|| cwd.join(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        let target = |path: &str| target_path(cwd, Path::new(path));
        for bad in
            ["", "/etc/passwd", "../a", "a/../../b", "./a/..", ".git/hooks/post-commit", "a/.Git/config"]
        {
            assert_eq!(target(bad), None, "{bad}");
        }
        assert_eq!(target("new/folder/a"), Some(cwd.join("new/folder/a")));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/", cwd.join("out")).unwrap();
            assert_eq!(target("out/a"), None);
        }
    }

    #[cfg(unix)]
    #[test]
    fn undo_restores_files_links_modes_and_directories() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        let at = |name: &str| cwd.join(name);
        fs::write(at("run.sh"), "#!/bin/sh").unwrap();
        fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("run.sh", at("link")).unwrap();
        fs::create_dir(at("old")).unwrap();
        fs::write(at("old/only"), [0, 255]).unwrap();
        let read = |name: &str| FileState::read(&at(name)).unwrap();
        let before = [read("run.sh"), read("link"), read("old/only")];
        let mut back = WriteBack::new(cwd);
        let file = |text: &str| FileState::File { mode: Some(0o644), content: text.into() };
        back.write(Path::new("run.sh"), &file("x")).unwrap();
        back.write(Path::new("link"), &FileState::Link { target: b"elsewhere".into() }).unwrap();
        back.write(Path::new("new/deep/a"), &file("y")).unwrap();
        back.write(Path::new("old/only"), &FileState::Missing).unwrap();
        back.remove_empty_parents(Path::new("old/only"), |_| true);
        assert!(at("new/deep/a").exists() && !at("old").exists());
        assert!(!read("run.sh").is_same_as(&before[0]));
        back.undo();
        assert_eq!([read("run.sh"), read("link"), read("old/only")], before);
        assert!(!at("new").exists());
    }
}
