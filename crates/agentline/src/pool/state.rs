//! The processes of a pool, and the queue of runs for their slots.

use crate::pool::{
    PoolOptions, PoolStatus, ProcessStatus,
    key::{PoolKey, PoolRequest},
    scheduler::{EntryId, Scheduler, SchedulerAction, SlotRequest, Ticket},
};
use crate::{
    process,
    run::{live_process::ProcessHandle, spawned_process::ProcessLoad},
    workspace::snapshot::ActiveRuns,
};
use agentline_core::AgentId;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::sync::{Notify, oneshot, watch};

/// The state of a pool.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(super) options: PoolOptions,
    /// The active runs of the pool.
    pub(super) active_runs: ActiveRuns,
    state: Mutex<State>,
    /// Notified when a pending start has ended without a new process in the pool: it failed, or the pool was closed
    /// meanwhile.
    start_abandoned: Notify,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    agents: BTreeMap<EntryId, PooledProcess>,
    turns: HashMap<Ticket, oneshot::Sender<Allocation>>,
    /// Retired processes that may still be exiting.
    retired: Vec<watch::Receiver<ProcessLoad>>,
    closed: bool,
    runs: u64,
    started: u64,
    retried: u64,
}

/// One warm agent.
#[derive(Debug)]
struct PooledProcess {
    live: Arc<ProcessHandle>,
    agent: AgentId,
    version: Option<String>,
    /// Whether the agent was used since its memory was last measured.
    used: bool,
}

/// The allocation of a run.
#[derive(Debug)]
pub(super) enum Allocation {
    /// A slot on a process that is running or starting.
    Slot(Slot),
    /// The permission to start a process.
    Start(StartPermit),
    /// The run is refused: the pool is closed or its queue is full.
    Refused(&'static str),
}

/// A slot on a process. Dropping it releases the slot.
#[derive(Debug)]
pub(super) struct Slot {
    pool: Arc<PoolState>,
    id: EntryId,
    pub(super) live: Arc<ProcessHandle>,
    /// A session that was opened in advance.
    pub(super) open_session: Option<String>,
    /// Whether the session of this slot is still to be opened.
    opening: bool,
}

/// The permission to start a process. Dropping it unused returns it.
#[derive(Debug)]
pub(super) struct StartPermit {
    pool: Arc<PoolState>,
    key: PoolKey,
    used: bool,
}

/// The purpose of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotUser {
    /// A run.
    Run,
    /// Opening a session for a later run.
    Opening,
}

/// The reason for refusing a run.
pub(super) const CLOSED: &str = "the pool is closed";
const FULL: &str = "too many runs are waiting for a pool slot";

