//! Artifacts: pieces of files that jobs need or leave behind, named by a digest of their content.

use crate::QueueError;
use sha2::{Digest, Sha256};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

/// The size of the largest artifact in bytes. Larger files are stored in pieces.
pub const MAX_ARTIFACT: usize = 8 << 20;

/// The future of a request for an artifact.
pub type ArtifactFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, QueueError>> + Send + 'a>>;

/// A function that is called with the name of each artifact.
pub type ArtifactVisitor<'a> = &'a mut (dyn FnMut(&str) + Send);

/// A store of artifacts. Each belongs to an experiment, and has the name that [`artifact_name`] returns.
pub trait Artifacts: Debug + Send + Sync {
    /// Stores an artifact of an experiment. Storing it again has no effect.
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String>;

    /// Returns the content of an artifact, which has been compared with its name; `None` if it is not there.
    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>>;

    /// Returns whether an artifact is there.
    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool>;

    /// Calls a function with the name of each artifact of an experiment. Not all names are in memory at the same time.
    fn for_each_name<'a>(&'a self, experiment: &'a str, visit: ArtifactVisitor<'a>)
    -> ArtifactFuture<'a, ()>;

    /// Returns the names of all artifacts of an experiment.
    fn names<'a>(&'a self, experiment: &'a str) -> ArtifactFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut names = Vec::new();
            self.for_each_name(experiment, &mut |name| names.push(name.to_owned())).await?;
            Ok(names)
        })
    }

    /// Removes an artifact, if it is there.
    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()>;
}

/// Returns the name of an artifact: the SHA-256 digest of its content.
#[must_use]
pub fn artifact_name(content: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(content).iter().fold(String::with_capacity(64), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Checks the content of an artifact that was read.
pub(crate) fn checked(name: &str, content: Vec<u8>) -> Result<Vec<u8>, QueueError> {
    if artifact_name(&content) == name { Ok(content) } else { Err(QueueError::Damaged(name.to_owned())) }
}

/// Checks the content of an artifact that was read; `None` if it was too large to be read.
pub(crate) fn checked_if_small(name: &str, content: Option<Vec<u8>>) -> Result<Vec<u8>, QueueError> {
    checked(name, content.ok_or_else(|| QueueError::Damaged(name.to_owned()))?)
}

/// Reads the file of an artifact, and no more than the largest artifact has.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = std::fs::File::open(path)?;
    // What is cut off is detected by the digest.
    io::Read::read_to_end(&mut io::Read::take(file, MAX_ARTIFACT as u64 + 1), &mut content)?;
    Ok(content)
}

/// Checks the size of an artifact that is to be stored.
pub(crate) fn check_size(content: &[u8]) -> Result<(), QueueError> {
    if content.len() <= MAX_ARTIFACT {
        return Ok(());
    }
    let (size, most) = (content.len() as u64, MAX_ARTIFACT as u64);
    Err(QueueError::TooLarge { what: "an artifact".into(), size, most })
}

/// Artifacts in a directory that all machines share.
#[derive(Clone, Debug)]
pub struct DirectoryArtifacts {
    root: PathBuf,
}

impl DirectoryArtifacts {
    /// Uses a directory, and creates it if necessary.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn new(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        Ok(Self { root: root.to_owned() })
    }

    fn path(&self, experiment: &str, name: &str) -> Result<PathBuf, QueueError> {
        crate::check_part(experiment)?;
        crate::check_name(name)?;
        Ok(self.root.join(experiment).join(name.get(..2).unwrap_or("00")).join(name))
    }
}

fn unavailable(path: &Path, error: &io::Error) -> QueueError {
    QueueError::Unavailable(format!("`{}`: {error}", path.display()))
}

impl Artifacts for DirectoryArtifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        Box::pin(async move {
            check_size(content)?;
            let name = artifact_name(content);
            let path = self.path(experiment, &name)?;
            if path.is_file() {
                return Ok(name);
            }
            let write = || {
                let dir = path.parent().unwrap_or(&self.root);
                std::fs::create_dir_all(dir)?;
                let mut file = tempfile::NamedTempFile::new_in(dir)?;
                io::Write::write_all(&mut file, content)?;
                file.persist(&path).map_err(|error| error.error)?;
                Ok(())
            };
            write().map_err(|error| unavailable(&path, &error))?;
            Ok(name)
        })
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let path = self.path(experiment, name)?;
            match read(&path) {
                Ok(content) => checked(name, content).map(Some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(unavailable(&path, &error)),
            }
        })
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        Box::pin(async move { Ok(self.path(experiment, name)?.is_file()) })
    }

    fn for_each_name<'a>(
        &'a self,
        experiment: &'a str,
        visit: ArtifactVisitor<'a>,
    ) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            crate::check_part(experiment)?;
            let Ok(groups) = std::fs::read_dir(self.root.join(experiment)) else { return Ok(()) };
            let files = groups.flatten().filter_map(|group| std::fs::read_dir(group.path()).ok());
            let names = files.flatten().flatten().filter_map(|file| file.file_name().into_string().ok());
            // A file that is being written has another name.
            names.filter(|name| name.len() == 64).for_each(|name| visit(&name));
            Ok(())
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            let path = self.path(experiment, name)?;
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unavailable(&path, &error)),
                _ => Ok(()),
            }
        })
    }
}
