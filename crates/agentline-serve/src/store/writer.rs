//! The thread that writes to the database: commits what is waiting, then passes it on for publication.

use super::{
    database::{EventDatabase, signed},
    frame::frame,
    log::RunLog,
    prune::Pruner,
    publish::{Committed, PublishedEvents},
};
use crate::{clock::now_ms, messages::ServedRun, options::ServeLimits};
use rusqlite::{Connection, params};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// How many changes are committed at once.
const GROUP: usize = 1_024;
/// The wait before a failed transaction is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// An event before it has a number.
#[derive(Clone, Debug)]
pub(crate) struct StoredEvent {
    /// The type of the event.
    pub(crate) kind: String,
    /// The event as JSON, on one line.
    pub(crate) data: String,
    /// The end of the run, if this is its outcome.
    pub(crate) end: Option<Box<RunEnd>>,
}

/// The end of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    /// The outcome as JSON.
    pub(crate) outcome: String,
    /// The run as it is now.
    pub(crate) run: ServedRun,
}

#[derive(Debug)]
pub(super) enum Command {
    Create(Box<ServedRun>),
    Update(Box<ServedRun>),
    Append {
        log: Arc<RunLog>,
        run: String,
        event: StoredEvent,
    },
    Flush(oneshot::Sender<()>),
    /// Removes what exceeds the limits, also while nothing is written.
    Prune,
}

pub(super) struct EventWriter {
    database: EventDatabase,
    /// The number and the last event of each run that is in progress.
    open: HashMap<String, OpenRun>,
    pruner: Pruner,
    committed: mpsc::UnboundedSender<Committed>,
    failure: WriteFailure,
}

/// Why the last attempt to write failed; `None` after a success.
pub(super) type WriteFailure = Arc<Mutex<Option<String>>>;

#[derive(Clone, Copy, Debug)]
struct OpenRun {
    number: i64,
    last: u64,
}

impl EventWriter {
    pub(super) fn new(
        database: EventDatabase,
        limits: ServeLimits,
        committed: mpsc::UnboundedSender<Committed>,
        failure: WriteFailure,
    ) -> Self {
        Self { database, open: HashMap::new(), pruner: Pruner::new(limits), committed, failure }
    }

    /// Works until the store is dropped.
    pub(super) fn run(mut self, mut incoming: mpsc::Receiver<Command>) {
        let mut group = Vec::with_capacity(GROUP);
        while incoming.blocking_recv_many(&mut group, GROUP) > 0 {
            self.commit(&mut group);
            group.clear();
        }
    }

    /// Commits a group of changes and passes its events on. Nothing is published before it is committed.
    fn commit(&mut self, group: &mut Vec<Command>) {
        // A full disk or a locked database may pass; until then, no client receives an event that could be lost.
        let published = loop {
            match self.write(group) {
                Ok(published) => break published,
                Err(error) => self.set_failure(Some(error.to_string())),
            }
            std::thread::sleep(RETRY);
        };
        self.set_failure(None);
        for (run, events) in published {
            let log = Arc::clone(&events.log);
            let open = if events.ended { self.open.remove(&run) } else { self.open.get(&run).copied() };
            self.pass_on(Committed::Events(events));
            let first = open.and_then(|open| self.pruner.prune_run(&self.database.connection, open.number));
            if let Some(first) = first {
                self.pass_on(Committed::Pruned(log, first));
            }
        }
        if group.iter().any(changes_list) {
            self.pass_on(Committed::List);
        }
        self.pruner.prune_all(&self.database.connection);
        for command in group.drain(..) {
            if let Command::Flush(done) = command {
                self.pass_on(Committed::Flushed(done));
            }
        }
    }

    fn pass_on(&self, committed: Committed) {
        // Without a receiver, the server ends and there are no clients.
        let _ = self.committed.send(committed);
    }

