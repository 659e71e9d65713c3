//! The processes of a pool, and the queue of runs for their slots.

use super::{
    PoolOptions, PoolStatus, ProcessStatus,
    key::{Key, Wanted},
    seating::{Decision, EntryId, Seating, Ticket, Want},
};
use crate::{
    live::{LiveHandle, LiveState},
    process,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::sync::{Notify, oneshot, watch};

/// The state of a pool.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(super) options: PoolOptions,
    state: Mutex<State>,
    /// Notified when a pending start has failed, or has succeeded after the pool was closed.
    started: Notify,
}

#[derive(Debug)]
struct State {
    seating: Seating,
    agents: BTreeMap<EntryId, Warm>,
    turns: HashMap<Ticket, oneshot::Sender<Grant>>,
    /// Retired processes that may still be exiting.
    going: Vec<watch::Receiver<LiveState>>,
    closed: bool,
    runs: u64,
    started: u64,
    retried: u64,
}

/// One warm agent.
#[derive(Debug)]
struct Warm {
    live: Arc<LiveHandle>,
    agent: &'static str,
    version: Option<String>,
    /// Whether the agent was used since its memory was last measured.
    used: bool,
}

/// What a run is given.
#[derive(Debug)]
pub(super) enum Grant {
    /// A slot on a process that is running or starting.
    Place(Place),
    /// The permission to start a process.
    Start(StartRight),
    /// The run is refused: the pool is closed or its queue is full.
    Refused(&'static str),
}

/// A slot on a process. Dropping it releases the slot.
#[derive(Debug)]
pub(super) struct Place {
    lanes: Arc<Lanes>,
    id: EntryId,
    pub(super) live: Arc<LiveHandle>,
    /// A session that was opened in advance.
    pub(super) spare: Option<String>,
    /// Whether the session of this slot is still to be opened.
    opening: bool,
}

/// The permission to start a process. Dropping it unused returns it.
#[derive(Debug)]
pub(super) struct StartRight {
    lanes: Arc<Lanes>,
    key: Key,
    used: bool,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    /// A run.
    Run,
    /// Opening a session for a later run.
    Opening,
}

/// The reason for refusing a run.
pub(super) const CLOSED: &str = "the pool is closed";
const FULL: &str = "too many runs wait for a place in the pool";

impl Lanes {
    pub(super) fn new(mut options: PoolOptions) -> Self {
        // With a value of zero, no run would ever start.
        for least in [&mut options.max_processes, &mut options.lanes, &mut options.opening] {
            *least = (*least).max(1);
        }
        let state = State {
            seating: Seating::new(options.clone()),
            agents: BTreeMap::new(),
            turns: HashMap::new(),
            going: Vec::new(),
            closed: false,
            runs: 0,
            started: 0,
            retried: 0,
        };
        Self { options, state: Mutex::new(state), started: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot, or the permission to start a process, if one is available without waiting.
    pub(super) fn place_at_once(self: &Arc<Self>, wanted: &Wanted) -> Option<Grant> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let ticket = state.seating.wait(want_of(wanted, Guest::Run));
        let (tell, mut turn) = oneshot::channel();
        state.turns.insert(ticket, tell);
        let left = self.act(&mut state);
        if state.turns.remove(&ticket).is_some() {
            state.seating.give_up(ticket);
        }
        drop(state);
        drop(left);
        turn.try_recv().ok()
    }

    /// Waits for a slot or the permission to start a process. Dropping the future leaves the queue.
    pub(super) async fn place(self: &Arc<Self>, wanted: &Wanted, guest: Guest) -> Grant {
        let want = want_of(wanted, guest);
        let (ticket, turn) = {
            let mut state = self.lock();
            if state.closed {
                return Grant::Refused(CLOSED);
            }
            let ticket = state.seating.wait(want);
            let (tell, turn) = oneshot::channel();
            state.turns.insert(ticket, tell);
            let left = self.act(&mut state);
            let too_many =
                state.turns.contains_key(&ticket) && state.seating.queued() > self.options.max_queue;
            if too_many {
                state.seating.give_up(ticket);
                state.turns.remove(&ticket);
            }
            drop(state);
            drop(left);
            if too_many {
                return Grant::Refused(FULL);
            }
            (ticket, turn)
        };
        let _queued = Queued { lanes: self, ticket };
        turn.await.unwrap_or(Grant::Refused(CLOSED))
    }

    /// Carries out the decisions of the scheduler. The caller must drop the returned values after it releases the lock.
    #[must_use]
    fn act(self: &Arc<Self>, state: &mut State) -> Vec<Left> {
        for (id, warm) in &state.agents {
            if warm.live.state().closed {
                state.seating.retire(*id);
            }
        }
        let mut left = Vec::new();
        for decision in state.seating.decide(Instant::now()) {
            let (ticket, grant) = match decision {
                Decision::LetGo(id) => {
                    left.extend(state.let_go(id).map(Left::Live));
                    continue;
                }
                Decision::Start { ticket, key } => {
                    (ticket, Grant::Start(StartRight { lanes: Arc::clone(self), key, used: false }))
                }
                Decision::Sit { ticket, entry, spare } => {
                    let Some(warm) = state.agents.get_mut(&entry) else { continue };
                    warm.used = true;
                    let (live, opening) = (Arc::clone(&warm.live), spare.is_none());
                    let place = Place { lanes: Arc::clone(self), id: entry, live, spare, opening };
                    (ticket, Grant::Place(place))
                }
            };
            let unwanted = match state.turns.remove(&ticket) {
                Some(turn) => turn.send(grant).err(),
                None => Some(grant),
            };
            // The receiver is gone. The grant is returned after the lock is released.
            left.extend(unwanted.map(Left::Grant));
        }
        left
    }

    /// Counts a run that starts on a process.
    pub(super) fn counts_run(&self) {
        self.lock().runs += 1;
    }

    /// Counts a retry.
    pub(super) fn counts_retry(&self) {
        self.lock().retried += 1;
    }

    /// Returns the number of open sessions that are available for runs like this one.
    pub(super) fn spares(&self, wanted: &Wanted) -> usize {
        let want = Want { key: wanted.fit.key, session: wanted.session, shares: wanted.fit.shares };
        self.lock().seating.spares(want)
    }

    /// Retires agents that have exited, are idle, or exceed their age, sessions or memory. Blocks briefly.
    pub(super) fn tidy(self: &Arc<Self>) {
        let used: Vec<(EntryId, u32)> = {
            let mut state = self.lock();
            let used = |(id, warm): (&EntryId, &mut Warm)| {
                std::mem::take(&mut warm.used).then_some((*id, warm.live.pid?))
            };
            state.agents.iter_mut().filter_map(used).collect()
        };
        let weights: Vec<_> =
            used.into_iter().filter_map(|(id, pid)| Some((id, process::memory_of(pid)?))).collect();
        let mut state = self.lock();
        for (id, bytes) in weights {
            state.seating.weighs(id, bytes);
        }
        let left = self.act(&mut state);
        drop(state);
        drop(left);
    }

    pub(super) fn status(&self) -> PoolStatus {
        let mut status = {
            let state = self.lock();
            let processes = state.seating.entries().iter().filter_map(|entry| {
                let warm = state.agents.get(&entry.id)?;
                Some(ProcessStatus {
                    agent: warm.agent.to_owned(),
                    version: warm.version.clone(),
                    pid: warm.live.pid,
                    ready: warm.live.state().ready,
                    active: entry.active,
                    sessions: entry.sessions,
                    age_ms: u64::try_from(entry.born.elapsed().as_millis()).unwrap_or(u64::MAX),
                    memory: None,
                })
            });
            PoolStatus {
                processes: processes.collect(),
                queued: state.seating.queued(),
                runs: state.runs,
                started: state.started,
                retried: state.retried,
                recycled: state.seating.recycled,
            }
        };
        for process in &mut status.processes {
            process.memory = process.pid.and_then(process::memory_of);
        }
        status
    }

    /// Retires all agents when their runs have ended, and waits until they have exited.
    pub(super) async fn close(&self) {
        let idle = {
            let mut state = self.lock();
            state.closed = true;
            state.seating.close();
            state.turns.clear();
            let all: Vec<EntryId> = state.agents.keys().copied().collect();
            all.into_iter().filter_map(|id| state.let_go(id)).collect::<Vec<_>>()
        };
        drop(idle);
        loop {
            let started = self.started.notified();
            if self.lock().seating.starting() == 0 {
                break;
            }
            started.await;
        }
        let going = self.lock().going.clone();
        for mut process in going {
            // The event loop holds the sender until it ends.
            while process.changed().await.is_ok() {}
        }
    }
}

impl State {
    /// Removes a process from the pool. If it has no other owner, it ends when the returned handle is dropped.
    fn let_go(&mut self, id: EntryId) -> Option<Arc<LiveHandle>> {
        let live = self.agents.remove(&id)?.live;
        self.going.retain(|process| process.has_changed().is_ok());
        self.going.push(live.watch());
        Some(live)
    }
}

fn want_of(wanted: &Wanted, guest: Guest) -> Want {
    // Opening a session does not use one that is already open.
    let session = wanted.session.filter(|_| guest == Guest::Run);
    Want { key: wanted.fit.key, session, shares: wanted.fit.shares }
}

/// What is dropped after the lock is released.
enum Left {
    #[expect(dead_code, reason = "it is dropped, and that gives it back")]
    Grant(Grant),
    #[expect(dead_code, reason = "it is dropped, and that lets the process go")]
    Live(Arc<LiveHandle>),
}

/// A run in the queue. Dropping it leaves the queue.
struct Queued<'a> {
    lanes: &'a Lanes,
    ticket: Ticket,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut state = self.lanes.lock();
        if state.turns.remove(&self.ticket).is_some() {
            state.seating.give_up(self.ticket);
        }
    }
}

