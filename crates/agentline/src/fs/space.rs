//! Keeps track of the space that is left in directories of limited size.

use std::{collections::HashMap, path::PathBuf, sync::Mutex};

/// The number of bytes that may be written to each directory before its size is measured again.
#[derive(Debug, Default)]
pub(crate) struct RemainingSpace {
    pub(crate) left: Mutex<HashMap<PathBuf, u64>>,
}
