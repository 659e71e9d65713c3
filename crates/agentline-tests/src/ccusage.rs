//! The npm tool `ccusage`, which counts the usage of agents, at one version.

use crate::npm::Package;
use std::path::PathBuf;

/// The version of its platform packages.
const CCUSAGE: Package = Package { id: "ccusage", name: "ccusage", version: "20.0.24", extras: &[] };

/// Returns its program, and installs it if necessary.
///
/// # Errors
/// Returns the reason if it cannot be installed.
pub fn ccusage_program() -> Result<PathBuf, String> {
    Ok(CCUSAGE.modules()?.join(".bin").join("ccusage"))
}
