//! Artifacts: pieces of files that jobs need or leave behind, named by a digest of their content.

mod directory;

use crate::QueueError;
pub use directory::DirectoryArtifacts;
use sha2::{Digest, Sha256};
use std::fmt::Debug;
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

/// Checks the size of an artifact that is to be stored.
pub(crate) fn check_size(content: &[u8]) -> Result<(), QueueError> {
    if content.len() <= MAX_ARTIFACT {
        return Ok(());
    }
    let (size, most) = (content.len() as u64, MAX_ARTIFACT as u64);
    Err(QueueError::TooLarge { what: "an artifact".into(), size, most })
}
