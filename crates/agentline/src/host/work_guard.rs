//! Work during which a daemon does not exit.

/// Counts a unit of work of a daemon while it exists.
pub(super) type WorkGuard = Box<dyn Send + Sync>;
