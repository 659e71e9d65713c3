//! Reads and writes files for an agent, only in the workspace and the included directories.
//!
//! A path is resolved link by link to its real location. The file is then opened relative to a handle to its root
//! directory, one component at a time and without following links. If a link is put in place in between, the open fails
//! and the path is resolved again, so a link can never lead outside.

mod follow;
mod names;
#[cfg_attr(unix, path = "files/unix.rs")]
#[cfg_attr(not(unix), path = "files/portable.rs")]
mod os;

#[cfg(test)]
mod tests;

use crate::fs::disk_fs::canonicalize;
use agentline_core::{OUTSIDE_WORKSPACE, ResolvedPath};
use os::DirHandle;
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

/// The maximum size of one read in bytes.
pub const MAX_READ: u64 = 10 << 20;
/// The maximum length of a path in bytes.
const LONGEST_PATH: usize = 4096;
/// How many bytes of a file are read at most when lines are selected.
const MAX_SCANNED_BYTES: u64 = 1 << 30;
/// How many times a path is resolved again if its links change in the meantime.
const ATTEMPTS: usize = 16;

/// The files that an agent may access.
#[derive(Debug)]
pub struct AgentFiles {
    /// The workspace, followed by the included directories.
    roots: Vec<Root>,
    max_read: u64,
}

#[derive(Debug)]
struct Root {
    /// The path with all links resolved.
    path: PathBuf,
    dir: DirHandle,
}

/// An error from reading or writing a file. The first word of the message is stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is not in the workspace or an included directory.
    #[error("{OUTSIDE_WORKSPACE}: `{0}` is not in the workspace")]
    Outside(String),
    /// The file does not exist.
    #[error("not_found: `{0}` does not exist")]
    NotFound(String),
    /// The path is not a regular file.
    #[error("not_a_file: `{0}` is not a regular file")]
    NotAFile(String),
    /// The content is larger than the maximum size of one read.
    #[error("too_large: `{path}` is larger than {limit} bytes; read only some of its lines")]
    TooLarge {
        /// The path of the file.
        path: String,
        /// The maximum size of one read in bytes.
        limit: u64,
    },
    /// The file is not UTF-8. Replacement characters would destroy content when the agent writes the text back.
    #[error("not_text: `{0}` is not UTF-8")]
    NotText(String),
    /// The path is invalid.
    #[error("invalid_path: {0}")]
    Invalid(&'static str),
    /// The operating system reported an error.
    #[error("io: `{path}`")]
    Io {
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl AgentFiles {
    /// Opens a workspace and other directories. Included directories that do not exist are ignored.
    ///
    /// # Errors
    /// Fails if the workspace cannot be opened.
    pub fn new(workspace: &Path, included: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        Self::of_resolved(canonicalize(workspace)?, included)
    }

    /// Opens a workspace whose links are already resolved.
    pub(crate) fn of_resolved(
        workspace: PathBuf,
        included: impl IntoIterator<Item = PathBuf>,
    ) -> io::Result<Self> {
        let open = |path: PathBuf| Ok::<_, io::Error>(Root { dir: DirHandle::open(&path)?, path });
        let dirs = included.into_iter().filter_map(|dir| canonicalize(&workspace.join(dir)).ok());
        let dirs: Vec<PathBuf> = dirs.collect();
        let mut roots = vec![open(workspace)?];
        roots.extend(dirs.into_iter().filter_map(|dir| open(dir).ok()));
        Ok(Self { roots, max_read: MAX_READ })
    }

    /// Sets the maximum size of one read in bytes.
    #[must_use]
    pub fn max_read(mut self, bytes: u64) -> Self {
        self.max_read = bytes;
        self
    }

    /// Returns the path of the workspace with all links resolved.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.roots[0].path
    }

    /// Resolves a path according to the current state of the disk.
    #[must_use]
    pub fn resolve(&self, path: &str) -> ResolvedPath {
        let Ok(real) = self.follow(path) else { return ResolvedPath::unclear(path) };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if follow::depends_on_process(&self.workspace().join(path)) || follow::depends_on_process(&real) {
            return ResolvedPath::unclear(text(&real));
        }
        match self.root_of(&real) {
            Some((0, rest)) => ResolvedPath::in_workspace(text(&real), text(rest)),
            Some(_) => ResolvedPath::included(text(&real)),
            None => ResolvedPath::outside(text(&real)),
        }
    }

    /// Resolves a path like [`resolve`](Self::resolve), and adds the other names of a hard-linked file. Finding them
    /// walks the workspace and the included directories.
    #[must_use]
    pub fn resolve_with_names(&self, path: &str) -> ResolvedPath {
        let resolved = self.resolve(path);
        let dirs = self.roots.iter().map(|root| root.path.as_path());
        match names::other_names(Path::new(&resolved.path), dirs) {
            Some(names) => {
                let in_workspace = |name: &PathBuf| {
                    name.strip_prefix(self.workspace()).ok().map(|name| name.to_string_lossy().into_owned())
                };
                resolved.linked(names.found.iter().filter_map(in_workspace).collect(), !names.complete)
            }
            None => resolved,
        }
    }

    /// Reads a file, or `limit` of its lines starting at `line`, counted from 1.
    ///
    /// # Errors
    /// Fails if the file is outside, missing, not a regular file, too large or not UTF-8.
    pub fn read(&self, path: &str, line: Option<u64>, limit: Option<u64>) -> Result<String, FileError> {
        let file = self.at(path, |root, parts| {
            let Some((name, dirs)) = parts.split_last() else { return Err(directory_error()) };
            let mut dir = None;
            for part in dirs {
                dir = Some(dir.as_ref().unwrap_or(root).enter(part)?);
            }
            dir.as_ref().unwrap_or(root).read(name)
        })?;
        let bytes = if line.is_none() && limit.is_none() {
            self.whole(file, path)?
        } else {
            self.lines(file, path, line.unwrap_or(1), limit.unwrap_or(u64::MAX))?
        };
        String::from_utf8(bytes).map_err(|_| FileError::NotText(shown(path)))
    }

    /// Writes a whole file atomically, keeps its mode, and creates missing parent directories.
    ///
    /// # Errors
    /// Fails if the file is outside or not a regular file, or on an I/O error.
    pub fn write(&self, path: &str, text: &str) -> Result<(), FileError> {
        self.at(path, |root, parts| {
            let Some((name, dirs)) = parts.split_last() else { return Err(directory_error()) };
            let mut dir = None;
            for part in dirs {
                dir = Some(enter_or_make(dir.as_ref().unwrap_or(root), part)?);
            }
            replace(dir.as_ref().unwrap_or(root), name, |file| file.write_all(text.as_bytes()))
        })
    }

    /// Performs an operation with the handle to the root directory and the path components below it. Retries if a link
    /// is found.
    fn at<T>(
        &self,
        path: &str,
        act: impl Fn(&DirHandle, &[&OsStr]) -> io::Result<T>,
    ) -> Result<T, FileError> {
        if path.ends_with(['/', std::path::MAIN_SEPARATOR]) || path.ends_with("/.") {
            return Err(FileError::NotAFile(shown(path)));
        }
        let mut before: Option<PathBuf> = None;
        for _ in 0..ATTEMPTS {
            let real = self.follow(path)?;
            let Some((root, rest)) = self.root_of(&real) else { return Err(FileError::Outside(shown(path))) };
            let parts: Vec<&OsStr> = rest.iter().collect();
            match act(&self.roots[root].dir, &parts) {
                Ok(done) => return Ok(done),
                // A component has become a link since the path was resolved.
                Err(error) if os::is_link(&error) && before.as_ref() != Some(&real) => {}
                Err(error) => return Err(explained(path, error)),
            }
            before = Some(real);
        }
        Err(FileError::Outside(shown(path)))
    }

    fn follow(&self, path: &str) -> Result<PathBuf, FileError> {
        if path.is_empty() {
            return Err(FileError::Invalid("the path is empty"));
        }
        if path.contains('\0') {
            return Err(FileError::Invalid("the path contains a NUL byte"));
        }
        if path.len() > LONGEST_PATH {
            return Err(FileError::Invalid("the path is too long"));
        }
        follow::follow(&self.workspace().join(path)).map_err(|error| explained(path, error))
    }

    /// Returns the root that contains a resolved path, and the path relative to it.
    fn root_of<'a>(&self, real: &'a Path) -> Option<(usize, &'a Path)> {
        self.roots.iter().enumerate().find_map(|(i, root)| Some((i, real.strip_prefix(&root.path).ok()?)))
    }

    fn whole(&self, file: File, path: &str) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::new();
        file.take(self.max_read + 1).read_to_end(&mut bytes).map_err(|error| explained(path, error))?;
        self.not_too_large(&bytes, path)?;
        Ok(bytes)
    }

    fn lines(&self, file: File, path: &str, from: u64, count: u64) -> Result<Vec<u8>, FileError> {
        let mut reader = BufReader::new(file.take(MAX_SCANNED_BYTES));
        for _ in 1..from.max(1) {
            if reader.skip_until(b'\n').map_err(|error| explained(path, error))? == 0 {
                break;
            }
        }
        let mut bytes = Vec::new();
        for _ in 0..count {
            let room = self.max_read + 1 - bytes.len() as u64;
            let read = reader.by_ref().take(room).read_until(b'\n', &mut bytes);
            if read.map_err(|error| explained(path, error))? == 0 {
                break;
            }
            self.not_too_large(&bytes, path)?;
        }
        Ok(bytes)
    }

    fn not_too_large(&self, bytes: &[u8], path: &str) -> Result<(), FileError> {
        if bytes.len() as u64 > self.max_read {
            return Err(FileError::TooLarge { path: shown(path), limit: self.max_read });
        }
        Ok(())
    }
}

