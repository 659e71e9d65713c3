//! The files of a directory that can change a setting or run something, with their digests.

use crate::fs::disk_fs::canonicalize;
use crate::workspace::config_file;
use crate::workspace::trust::failed;
use agentline_core::{Problem, agents};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

/// The maximum number of files, directories and links.
const MAX_ENTRIES: usize = 5_000;
/// The maximum total size of the files in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The maximum depth of directories, counted from the start of the search.
const MAX_DEPTH: usize = 32;

/// The files of a directory that full trust covers, with a digest of each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// The directory, with all links resolved.
    pub directory: PathBuf,
    /// The type and digest of each file, by its path relative to the directory (`../.env` for a file above it).
    pub files: BTreeMap<String, String>,
}

/// A file that has changed since it was trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileChange {
    /// The path relative to the directory.
    pub path: String,
    /// The kind of change.
    pub change: TrustChange,
}

/// The kind of change of a trusted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustChange {
    /// The file is new.
    Added,
    /// The file no longer exists.
    Removed,
    /// The file has other content or is a link to another file.
    Modified,
}

impl TrustChange {
    /// Returns the name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Modified => "modified",
        }
    }
}

impl Manifest {
    /// Reads the files of a directory that full trust covers.
    ///
    /// # Errors
    /// Fails if the directory or one of the files cannot be read, or if there are too many or they are too large.
    pub fn read(directory: &Path, home: Option<&Path>) -> Result<Self, Problem> {
        let directory = canonicalize(directory).map_err(|error| failed("find", directory, &error))?;
        if !directory.is_dir() {
            let problem = Problem::new("trust", format!("`{}` is not a directory", directory.display()));
            return Err(problem.hint("pass the directory of a workspace"));
        }
        let home = home.and_then(|home| canonicalize(home).ok());
        let mut walk = Walk::default();
        if let Some(file) = config_file::workspace_file(&directory, home.as_deref()) {
            walk.entry(&file, &relative(&file, &directory), 0)?;
        }
        let agents = agents::built_in();
        let names: BTreeSet<&str> =
            agents.iter().flat_map(|agent| agent.info().project_files).copied().collect();
        // In the home directory these are the user's own files, and above it nothing belongs to a project.
        for ancestor in directory.ancestors().take_while(|ancestor| home.as_deref() != Some(*ancestor)) {
            for name in &names {
                let path = ancestor.join(name);
                walk.entry(&path, &relative(&path, &directory), 0)?;
            }
        }
        Ok(Self { directory, files: walk.files })
    }

    /// Returns a digest of the complete manifest.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut text = Sha256::new();
        for (path, content) in &self.files {
            // Neither a path nor a digest contains a NUL byte.
            text.update(format!("{path}\0{content}\0"));
        }
        hex(&text.finalize())
    }

    /// Returns the changes since these files were trusted.
    #[must_use]
    pub fn changes_since(&self, trusted: &BTreeMap<String, String>) -> Vec<FileChange> {
        let paths: BTreeSet<&String> = self.files.keys().chain(trusted.keys()).collect();
        let change = |path: &String| match (self.files.get(path), trusted.get(path)) {
            (Some(now), Some(before)) if now == before => None,
            (Some(_), Some(_)) => Some(TrustChange::Modified),
            (Some(_), None) => Some(TrustChange::Added),
            (None, _) => Some(TrustChange::Removed),
        };
        let changed = paths.into_iter().filter_map(|path| Some((path, change(path)?)));
        changed.map(|(path, change)| FileChange { path: path.clone(), change }).collect()
    }
}

/// Reads files and directories within the limits of a manifest.
#[derive(Default)]
struct Walk {
    files: BTreeMap<String, String>,
    entries: usize,
    bytes: u64,
    /// The directories between the start and the current one, to stop at links that form a cycle.
    open: HashSet<PathBuf>,
}

impl Walk {
    /// Adds the file, link or directory at a path, if it exists.
    fn entry(&mut self, path: &Path, name: &str, depth: usize) -> Result<(), Problem> {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(failed("read", path, &error)),
        };
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(too_large(name, &format!("more than {MAX_ENTRIES} files and directories")));
        }
        let mut label = String::new();
        let metadata = if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(|error| failed("read", path, &error))?;
            label = format!("link {} ", text(target.as_os_str()));
            match fs::metadata(path) {
                Ok(metadata) => metadata,
                Err(_) => {
                    self.add(name, format!("{label}nowhere"));
                    return Ok(());
                }
            }
        } else {
            metadata
        };
        if metadata.is_dir() {
            if !label.is_empty() {
                self.add(name, format!("{label}directory"));
            }
            return self.directory(path, name, depth);
        }
        if !metadata.is_file() {
            // A pipe or a device is not read, because that could block forever.
            self.add(name, format!("{label}special"));
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(metadata.len());
        if self.bytes > MAX_BYTES {
            return Err(too_large(name, &format!("more than {} MB", MAX_BYTES >> 20)));
        }
        let content = read_file(path, metadata.len()).map_err(|error| failed("read", path, &error))?;
        self.add(name, format!("{label}sha256 {}", hex(&Sha256::digest(&content))));
        Ok(())
    }

    fn directory(&mut self, path: &Path, name: &str, depth: usize) -> Result<(), Problem> {
        let real = canonicalize(path).map_err(|error| failed("read", path, &error))?;
        if depth == MAX_DEPTH {
            return Err(too_large(name, &format!("directories nested more than {MAX_DEPTH} levels deep")));
        }
        if !self.open.insert(real.clone()) {
            return Ok(());
        }
        let listed = fs::read_dir(path).and_then(|entries| {
            let mut names = Vec::new();
            for entry in entries.take(MAX_ENTRIES + 1) {
                names.push(entry?.file_name());
            }
            Ok(names)
        });
        for inner in listed.map_err(|error| failed("read", path, &error))? {
            let inner_name = format!("{name}/{}", text(&inner));
            self.entry(&path.join(&inner), &inner_name, depth + 1)?;
        }
        self.open.remove(&real);
        Ok(())
    }

    fn add(&mut self, name: &str, content: String) {
        self.files.insert(name.to_owned(), content);
    }
}

/// Reads a file that must have exactly this size, without blocking if it was replaced by a pipe.
fn read_file(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("no longer a file"));
    }
    let mut content = Vec::new();
    file.take(size.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 != size {
        return Err(io::Error::other("changed during the read"));
    }
    Ok(content)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn too_large(name: &str, excess: &str) -> Problem {
    Problem::new(
        "trust",
        format!("the project's settings contain {excess} (at `{name}`), which is too much to trust"),
    )
    .hint("remove files that do not belong there, or pass `--trust full` to each run")
}

/// Returns a path relative to a directory that is at or below the path's own directory.
fn relative(path: &Path, directory: &Path) -> String {
    let mut up = String::new();
    for ancestor in directory.ancestors() {
        if let Ok(rest) = path.strip_prefix(ancestor) {
            let parts: Vec<_> = rest.iter().map(text).collect();
            return up + &parts.join("/");
        }
        up.push_str("../");
    }
    path.to_string_lossy().into_owned()
}

/// Converts a name to text. Different names have different texts.
fn text(name: &OsStr) -> String {
    name.to_str().map_or_else(|| format!("{name:?}"), str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
