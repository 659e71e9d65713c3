//! What a caller wants of the cache of outcomes, and what an outcome says of it.

use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// What a caller wants of the cache of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CacheWish {
    /// A run that was made before is told again; one that was not is kept.
    pub on: bool,
    /// Also runs whose outcome depends on what nobody can see beforehand: MCP servers, functions of the caller, the web.
    pub impure: bool,
    /// What is older is made again.
    pub max_age: Option<Duration>,
    /// The folder, instead of the one in our own cache folder.
    pub path: Option<PathBuf>,
    /// The folder holds no more than this, in megabytes.
    pub max_mb: Option<u64>,
}

impl CacheWish {
    /// Uses the cache.
    #[must_use]
    pub fn on() -> Self {
        Self { on: true, ..Self::default() }
    }

    /// Keeps impure runs too.
    #[must_use]
    pub fn impure(mut self) -> Self {
        self.impure = true;
        self
    }

    /// Makes again what is older than this.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Uses this folder.
    #[must_use]
    pub fn path(mut self, folder: impl Into<PathBuf>) -> Self {
        self.path = Some(folder.into());
        self
    }

    /// Lets the folder hold this many megabytes.
    #[must_use]
    pub fn max_mb(mut self, megabytes: u64) -> Self {
        self.max_mb = Some(megabytes);
        self
    }
}

/// What the cache had to do with an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CacheMark {
    /// The run was not made now: this is what it came to before. Text, files, tokens and cost are those of that time.
    pub hit: bool,
    /// Under which key; null where a run could have none.
    pub key: Option<String>,
    /// When the outcome was kept, in seconds since 1970; null where it is not.
    pub stored_at: Option<u64>,
    /// Why it was neither found nor kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CacheMark {
    /// This is what a run came to before.
    #[must_use]
    pub fn hit(key: impl Into<String>, stored_at: u64) -> Self {
        Self { hit: true, key: Some(key.into()), stored_at: Some(stored_at), reason: None }
    }

    /// The run was made, and is kept.
    #[must_use]
    pub fn kept(key: impl Into<String>, stored_at: u64) -> Self {
        Self { hit: false, key: Some(key.into()), stored_at: Some(stored_at), reason: None }
    }

    /// The run was made, and is not kept.
    #[must_use]
    pub fn not_kept(key: Option<String>, reason: impl Into<String>) -> Self {
        Self { hit: false, key, stored_at: None, reason: Some(reason.into()) }
    }
}