impl PoolState {
    pub(super) fn new(mut options: PoolOptions) -> Self {
        // With a value of zero, no run would ever start.
        for least in
            [&mut options.max_processes, &mut options.concurrent_sessions, &mut options.concurrent_openings]
        {
            *least = (*least).max(1);
        }
        options.concurrent_starts = options.concurrent_starts.map(|most| most.max(1));
        let state = State {
            scheduler: Scheduler::new(options.clone()),
            agents: BTreeMap::new(),
            turns: HashMap::new(),
            retired: Vec::new(),
            closed: false,
            runs: 0,
            started: 0,
            retried: 0,
        };
        Self {
            options,
            active_runs: ActiveRuns::default(),
            state: Mutex::new(state),
            start_abandoned: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot, or the permission to start a process, if one is available without waiting.
    pub(super) fn try_acquire_slot(
        self: &Arc<Self>,
        pool_request: &PoolRequest,
        user: SlotUser,
    ) -> Option<Allocation> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let ticket = state.scheduler.wait(slot_request(pool_request, user), Instant::now());
        let (sender, mut turn) = oneshot::channel();
        state.turns.insert(ticket, sender);
        let removed = self.act(&mut state);
        if state.turns.remove(&ticket).is_some() {
            state.scheduler.remove_waiter(ticket);
        }
        drop(state);
        drop(removed);
        turn.try_recv().ok()
    }

    /// Waits for a slot or the permission to start a process. Dropping the future leaves the queue.
    pub(super) async fn slot(self: &Arc<Self>, pool_request: &PoolRequest, user: SlotUser) -> Allocation {
        let slot_request = slot_request(pool_request, user);
        let (ticket, turn) = {
            let mut state = self.lock();
            if state.closed {
                return Allocation::Refused(CLOSED);
            }
            let ticket = state.scheduler.wait(slot_request, Instant::now());
            let (sender, turn) = oneshot::channel();
            state.turns.insert(ticket, sender);
            let removed = self.act(&mut state);
            let too_many =
                state.turns.contains_key(&ticket) && state.scheduler.queued() > self.options.max_queue;
            if too_many {
                state.scheduler.remove_waiter(ticket);
                state.turns.remove(&ticket);
            }
            drop(state);
            drop(removed);
            if too_many {
                return Allocation::Refused(FULL);
            }
            (ticket, turn)
        };
        let _queued = Queued { pool: self, ticket };
        turn.await.unwrap_or(Allocation::Refused(CLOSED))
    }

    /// Carries out the decisions of the scheduler. The caller must drop the returned values after it releases the lock.
    #[must_use]
    fn act(self: &Arc<Self>, state: &mut State) -> Vec<Removed> {
        for (id, warm) in &state.agents {
            if warm.live.state().closed {
                state.scheduler.retire(*id);
            }
        }
        let mut removed = Vec::new();
        for decision in state.scheduler.decide(Instant::now()) {
            let (ticket, grant) = match decision {
                SchedulerAction::StopProcess(id) => {
                    removed.extend(state.remove_process(id).map(Removed::Live));
                    continue;
                }
                SchedulerAction::Start { ticket, key } => {
                    (ticket, Allocation::Start(StartPermit { pool: Arc::clone(self), key, used: false }))
                }
                SchedulerAction::Assign { ticket, entry, open_session } => {
                    let Some(warm) = state.agents.get_mut(&entry) else { continue };
                    warm.used = true;
                    let (live, opening) = (Arc::clone(&warm.live), open_session.is_none());
                    let slot = Slot { pool: Arc::clone(self), id: entry, live, open_session, opening };
                    (ticket, Allocation::Slot(slot))
                }
            };
            let unwanted = match state.turns.remove(&ticket) {
                Some(turn) => turn.send(grant).err(),
                None => Some(grant),
            };
            // The receiver is gone. The allocation is returned after the lock is released.
            removed.extend(unwanted.map(Removed::Grant));
        }
        removed
    }

    /// Counts a run that starts on a process.
    pub(super) fn count_run(&self) {
        self.lock().runs += 1;
    }

    /// Counts a retry.
    pub(super) fn count_retry(&self) {
        self.lock().retried += 1;
    }

    /// Returns the number of open sessions that are available for runs like this one.
    pub(super) fn count_open_sessions(&self, pool_request: &PoolRequest) -> usize {
        self.lock().scheduler.spare_sessions(slot_request(pool_request, SlotUser::Run))
    }

    /// Returns whether a process should be started in advance for runs like this one.
    pub(super) fn lacks_spare(&self, pool_request: &PoolRequest) -> bool {
        let state = self.lock();
        !state.closed && state.scheduler.lacks_spare(slot_request(pool_request, SlotUser::Run))
    }

    /// Retires agents that have exited, are idle, or exceed their age, sessions or memory. Blocks briefly.
    pub(super) fn tidy(self: &Arc<Self>) {
        let used: Vec<(EntryId, u32)> = {
            let mut state = self.lock();
            let used = |(id, warm): (&EntryId, &mut PooledProcess)| {
                std::mem::take(&mut warm.used).then_some((*id, warm.live.pid?))
            };
            state.agents.iter_mut().filter_map(used).collect()
        };
        let weights: Vec<_> =
            used.into_iter().filter_map(|(id, pid)| Some((id, process::memory_of(pid)?))).collect();
        let mut state = self.lock();
        for (id, bytes) in weights {
            state.scheduler.record_memory(id, bytes);
        }
        let removed = self.act(&mut state);
        drop(state);
        drop(removed);
    }

    pub(super) fn status(&self) -> PoolStatus {
        let mut status = {
            let state = self.lock();
            let processes = state.scheduler.entries().iter().filter_map(|entry| {
                let warm = state.agents.get(&entry.id)?;
                Some(ProcessStatus {
                    agent: warm.agent.clone(),
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
                queued: state.scheduler.queued(),
                runs: state.runs,
                started: state.started,
                retried: state.retried,
                recycled: state.scheduler.recycled,
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
            state.scheduler.close();
            state.turns.clear();
            let all: Vec<EntryId> = state.agents.keys().copied().collect();
            all.into_iter().filter_map(|id| state.remove_process(id)).collect::<Vec<_>>()
        };
        drop(idle);
        loop {
            let started = self.start_abandoned.notified();
            if self.lock().scheduler.starting() == 0 {
                break;
            }
            started.await;
        }
        let retired = self.lock().retired.clone();
        for mut process in retired {
            // The event loop holds the sender until it ends.
            while process.changed().await.is_ok() {}
        }
    }
}

impl State {
    /// Removes a process from the pool. If it has no other owner, it ends when the returned handle is dropped.
    fn remove_process(&mut self, id: EntryId) -> Option<Arc<ProcessHandle>> {
        let live = self.agents.remove(&id)?.live;
        self.retired.retain(|process| process.has_changed().is_ok());
        self.retired.push(live.watch());
        Some(live)
    }
}

fn slot_request(pool_request: &PoolRequest, user: SlotUser) -> SlotRequest {
    // Opening a session does not use one that is already open.
    let session = pool_request.session.filter(|_| user == SlotUser::Run);
    let PoolRequest { process: key, shares, max_sessions, .. } = *pool_request;
    SlotRequest { key, session, shares, max_sessions, is_opening: user == SlotUser::Opening }
}

/// A value that must be dropped after the lock is released.
enum Removed {
    #[expect(dead_code, reason = "held only so that dropping it returns the slot")]
    Grant(Allocation),
    #[expect(dead_code, reason = "held only so that dropping it releases the process")]
    Live(Arc<ProcessHandle>),
}

/// A run in the queue. Dropping it leaves the queue.
struct Queued<'a> {
    pool: &'a PoolState,
    ticket: Ticket,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if state.turns.remove(&self.ticket).is_some() {
            state.scheduler.remove_waiter(self.ticket);
        }
    }
}

impl StartPermit {
    /// Adds the started process to the pool and returns a slot on it; `None` if the pool was closed in the meantime.
    pub(super) fn started(mut self, live: ProcessHandle, pool_request: &PoolRequest) -> Option<Slot> {
        self.used = true;
        let live = Arc::new(live);
        let mut state = self.pool.lock();
        if state.closed {
            state.scheduler.end_start(self.key);
            state.retired.push(live.watch());
            drop(state);
            self.pool.start_abandoned.notify_waiters();
            return None;
        }
        state.started += 1;
        let slot_request = SlotRequest { key: self.key, ..slot_request(pool_request, SlotUser::Run) };
        let id = state.scheduler.process_started(slot_request, Instant::now());
        let warm = PooledProcess {
            live: Arc::clone(&live),
            agent: pool_request.run.agent.info().id.into(),
            version: pool_request.run.program.version.map(|v| v.to_string()),
            used: true,
        };
        state.agents.insert(id, warm);
        let removed = self.pool.act(&mut state);
        drop(state);
        drop(removed);
        Some(Slot { pool: Arc::clone(&self.pool), id, live, open_session: None, opening: true })
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        let mut state = self.pool.lock();
        state.scheduler.end_start(self.key);
        let removed = self.pool.act(&mut state);
        drop(state);
        drop(removed);
        self.pool.start_abandoned.notify_waiters();
    }
}

impl Slot {
    /// Records that the session of this slot is open.
    pub(super) fn opened(&mut self) {
        if std::mem::take(&mut self.opening) {
            let mut state = self.pool.lock();
            state.scheduler.opened(self.id, Instant::now());
            let removed = self.pool.act(&mut state);
            drop(state);
            drop(removed);
        }
    }

    /// Returns whether the session of this slot is open.
    pub(super) fn is_opened(&self) -> bool {
        !self.opening
    }

    /// Retires the process: it accepts no more runs.
    pub(super) fn retire(&self) {
        self.pool.lock().scheduler.retire(self.id);
    }

    /// Keeps the process for a later run, which uses its only session.
    pub(super) fn keep_unused(&self) {
        self.pool.lock().scheduler.keep_unused(self.id);
    }

    /// Keeps an open session for a later run.
    pub(super) fn keep_session(&self, session: PoolKey, name: String) {
        self.pool.lock().scheduler.keep_session(self.id, session, name);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        // The memory may have been measured while the run was active, before it grew.
        if let Some(warm) = state.agents.get_mut(&self.id) {
            warm.used = true;
        }
        state.scheduler.leave(self.id, self.opening, Instant::now());
        let removed = self.pool.act(&mut state);
        drop(state);
        drop(removed);
    }
}
