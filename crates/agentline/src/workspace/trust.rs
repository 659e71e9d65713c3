//! Records which directories the user fully trusts, and detects changes since.
//!
//! Trust applies to exactly one directory and to its content when it was trusted: `agentline.toml` and the files with
//! which a project can configure the agents. The record is kept outside the directory.

mod manifest;
mod store;
#[cfg(test)]
mod tests;

pub use crate::workspace::trust::manifest::{FileChange, Manifest, TrustChange};
pub use crate::workspace::trust::store::{TrustState, TrustStore, TrustedDirectory};

use agentline_core::Problem;
use std::{io, path::Path};

/// The code of the warning that a trusted directory has changed.
pub const TRUST_CHANGED: &str = "trust_changed";

/// Returns a problem for a failed action on a file or directory.
fn failed(action: &str, path: &Path, error: &io::Error) -> Problem {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "pass a directory that exists",
        io::ErrorKind::StorageFull => "free space on the disk",
        _ => "check the permissions of the path",
    };
    Problem::new("trust", format!("cannot {action} `{}`: {error}", path.display())).hint(hint)
}
