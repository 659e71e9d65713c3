//! Stores runs and their events, and hands committed events to clients.
//!
//! One thread writes. It commits all events that are waiting in one transaction, and only then are they added to the log
//! of their run, from which every client reads by position. A client that is too slow for the log reads from the database.

mod database;
mod frame;
mod log;
mod prune;
mod publish;
mod readers;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use frame::frame;
pub(crate) use log::{Head, Position, RunLog};
pub(crate) use writer::{RunEnd, StoredEvent};

use crate::{
    messages::{NumberedEvent, RunQuery, ServedRun, ServedRunState},
    options::{ServeError, ServeLimits},
};
use database::EventDatabase;
use prune::Pruner;
use readers::ReaderPool;
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot, watch};
use writer::{Command, EventWriter, WriteFailure};

/// How many clients read from the database at the same time.
const READERS: usize = 4;
/// How many changes may wait for the writer.
const QUEUE: usize = 4_096;

/// The store of runs and their events.
#[derive(Debug)]
pub(crate) struct Store {
    commands: mpsc::Sender<Command>,
    readers: Arc<ReaderPool>,
    /// The logs in use: those of runs in progress and those that a client reads.
    logs: Mutex<HashMap<String, Weak<RunLog>>>,
    /// The version of the list of runs.
    version: Arc<watch::Sender<u64>>,
    failure: WriteFailure,
    ring_bytes: usize,
}

