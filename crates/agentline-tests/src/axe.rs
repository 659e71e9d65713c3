//! npm `axe-core`, which checks the accessibility of a page.

use crate::npm::Package;
use std::fs;

const AXE: Package = Package::new("axe", "axe-core", "4.14.0");

/// Returns the script that defines `axe` in a page.
///
/// # Errors
/// Fails if the package cannot be installed.
pub fn axe_core() -> Result<String, String> {
    let path = AXE.modules()?.join("axe-core/axe.min.js");
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}
