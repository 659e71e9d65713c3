//! The file of trusted directories in the user's state directory.

use crate::fs::disk_fs::canonicalize;
use crate::workspace::trust::{
    failed,
    manifest::{FileChange, Manifest},
};
use agentline_core::Problem;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The version of the file format.
const VERSION: u32 = 1;
/// The maximum number of bytes read from the file.
const MAX_BYTES: u64 = 64 << 20;

/// The directories that one user fully trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStore {
    file: PathBuf,
    home: Option<PathBuf>,
}

/// The trust state of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustState {
    /// The user has not trusted the directory.
    Unknown,
    /// The directory is unchanged since the user trusted it.
    Trusted,
    /// The directory has changed since the user trusted it.
    Changed {
        /// The current manifest.
        manifest: Manifest,
        /// The changed files.
        changes: Vec<FileChange>,
    },
}

/// A directory that the user trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrustedDirectory {
    /// When the directory was trusted, in seconds since 1970.
    pub trusted_at: u64,
    /// A digest of all files.
    pub digest: String,
    /// The trusted files, by path relative to the directory.
    pub files: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    directories: BTreeMap<String, TrustedDirectory>,
}

impl TrustStore {
    /// Returns the store for this home directory and environment, or `None` if no state directory is known.
    #[must_use]
    pub fn find(home: Option<&Path>, variables: &BTreeMap<OsString, OsString>) -> Option<Self> {
        let set = |name: &str| {
            let value = variables.get(&OsString::from(name)).map(PathBuf::from);
            value.filter(|dir| dir.is_absolute())
        };
        let dir = if cfg!(windows) {
            set("LOCALAPPDATA").or_else(|| home.map(|home| home.join("AppData").join("Local")))
        } else {
            set("XDG_STATE_HOME").or_else(|| match home {
                Some(home) if cfg!(target_os = "macos") => Some(home.join("Library/Application Support")),
                home => home.map(|home| home.join(".local/state")),
            })
        };
        let file = dir?.join("agentline").join("trust.json");
        Some(Self { file, home: home.map(Path::to_owned) })
    }

    /// Returns the path of the file, which may not exist yet.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the trust state of a directory.
    ///
    /// # Errors
    /// Fails if the store or the directory cannot be read.
    pub fn state(&self, directory: &Path) -> Result<TrustState, Problem> {
        if fs::symlink_metadata(&self.file).is_err() {
            return Ok(TrustState::Unknown);
        }
        let directory = match canonicalize(directory) {
            Ok(directory) => directory,
            // A run in a missing directory fails with its own message.
            Err(_) => return Ok(TrustState::Unknown),
        };
        let content = self.read()?;
        let Some(trusted) = directory.to_str().and_then(|name| content.directories.get(name)) else {
            return Ok(TrustState::Unknown);
        };
        let manifest = Manifest::read(&directory, self.home.as_deref())?;
        let changes = manifest.changes_since(&trusted.files);
        Ok(if changes.is_empty() { TrustState::Trusted } else { TrustState::Changed { manifest, changes } })
    }

    /// Trusts a directory in the state of this manifest.
    ///
    /// # Errors
    /// Fails if the store is inside the directory or cannot be written.
    pub fn trust(&self, manifest: &Manifest) -> Result<(), Problem> {
        let name = name_of(&manifest.directory)?;
        self.create_dir()?;
        let dir = self.dir();
        let dir = canonicalize(dir).map_err(|error| failed("find", dir, &error))?;
        if dir.starts_with(&manifest.directory) {
            let message = format!(
                "`{name}` cannot be trusted, because it contains the list of trusted directories (`{}`)",
                self.file.display()
            );
            return Err(Problem::new("trust", message).hint("trust the directory of a project instead"));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (digest, files) = (manifest.digest(), manifest.files.clone());
        self.change(|directories| {
            directories.insert(name, TrustedDirectory { trusted_at: now, digest, files });
        })
    }

    /// Revokes trust in a directory and returns whether it was trusted.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written.
    pub fn revoke(&self, directory: &Path) -> Result<bool, Problem> {
        // A directory that no longer exists can still be revoked.
        let directory = canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let name = name_of(&directory)?;
        if fs::symlink_metadata(&self.file).is_err() {
            return Ok(false);
        }
        let mut was_trusted = false;
        self.change(|directories| was_trusted = directories.remove(&name).is_some())?;
        Ok(was_trusted)
    }

    /// Returns the trusted directories.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub fn list(&self) -> Result<BTreeMap<PathBuf, TrustedDirectory>, Problem> {
        let directories = self.read()?.directories;
        Ok(directories.into_iter().map(|(name, trusted)| (name.into(), trusted)).collect())
    }

    fn dir(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    fn read(&self) -> Result<Content, Problem> {
        let text = match read_private(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Content { version: VERSION, directories: BTreeMap::new() });
            }
            Err(error) => return Err(self.damaged(&error.to_string())),
        };
        let content: Content =
            serde_json::from_slice(&text).map_err(|error| self.damaged(&error.to_string()))?;
        if content.version != VERSION {
            return Err(self.damaged(&format!("unsupported version {}, expected {VERSION}", content.version)));
        }
        Ok(content)
    }

    fn damaged(&self, error: &str) -> Problem {
        let message = format!("cannot use the list of trusted directories: {error}");
        Problem::new("trust", message)
            .hint(format!("remove `{}` and trust your directories again", self.file.display()))
    }

    fn create_dir(&self) -> Result<(), Problem> {
        let dir = self.dir();
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(dir).map_err(|error| failed("create", dir, &error))
    }

    /// Replaces the file atomically. A lock serializes concurrent writers.
    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, TrustedDirectory>)) -> Result<(), Problem> {
        let wrong = |error: io::Error| failed("write", &self.file, &error);
        self.create_dir()?;
        let lock = self.file.with_extension("lock");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(&lock).map_err(wrong)?;
        lock.lock().map_err(wrong)?;
        let mut content = self.read()?;
        edit(&mut content.directories);
        // The temporary file has mode 0600.
        let mut new = tempfile::NamedTempFile::new_in(self.dir()).map_err(wrong)?;
        let text = serde_json::to_vec_pretty(&content).map_err(|error| wrong(error.into()))?;
        new.write_all(&text).and_then(|()| new.as_file().sync_all()).map_err(wrong)?;
        new.persist(&self.file).map_err(|error| wrong(error.error))?;
        Ok(())
    }
}

/// Reads a file that only its owner can write, and whose owner is root or the owner of its directory.
fn read_private(file: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_CLOEXEC);
    let open = options.open(file)?;
    let metadata = open.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let dir = file.parent().unwrap_or(Path::new("/"));
        let owner = fs::metadata(dir)?.uid();
        if metadata.mode() & 0o022 != 0 || (metadata.uid() != owner && metadata.uid() != 0) {
            return Err(io::Error::other("it is writable by other users"));
        }
    }
    let mut text = Vec::new();
    open.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn name_of(directory: &Path) -> Result<String, Problem> {
    directory.to_str().map(str::to_owned).ok_or_else(|| {
        let message = format!("the path `{}` is not valid UTF-8", directory.display());
        Problem::new("trust", message).hint("rename it, or pass `--trust full` to each run")
    })
}
