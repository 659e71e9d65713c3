//! Remembers which directories the user trusts in full, and notices when what was trusted has changed.
//!
//! Trust belongs to one directory, exactly, and to what it held when it was given: `agentline.toml` and the files with
//! which the agents can be configured by a project. The record is kept outside the directory.

mod manifest;
mod store;
#[cfg(test)]
mod tests;

pub use manifest::{Change, FileChange, Manifest};
pub use store::{TrustState, TrustStore, TrustedDirectory};

use agentline_core::Problem;
use std::{io, path::Path};

/// The code of the warning that a directory is no longer what the user trusted.
pub const TRUST_CHANGED: &str = "trust_changed";

/// Names the file or directory that something failed with.
fn failed(action: &str, path: &Path, error: &io::Error) -> Problem {
    Problem::new("trust", format!("cannot {action} `{}`: {error}", path.display()))
}