impl Store {
    /// Opens the store in a directory and starts its writer and a task that publishes. Returns the runs that have no outcome, too.
    pub(crate) fn open(dir: &Path, limits: &ServeLimits) -> Result<(Self, Vec<ServedRun>), ServeError> {
        let path = dir.join("serve.sqlite");
        let database = EventDatabase::create(&path)?;
        let unfinished = database.unfinished()?;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(EventDatabase::open(&path)?);
        }
        let (commands, incoming) = mpsc::channel(QUEUE);
        tokio::spawn(prune_regularly(commands.downgrade(), Pruner::interval(limits)));
        let version = Arc::new(watch::Sender::new(1));
        let (committed, publications) = mpsc::unbounded_channel();
        tokio::spawn(publish::publish(publications, Arc::clone(&version)));
        let failure = WriteFailure::default();
        let writer = EventWriter::new(database, *limits, committed, Arc::clone(&failure));
        let named = std::thread::Builder::new().name("agentline-serve-store".into());
        named.spawn(move || writer.run(incoming)).map_err(ServeError::io("a thread for the store"))?;
        let store = Self {
            commands,
            readers: ReaderPool::new(readers),
            logs: Mutex::default(),
            version,
            failure,
            ring_bytes: limits.ring_bytes,
        };
        Ok((store, unfinished))
    }

    /// Stores a new run and returns its log.
    pub(crate) async fn create(&self, run: ServedRun) -> Arc<RunLog> {
        let log = Arc::new(RunLog::new(0, 0, run.state == ServedRunState::Ended, self.ring_bytes));
        self.add_log(&run.run, &log);
        self.send(Command::Create(Box::new(run))).await;
        log
    }

    /// Appends an event to a run. Clients receive it when it is committed.
    pub(crate) async fn append(&self, log: &Arc<RunLog>, run: &str, event: StoredEvent) {
        self.send(Command::Append { log: Arc::clone(log), run: run.to_owned(), event }).await;
    }

    /// Stores what is known about a run.
    pub(crate) async fn update(&self, run: ServedRun) {
        self.send(Command::Update(Box::new(run))).await;
    }

    /// Waits until everything before this call is committed.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Flush(done)).await;
        // The writer is gone only if it panicked.
        let _ = is_done.await;
    }

    /// Returns why the last attempt to write failed, if it has not succeeded since.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(&self, command: Command) {
        // The writer is gone only if it panicked; requests then fail on reading.
        let _ = self.commands.send(command).await;
    }

    /// Returns the log of a run, also of one that ended before this process started.
    pub(crate) async fn log(self: &Arc<Self>, run: &str) -> Result<Option<Arc<RunLog>>, rusqlite::Error> {
        if let Some(log) = self.logs().get(run).and_then(Weak::upgrade) {
            return Ok(Some(log));
        }
        let name = run.to_owned();
        let Some(stored) = self.read(move |database| database.run(&name)).await? else { return Ok(None) };
        let log = Arc::new(RunLog::new(stored.first_event, stored.last_event, true, self.ring_bytes));
        // Another client may have been faster.
        let known = self.logs().get(run).and_then(Weak::upgrade);
        if known.is_none() {
            self.add_log(run, &log);
        }
        Ok(Some(known.unwrap_or(log)))
    }

    /// Adds a log for as long as something uses it.
    fn add_log(&self, run: &str, log: &Arc<RunLog>) {
        let mut logs = self.logs();
        logs.retain(|_, log| log.strong_count() > 0);
        logs.insert(run.to_owned(), Arc::downgrade(log));
    }

    /// Returns stored events of a run after a position, up to a size, but at least one if there is one.
    pub(crate) async fn events(
        self: &Arc<Self>,
        run: &str,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<(u64, String, String)>, rusqlite::Error> {
        let run = run.to_owned();
        self.read(move |database| database.events(&run, after, limit, bytes)).await
    }

    /// Returns stored events with their data as JSON.
    pub(crate) async fn numbered(
        self: &Arc<Self>,
        run: &str,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<NumberedEvent>, rusqlite::Error> {
        let rows = self.events(run, after, limit, bytes).await?;
        let numbered = |(id, event, data): (u64, String, String)| {
            let data = serde_json::from_str(&data).unwrap_or_default();
            NumberedEvent { id, event, data }
        };
        Ok(rows.into_iter().map(numbered).collect())
    }

    /// Returns a stored run.
    pub(crate) async fn run(self: &Arc<Self>, run: &str) -> Result<Option<ServedRun>, rusqlite::Error> {
        let run = run.to_owned();
        self.read(move |database| database.run(&run)).await
    }

    /// Returns stored runs, newest first. With an owner, only those that this token started.
    pub(crate) async fn runs(
        self: &Arc<Self>,
        query: RunQuery,
        owner: Option<String>,
    ) -> Result<Vec<ServedRun>, rusqlite::Error> {
        self.read(move |database| database.runs(&query, owner.as_deref())).await
    }

    /// Returns the outcome of a run as JSON text; `None` while it is in progress.
    pub(crate) async fn outcome(self: &Arc<Self>, run: &str) -> Result<Option<String>, rusqlite::Error> {
        let run = run.to_owned();
        self.read(move |database| database.outcome(&run)).await
    }

    /// Returns the reports on changed files of a run as JSON texts, oldest first.
    pub(crate) async fn file_changes(self: &Arc<Self>, run: &str) -> Result<Vec<String>, rusqlite::Error> {
        let run = run.to_owned();
        self.read(move |database| database.data_of(&run, "file_change")).await
    }

    /// Returns the last report on the usage of a run as JSON text.
    pub(crate) async fn last_usage(self: &Arc<Self>, run: &str) -> Result<Option<String>, rusqlite::Error> {
        let run = run.to_owned();
        self.read(move |database| database.last_data_of(&run, "usage")).await
    }

    /// Returns what the ended runs of a token that started since a time have cost.
    pub(crate) async fn spent(self: &Arc<Self>, owner: &str, since_ms: u64) -> Result<f64, rusqlite::Error> {
        let owner = owner.to_owned();
        self.read(move |database| database.spent(&owner, since_ms)).await
    }

    /// Returns the version of the list of runs, which changes with each run.
    pub(crate) fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Increases the version of the list of runs.
    pub(crate) fn touch(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Reads from the database on a thread that may block.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&EventDatabase) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, rusqlite::Error> {
        let failed = || rusqlite::Error::InvalidQuery;
        let reader = self.readers.lend().await.ok_or_else(failed)?;
        // The reader belongs to the thread: a caller that stops waiting does not make it free.
        let reading = tokio::task::spawn_blocking(move || work(reader.database().ok_or_else(failed)?));
        reading.await.unwrap_or_else(|_| Err(failed()))
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<String, Weak<RunLog>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what has become too old while nothing is written, until the store is dropped.
async fn prune_regularly(commands: mpsc::WeakSender<Command>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(commands) = commands.upgrade() else { return };
        // A writer with a full queue removes what is too old by itself.
        let _ = commands.try_send(Command::Prune);
    }
}