/// Replaces a file atomically: the old file stays until the new one is complete.
fn replace(dir: &DirHandle, name: &OsStr, fill: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    // A file that is not writable is not replaced, even if the directory would permit it.
    let old = match dir.write(name) {
        Ok(file) => Some(file.metadata()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let draft = format!(".agentline-{}.tmp", uuid::Uuid::new_v4().simple());
    let draft = OsStr::new(&draft);
    let mut file = dir.create(draft)?;
    let filled = fill(&mut file)
        .and_then(|()| old.map_or(Ok(()), |old| os::copy_permissions(&file, &old)))
        .and_then(|()| file.sync_data())
        .and_then(|()| dir.rename(draft, name));
    if filled.is_err() {
        // Remove the incomplete file; the original error is returned.
        let _ = dir.remove(draft);
    }
    filled
}

fn enter_or_make(dir: &DirHandle, name: &OsStr) -> io::Result<DirHandle> {
    match dir.enter(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    match dir.make(name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => dir.enter(name),
    }
}

fn directory_error() -> io::Error {
    io::ErrorKind::IsADirectory.into()
}

fn explained(path: &str, error: io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound => FileError::NotFound(shown(path)),
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => FileError::NotAFile(shown(path)),
        _ if os::is_not_a_file(&error) => FileError::NotAFile(shown(path)),
        _ => FileError::Io { path: shown(path), source: error },
    }
}

/// Returns a path for a message, truncated if it is very long.
fn shown(path: &str) -> String {
    match path.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}
