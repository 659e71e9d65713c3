//! A file that differs between a copy of a workspace and the original, in a form that can be stored.

use crate::fs::path_bytes::path_from_bytes;
use crate::workspace::write_back::FileState;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// A file or directory that differs from the original, as it can be stored and restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum ChangeInCopy {
    /// The file or directory was removed.
    Missing {
        /// The path in the workspace.
        path: PathBuf,
    },
    /// A file with text.
    Text {
        /// The path in the workspace.
        path: PathBuf,
        /// The permission bits, where the system has them.
        mode: Option<u32>,
        /// The content.
        text: String,
    },
    /// A file with other content.
    Binary {
        /// The path in the workspace.
        path: PathBuf,
        /// The permission bits, where the system has them.
        mode: Option<u32>,
        /// The content in base64.
        base64: String,
    },
    /// A symbolic link.
    Link {
        /// The path in the workspace.
        path: PathBuf,
        /// The target.
        target: PathBuf,
    },
    /// A directory that is new or has other permissions.
    Directory {
        /// The path in the workspace.
        path: PathBuf,
        /// The permission bits, where the system has them.
        mode: Option<u32>,
    },
}

impl ChangeInCopy {
    pub(crate) fn new(path: &Path, state: FileState) -> Self {
        let path = path.to_owned();
        match state {
            FileState::Missing => Self::Missing { path },
            FileState::Link { target } => Self::Link { path, target: path_from_bytes(&target) },
            FileState::File { mode, content } => match String::from_utf8(content) {
                Ok(text) => Self::Text { path, mode, text },
                Err(error) => Self::Binary { path, mode, base64: BASE64_STANDARD.encode(error.into_bytes()) },
            },
        }
    }

    /// Returns the path in the workspace.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Missing { path }
            | Self::Link { path, .. }
            | Self::Text { path, .. }
            | Self::Binary { path, .. }
            | Self::Directory { path, .. } => path,
        }
    }

    /// Returns the state of the file.
    ///
    /// # Errors
    /// Fails if this is a directory, or if the stored content is damaged.
    pub(crate) fn state(&self) -> io::Result<FileState> {
        Ok(match self {
            Self::Missing { .. } => FileState::Missing,
            Self::Directory { .. } => return Err(io::ErrorKind::IsADirectory.into()),
            Self::Link { target, .. } => {
                FileState::Link { target: target.clone().into_os_string().into_encoded_bytes() }
            }
            Self::Text { mode, text, .. } => {
                FileState::File { mode: *mode, content: text.clone().into_bytes() }
            }
            Self::Binary { mode, base64, .. } => {
                let content = BASE64_STANDARD.decode(base64).map_err(io::Error::other)?;
                FileState::File { mode: *mode, content }
            }
        })
    }
}
