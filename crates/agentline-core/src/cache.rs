//! The cache options of a run, and the cache status of an outcome.

use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// Options for the cache of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CachePolicy {
    /// Whether a run reuses a cached outcome, and stores its own if there is none.
    pub on: bool,
    /// Whether to cache runs that depend on state outside the cache key: MCP servers, functions of the caller, the web.
    pub impure: bool,
    /// The maximum age of an entry. Runs with an older entry are executed again.
    pub max_age: Option<Duration>,
    /// The directory of the cache, instead of the one in agentline's cache directory.
    pub path: Option<PathBuf>,
    /// The maximum size of the directory, in megabytes.
    pub max_mb: Option<u64>,
    /// The number of a repetition, from 0. Identical runs with different numbers do not share a result.
    #[serde(skip)]
    pub attempt: u32,
    /// Whether runs in workspaces with the same content share a result, wherever these workspaces are. Set it if the
    /// workspace is a copy on a path that has no meaning.
    #[serde(skip)]
    pub any_path: bool,
}

impl CachePolicy {
    /// Enables the cache.
    #[must_use]
    pub fn on() -> Self {
        Self { on: true, ..Self::default() }
    }

    /// Also caches impure runs.
    #[must_use]
    pub fn impure(mut self) -> Self {
        self.impure = true;
        self
    }

    /// Ignores entries older than `age`.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Sets the directory of the cache.
    #[must_use]
    pub fn path(mut self, dir: impl Into<PathBuf>) -> Self {
        self.path = Some(dir.into());
        self
    }

    /// Sets the maximum size of the directory, in megabytes.
    #[must_use]
    pub fn max_mb(mut self, megabytes: u64) -> Self {
        self.max_mb = Some(megabytes);
        self
    }
}

/// The cache status of an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CacheStatus {
    /// Whether the outcome comes from the cache. Its text, files, tokens and cost are those of the stored run.
    pub hit: bool,
    /// The cache key; null if the run has none.
    pub key: Option<String>,
    /// When the outcome was stored, in seconds since 1970; null if it is not stored.
    pub stored_at: Option<u64>,
    /// Why the outcome was neither found nor stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CacheStatus {
    /// Creates the status of an outcome that comes from the cache.
    #[must_use]
    pub fn hit(key: impl Into<String>, stored_at: u64) -> Self {
        Self { hit: true, key: Some(key.into()), stored_at: Some(stored_at), reason: None }
    }

    /// Creates the status of a new outcome that is stored.
    #[must_use]
    pub fn stored(key: impl Into<String>, stored_at: u64) -> Self {
        Self { hit: false, key: Some(key.into()), stored_at: Some(stored_at), reason: None }
    }

    /// Creates the status of a new outcome that is not stored.
    #[must_use]
    pub fn not_stored(key: Option<String>, reason: impl Into<String>) -> Self {
        Self { hit: false, key, stored_at: None, reason: Some(reason.into()) }
    }
}
