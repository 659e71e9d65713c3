//! Warnings for the caller.

use serde::{Deserialize, Serialize};

/// A warning with a stable code and a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// A stable code.
    pub code: String,
    /// The message.
    pub message: String,
}

impl Notice {
    /// Creates a warning.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
