//! Stores the outcomes of runs. An identical later run on the same files replays the stored events and restores the
//! changed files without starting an agent.
//!
//! | file | what it does |
//! |---|---|
//! | `key.rs` | computes what a run depends on, and whether it can be cached |
//! | `recorder.rs` | records a run and stores it |
//! | `entry.rs` | encodes and decodes the stored form of a run |
//! | `store.rs` | manages the directory: shared between processes, bounded in size |
//! | `restore.rs` | writes the files of a stored run |

mod entry;
mod key;
mod recorder;
mod restore;
mod store;

pub use crate::fs::user_dirs::cache_dir;
pub(crate) use recorder::Recorder;
pub use store::CacheStats;

use crate::{
    agentline::{Agentline, Inner},
    run::{Run, resolved::ResolvedStart},
};
use agentline_core::{CachePolicy, CacheStatus, Event, Notice, Record};
use entry::CacheEntry;
use key::CacheKey;
use std::{
    borrow::Cow,
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use store::CacheStore;

/// A cache directory.
///
/// ```no_run
/// use agentline::{Agentline, cache::Cache, request::CachePolicy};
/// let cache = Cache::of(&Agentline::from_env()?, &CachePolicy::on());
/// println!("{} outcomes in {}", cache.stats().entries, cache.folder().display());
/// cache.clear()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    store: CacheStore,
}

impl Cache {
    /// Returns the cache that runs with this setting use.
    #[must_use]
    pub fn of(agentline: &Agentline, policy: &CachePolicy) -> Self {
        Self { store: store(agentline.inner(), policy) }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.store.dir()
    }

    /// Returns the number and size of the entries. Blocks.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.store.stats()
    }

    /// Removes all entries and returns what was removed. Blocks.
    ///
    /// # Errors
    /// Fails if an entry cannot be removed.
    pub fn clear(&self) -> io::Result<CacheStats> {
        self.store.clear()
    }
}

fn store(inner: &Inner, policy: &CachePolicy) -> CacheStore {
    let folder = policy
        .path
        .as_ref()
        .map_or_else(|| inner.host_env.cache.join("outcomes"), |path| inner.host_env.cwd.join(path));
    CacheStore::new(folder, policy.max_mb)
}

/// The result of a cache lookup.
pub(crate) enum Lookup {
    /// The stored run.
    Hit(Box<Run>),
    /// The run is not stored yet. The recorder stores it when it has finished.
    Miss(Recorder),
}

/// Looks up a resolved run in the cache of its request. Blocks.
pub(crate) fn look_up(agentline: &Agentline, resolved: &ResolvedStart) -> Lookup {
    let inner = agentline.inner();
    let began_at = milliseconds();
    let policy = resolved.run.plan.request.cache.clone();
    let store = store(inner, &policy);
    let mut notices = Vec::new();
    let cache_key = match key::cache_key(inner, resolved) {
        key::KeyResult::Key(cache_key) => Ok(*cache_key),
        key::KeyResult::Not { reason, warn } => {
            notices
                .extend(warn.then(|| Notice::new("not_cached", format!("the run is not cached: {reason}"))));
            Err(reason)
        }
    };
    if let Ok(cache_key) = &cache_key
        && let Some(entry) = store.get(&cache_key.key)
        && policy.max_age.is_none_or(|age| seconds().saturating_sub(entry.meta.stored_at) <= age.as_secs())
    {
        match replay(inner, cache_key, &entry) {
            Ok(Some(run)) => return Lookup::Hit(Box::new(run)),
            Ok(None) => store.remove(&cache_key.key),
            Err(error) => notices.push(Notice::new(
                "not_cached",
                format!("cannot restore the files of the cached run, so the run is repeated: {error}"),
            )),
        }
    }
    Lookup::Miss(Recorder::new(agentline.clone(), store, cache_key, policy.impure, notices, began_at))
}

/// Replays the run of an entry; `None` if the entry cannot be parsed.
fn replay(inner: &Inner, cache_key: &CacheKey, entry: &CacheEntry) -> io::Result<Option<Run>> {
    let mut records: Vec<Record> = Vec::new();
    for line in entry.events().lines() {
        let line = at_new_path(line, entry.meta.workspace.as_deref(), &cache_key.cwd);
        let Some(record) = Record::from_line(&line) else { return Ok(None) };
        records.push(record);
    }
    let Some(Record { event: Event::Outcome { mut outcome }, .. }) = records.pop() else { return Ok(None) };
    if !entry.meta.files.is_empty() && !cache_key.is_temporary {
        restore::restore(inner, cache_key, entry)?;
    }
    for record in &mut records {
        if let Event::Started(started) = &mut record.event {
            started.run_id.clone_from(&cache_key.info.run_id);
            started.name.clone_from(&cache_key.info.name);
        }
    }
    outcome.run_id.clone_from(&cache_key.info.run_id);
    outcome.name.clone_from(&cache_key.info.name);
    outcome.cache = Some(CacheStatus::hit(&cache_key.key, entry.meta.stored_at));
    let run = Run::replayed(records, *outcome, cache_key.launched.clone(), entry.meta.began_at_ms);
    Ok(Some(run.redacted(cache_key.redactor.clone())))
}

/// Replaces the path of the workspace in which a run was stored by that of the workspace in which it is replayed.
fn at_new_path<'a>(line: &'a str, stored: Option<&str>, cwd: &Path) -> Cow<'a, str> {
    let cwd = cwd.to_string_lossy();
    match stored {
        Some(stored) if stored != cwd && !stored.is_empty() => {
            let [stored, cwd] = [stored, &*cwd].map(json_text);
            Cow::Owned(line.replace(&stored, &cwd))
        }
        _ => Cow::Borrowed(line),
    }
}

/// Returns a text as it is inside a JSON string.
fn json_text(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

fn seconds() -> u64 {
    milliseconds() / 1000
}

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
