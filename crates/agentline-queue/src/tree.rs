//! Sends directories and files as artifacts, named by their content.
//!
//! A tree is packed into a stream (see `tree/format.rs`), which is cut into pieces. Each piece is compressed and stored as
//! an artifact, unless the experiment already has it. The reader compares every piece and the whole with their names and
//! unpacks into a new directory, which gets its final name only when it is complete.

mod error;
mod format;
mod pack;
mod pieces;
#[cfg(test)]
mod tests;
mod unpack;

use crate::{Artifacts, QueueError, artifact_name};
pub use error::TreeError;
use pieces::{PieceReader, PieceWriter};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tokio::sync::mpsc;

/// Pieces that may wait between the thread that reads or writes files and the store.
const WAITING_PIECES: usize = 1;

/// A stored tree: what a reader needs in order to download it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TreeRef {
    /// The SHA-256 digest of the packed tree. Trees with the same names, kinds, modes and contents have the same name.
    pub name: String,
    /// The size of the packed tree in bytes, before compression.
    pub size: u64,
    /// The names of the artifacts that contain it, in their order.
    pub pieces: Vec<String>,
}

/// How large a tree may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeLimits {
    /// The largest size of a tree in bytes: the contents of its files, and their names.
    pub size: u64,
    /// The largest number of files, directories and links.
    pub files: usize,
    /// The largest size of one file in bytes.
    pub file_size: u64,
    /// Whether links may lead out of the tree.
    pub outer_links: bool,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self { size: 1 << 30, files: 200_000, file_size: 1 << 30, outer_links: true }
    }
}

/// Stores a directory or a file as artifacts of an experiment, and returns its reference. Pieces that the experiment has
/// are not stored again.
///
/// Links in the tree are stored as links. `root` itself may be a link to a directory or a file.
///
/// # Errors
/// Fails if a limit is exceeded, if the tree contains a pipe, a socket or a device, if a file cannot be read or changes
/// while it is read, or if the store fails.
pub async fn upload_tree(
    artifacts: &dyn Artifacts,
    experiment: &str,
    root: &Path,
    limits: TreeLimits,
) -> Result<TreeRef, TreeError> {
    let (send, mut receive) = mpsc::channel(WAITING_PIECES);
    let root = root.to_owned();
    let packing = tokio::task::spawn_blocking(move || {
        let mut writer = PieceWriter::new(send);
        pack::pack(&root, limits, &mut writer)?;
        writer.finish()
    });
    let mut pieces = Vec::new();
    // If storing fails, the channel closes, and the thread stops.
    while let Some(piece) = receive.recv().await {
        let name = artifact_name(&piece);
        if !artifacts.has(experiment, &name).await? {
            artifacts.put(experiment, &piece).await?;
        }
        pieces.push(name);
    }
    let (name, size) = packing.await.map_err(interrupted)??;
    Ok(TreeRef { name, size, pieces })
}

/// Downloads a tree, verifies it and unpacks it at `target`.
///
/// The tree appears at `target` complete or not at all. If there is a file or a directory that is not empty, it is taken
/// for the same tree and left as it is; so several processes may download a tree to the same path at the same time. A
/// process that is killed leaves a directory whose name begins with `.tree-` beside the target.
///
/// # Errors
/// Fails if a limit is exceeded, if a piece is missing, if the content is not that of the reference or not a valid tree, or
/// if it cannot be written.
pub async fn download_tree(
    artifacts: &dyn Artifacts,
    experiment: &str,
    tree: &TreeRef,
    target: &Path,
    limits: TreeLimits,
) -> Result<(), TreeError> {
    if unpack::is_occupied(target) {
        return Ok(());
    }
    if tree.size > limits.size {
        return Err(TreeError::TooLarge { path: target.to_owned(), size: tree.size, limit: limits.size });
    }
    let (send, receive) = mpsc::channel(WAITING_PIECES);
    let reader = PieceReader::new(receive, tree);
    let path = target.to_owned();
    let unpacking = tokio::task::spawn_blocking(move || unpack::unpack(reader, &path, limits));
    let fetched = fetch(artifacts, experiment, tree, send).await;
    let unpacked = unpacking.await.map_err(interrupted)?;
    // Without all pieces the thread fails too, for the lack of them.
    fetched.and(unpacked)
}

/// Sends the pieces of a tree to the thread that unpacks them, until it has failed.
async fn fetch(
    artifacts: &dyn Artifacts,
    experiment: &str,
    tree: &TreeRef,
    send: mpsc::Sender<Vec<u8>>,
) -> Result<(), TreeError> {
    for name in &tree.pieces {
        let piece = artifacts.get(experiment, name).await?;
        let piece = piece.ok_or_else(|| TreeError::Missing(name.clone()))?;
        if send.send(piece).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn interrupted(error: tokio::task::JoinError) -> TreeError {
    TreeError::Queue(QueueError::Unavailable(error.to_string()))
}