    fn set_failure(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    fn write(&mut self, group: &[Command]) -> Result<HashMap<String, PublishedEvents>, rusqlite::Error> {
        let transaction = self.database.connection.unchecked_transaction()?;
        let mut open = self.open.clone();
        let mut published: HashMap<String, PublishedEvents> = HashMap::new();
        for command in group {
            match command {
                Command::Create(run) => {
                    let number = create(&transaction, run)?;
                    open.insert(run.run.clone(), OpenRun { number, last: 0 });
                }
                Command::Update(run) => update(&transaction, run)?,
                Command::Append { log, run, event } => {
                    if published.get(run).is_some_and(|events| events.ended) {
                        continue;
                    }
                    let Some(position) = position(&transaction, &mut open, run)? else { continue };
                    insert(&transaction, position, event)?;
                    let entry = published.entry(run.clone()).or_insert_with(|| PublishedEvents {
                        log: Arc::clone(log),
                        frames: Vec::new(),
                        ended: false,
                    });
                    entry.frames.push(frame(position.last, &event.kind, &event.data));
                    entry.ended |= event.end.is_some();
                }
                Command::Flush(_) | Command::Prune => {}
            }
        }
        transaction.commit()?;
        self.open = open;
        Ok(published)
    }
}

/// Returns whether a change is visible in the list of runs.
fn changes_list(command: &Command) -> bool {
    match command {
        Command::Create(_) | Command::Update(_) => true,
        Command::Append { event, .. } => event.end.is_some(),
        Command::Flush(_) | Command::Prune => false,
    }
}

fn create(connection: &Connection, run: &ServedRun) -> Result<i64, rusqlite::Error> {
    let sql = "INSERT INTO runs (run, info, owner, conversation, started_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(sql)?.execute(params![
        run.run,
        json(run),
        run.started_by,
        run.conversation,
        signed(run.started_at_ms)
    ])?;
    Ok(connection.last_insert_rowid())
}

fn update(connection: &Connection, run: &ServedRun) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE runs SET info = ?2, cost_usd = ?3 WHERE run = ?1";
    connection.prepare_cached(sql)?.execute(params![run.run, json(run), run.cost_usd])?;
    Ok(())
}

fn json(run: &ServedRun) -> String {
    serde_json::to_string(run).unwrap_or_default()
}

/// Returns the position of the next event of a run; `None` if there is no such run or it has ended.
fn position(
    connection: &Connection,
    open: &mut HashMap<String, OpenRun>,
    run: &str,
) -> Result<Option<OpenRun>, rusqlite::Error> {
    if !open.contains_key(run) {
        use rusqlite::OptionalExtension as _;
        let sql = "SELECT number, last FROM runs WHERE run = ?1 AND outcome IS NULL";
        let found = connection.prepare_cached(sql)?.query_row([run], |row| {
            Ok(OpenRun { number: row.get(0)?, last: row.get::<_, i64>(1)?.unsigned_abs() })
        });
        let Some(found) = found.optional()? else { return Ok(None) };
        open.insert(run.to_owned(), found);
    }
    Ok(open.get_mut(run).map(|position| {
        position.last += 1;
        *position
    }))
}

fn insert(connection: &Connection, at: OpenRun, event: &StoredEvent) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO events (number, id, kind, data) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![at.number, signed(at.last), event.kind, event.data])?;
    let sql = "UPDATE runs SET last = ?2, first = MAX(first, 1), bytes = bytes + ?3 WHERE number = ?1";
    let length = signed(event.data.len() as u64);
    connection.prepare_cached(sql)?.execute(params![at.number, signed(at.last), length])?;
    if let Some(end) = &event.end {
        let sql = "UPDATE runs SET outcome = ?2, ended_ms = ?3 WHERE number = ?1";
        connection.prepare_cached(sql)?.execute(params![at.number, end.outcome, signed(now_ms())])?;
        update(connection, &end.run)?;
    }
    Ok(())
}