impl StartRight {
    /// Adds the started process to the pool and returns a slot on it; `None` if the pool was closed in the meantime.
    pub(super) fn started(mut self, live: LiveHandle, wanted: &Wanted) -> Option<Place> {
        self.used = true;
        let live = Arc::new(live);
        let mut state = self.lanes.lock();
        if state.closed {
            state.seating.failed(self.key);
            state.going.push(live.watch());
            drop(state);
            self.lanes.started.notify_waiters();
            return None;
        }
        state.started += 1;
        let id = state.seating.up(self.key, wanted.fit.shares, Instant::now());
        let warm = Warm {
            live: Arc::clone(&live),
            agent: wanted.asked.agent.card().id,
            version: wanted.asked.program.version.map(|v| v.to_string()),
            used: true,
        };
        state.agents.insert(id, warm);
        let left = self.lanes.act(&mut state);
        drop(state);
        drop(left);
        Some(Place { lanes: Arc::clone(&self.lanes), id, live, spare: None, opening: true })
    }
}

impl Drop for StartRight {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        let mut state = self.lanes.lock();
        state.seating.failed(self.key);
        let left = self.lanes.act(&mut state);
        drop(state);
        drop(left);
        self.lanes.started.notify_waiters();
    }
}

impl Place {
    /// Records that the session of this slot is open.
    pub(super) fn opened(&mut self) {
        if std::mem::take(&mut self.opening) {
            let mut state = self.lanes.lock();
            state.seating.opened(self.id);
            let left = self.lanes.act(&mut state);
            drop(state);
            drop(left);
        }
    }

    /// Returns whether the session of this slot is open.
    pub(super) fn is_opened(&self) -> bool {
        !self.opening
    }

    /// Retires the process: it accepts no more runs.
    pub(super) fn retire(&self) {
        self.lanes.lock().seating.retire(self.id);
    }

    /// Keeps an open session for a later run.
    pub(super) fn keep_spare(&self, session: Key, name: String) {
        self.lanes.lock().seating.keep_spare(self.id, session, name);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.lanes.lock();
        state.seating.leave(self.id, self.opening, Instant::now());
        let left = self.lanes.act(&mut state);
        drop(state);
        drop(left);
    }
}
