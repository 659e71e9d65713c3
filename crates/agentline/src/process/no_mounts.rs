//! Replacements for mounts of workspaces on systems without them.

use std::io;
use std::path::Path;

use super::{Enclosure, OverlayLayers};

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "overlays need Linux"))
}

/// Returns `false`.
pub(crate) fn is_entered() -> bool {
    false
}

/// Always fails.
pub(crate) fn enter(_storage: &Path) -> io::Result<()> {
    unsupported()
}

/// Always fails.
pub(crate) fn overlay(_lower: &[&Path], _upper: &Path, _work: &Path, _at: &Path) -> io::Result<()> {
    unsupported()
}

/// Always fails.
pub(crate) fn bind(_from: &Path, _at: &Path, _is_read_only: bool) -> io::Result<()> {
    unsupported()
}

/// Always fails.
pub(crate) fn share(_at: &Path) -> io::Result<()> {
    unsupported()
}

/// Always fails.
pub(crate) fn unmount(_at: &Path) -> io::Result<bool> {
    unsupported()
}

/// Does nothing.
pub(crate) fn detach(_at: &Path) {}

/// Returns `false`.
pub(crate) fn owns(_metadata: &std::fs::Metadata) -> bool {
    false
}

/// Always fails.
pub(crate) fn register(_workspace: &Path, _enclosure: Enclosure) -> io::Result<()> {
    unsupported()
}

/// Does nothing.
pub(crate) fn forget(_workspace: &Path) {}

/// Returns `None`.
pub(crate) fn enclosure(_workspace: &Path) -> Option<Enclosure> {
    None
}

/// Does nothing.
pub(crate) fn set_layers(_workspace: &Path, _layers: Option<OverlayLayers>) {}

/// Returns `None`.
pub(crate) fn layers(_workspace: &Path) -> Option<OverlayLayers> {
    None
}

/// Returns `false`.
pub(crate) fn is_opaque(_dir: &Path) -> bool {
    false
}

/// Returns `None`.
pub(crate) fn are_covered(_workspace: &Path, _template: &Path) -> Option<bool> {
    None
}

/// Does nothing.
#[cfg(unix)]
pub(super) fn note_init(_workspace: &Path, _init: u32) {}

/// Always fails.
#[cfg(unix)]
pub(super) fn start_below(_command: &mut std::process::Command, _workspace: &Path) -> io::Result<()> {
    unsupported()
}

/// Always fails.
#[cfg(unix)]
pub(super) fn enclose(
    _enclosure: &Enclosure,
    _env: &std::collections::BTreeMap<std::ffi::OsString, std::ffi::OsString>,
) -> io::Result<()> {
    unsupported()
}

/// Does nothing.
#[cfg(unix)]
pub(super) fn drop_capabilities(_command: &mut std::process::Command) {}
