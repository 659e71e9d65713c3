//! Stores the outcomes of runs. An identical later run on the same files replays the stored events and restores the
//! changed files without starting an agent.
//!
//! | file | what it does |
//! |---|---|
//! | `key.rs` | computes what a run depends on, and whether it can be cached |
//! | `keeper.rs` | records a run and stores it |
//! | `entry.rs` | encodes and decodes the stored form of a run |
//! | `store.rs` | manages the directory: shared between processes, bounded in size |
//! | `restore.rs` | writes the files of a stored run |
//! | `place.rs` | locates agentline's cache directory |

mod entry;
mod keeper;
mod key;
mod place;
mod restore;
mod store;

pub(crate) use keeper::Keeper;
pub use place::cache_dir;
pub use store::CacheStats;

use crate::{
    agentline::{Agentline, Inner},
    finds::Finds,
    options::RunOptions,
    run::Run,
    snapshot::{again::Snapshots, prints::Remembered},
};
use agentline_core::{CacheMark, CacheWish, Event, Notice, Record, RunRequest};
use entry::Entry;
use key::Question;
use std::{
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use store::{Room, Store};

/// A cache directory.
///
/// ```no_run
/// use agentline::{Agentline, CacheWish, cache::Cache};
/// let cache = Cache::of(&Agentline::from_env()?, &CacheWish::on());
/// println!("{} outcomes in {}", cache.stats().entries, cache.folder().display());
/// cache.clear()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    store: Store,
}

impl Cache {
    /// Returns the cache that runs with this setting use.
    #[must_use]
    pub fn of(agentline: &Agentline, wish: &CacheWish) -> Self {
        Self { store: store(agentline.inner(), wish) }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.store.folder()
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

fn store(inner: &Inner, wish: &CacheWish) -> Store {
    let folder = wish
        .path
        .as_ref()
        .map_or_else(|| inner.here.cache.join("outcomes"), |path| inner.here.cwd.join(path));
    Store::new(folder, wish.max_mb)
}

/// What a process caches between runs: detections, file digests, free space and snapshots.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    finds: Finds,
    files: Remembered,
    room: Room,
    pub(crate) snapshots: Snapshots,
}

/// The result of a cache lookup.
pub(crate) enum Looked {
    /// The stored run.
    Hit(Box<Run>),
    /// The run is not stored yet. The recorder stores it when it has finished.
    Miss(Keeper),
    /// The request is invalid or could not be checked in time. Starting the run reports the reason.
    Unclear,
}

/// Looks up a run in the cache.
pub(crate) async fn look(agentline: &Agentline, request: RunRequest, options: &RunOptions) -> Looked {
    let options = options.clone();
    let began_at = milliseconds();
    let held = agentline.clone();
    let time = crate::ready::preparation_time(&request);
    let look = move |inner: &Inner| look_now(&held, inner, request, &options, began_at);
    // On a timeout, the run starts normally and its outcome reports the problem.
    agentline.blocking_within(time, look).await.unwrap_or(Looked::Unclear)
}

fn look_now(
    agentline: &Agentline,
    inner: &Inner,
    request: RunRequest,
    options: &RunOptions,
    began_at: u64,
) -> Looked {
    let wish = request.cache.clone();
    let store = store(inner, &wish);
    let mut notices = Vec::new();
    let question = match key::question(inner, request, options) {
        key::Answer::Key(question) => Ok(*question),
        key::Answer::Unclear => return Looked::Unclear,
        key::Answer::Not { reason, warn } => {
            notices
                .extend(warn.then(|| Notice::new("not_cached", format!("the run is not cached: {reason}"))));
            Err(reason)
        }
    };
    if let Ok(question) = &question
        && let Some(entry) = store.get(&question.key)
        && wish.max_age.is_none_or(|age| seconds().saturating_sub(entry.meta.stored_at) <= age.as_secs())
    {
        match told(inner, question, &entry) {
            Ok(Some(run)) => return Looked::Hit(Box::new(run)),
            Ok(None) => store.remove(&question.key),
            Err(why) => notices.push(Notice::new(
                "not_cached",
                format!("the files of a run that is known could not be written, so it is made again: {why}"),
            )),
        }
    }
    Looked::Miss(Keeper::new(agentline.clone(), store, question, wish.impure, notices, began_at))
}

/// Replays the run of an entry; `None` if the entry cannot be parsed.
fn told(inner: &Inner, question: &Question, entry: &Entry) -> io::Result<Option<Run>> {
    let mut records: Vec<Record> = Vec::new();
    for line in entry.events().lines() {
        let Some(record) = Record::from_line(line) else { return Ok(None) };
        records.push(record);
    }
    let Some(Record { event: Event::Outcome { mut outcome }, .. }) = records.pop() else { return Ok(None) };
    if !entry.meta.files.is_empty() && !question.is_temporary {
        restore::restore(inner, question, entry)?;
    }
    for record in &mut records {
        if let Event::Started(started) = &mut record.event {
            started.run_id.clone_from(&question.who.run_id);
            started.name.clone_from(&question.who.name);
        }
    }
    outcome.run_id.clone_from(&question.who.run_id);
    outcome.name.clone_from(&question.who.name);
    outcome.cache = Some(CacheMark::hit(&question.key, entry.meta.stored_at));
    let run = Run::told_again(records, outcome, question.launched.clone(), entry.meta.began_at_ms);
    Ok(Some(run.veiled(question.veil.clone())))
}

fn seconds() -> u64 {
    milliseconds() / 1000
}

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
