//! The npm tool `ccusage`, which counts what agents used, at one version.

use crate::npm::Package;
use std::path::PathBuf;

/// The version that its packages for the systems are published at.
const CCUSAGE: Package = Package { id: "ccusage", name: "ccusage", version: "20.0.24", beside: &[] };

/// Its program, installed if it was not there.
///
/// # Errors
/// It cannot be installed, with the reason.
pub fn ccusage_program() -> Result<PathBuf, String> {
    Ok(CCUSAGE.modules()?.join(".bin").join("ccusage"))
}
