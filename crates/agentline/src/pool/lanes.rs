//! Who is on which process, who waits, and who is next.

use super::{
    PoolOptions, PoolStatus, ProcessStatus,
    key::{Key, Wanted},
};
use crate::{live::LiveHandle, process};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The state of a pool.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(super) options: PoolOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// Processes that are being started, by what they are for.
    starting: Vec<Key>,
    waiting: VecDeque<Waiter>,
    last_id: u64,
    closed: bool,
    runs: u64,
    started: u64,
    retried: u64,
    recycled: u64,
}

/// One warm agent.
#[derive(Debug)]
struct Entry {
    id: u64,
    key: Key,
    agent: &'static str,
    version: Option<String>,
    live: Arc<LiveHandle>,
    born: Instant,
    idle_since: Instant,
    active: usize,
    /// A run is on it that can have nobody beside it.
    exclusive: bool,
    /// Sessions that are open and were not used yet, with what they were opened with.
    spares: Vec<(Key, String)>,
    /// It takes no more runs.
    leaving: bool,
}

#[derive(Debug)]
struct Waiter {
    want: Want,
    tell: oneshot::Sender<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    key: Key,
    session: Option<Key>,
    shares: bool,
}

/// What a run is given.
#[derive(Debug)]
pub(super) enum Grant {
    /// A place on a process that is up or coming up.
    Place(Place),
    /// The right to start a process.
    Start(StartRight),
    /// Nothing: the pool is closed, or too many wait already.
    Refused(&'static str),
}

/// A place on a process, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lanes: Arc<Lanes>,
    id: u64,
    pub(super) live: Arc<LiveHandle>,
    /// A session that was opened beforehand.
    pub(super) spare: Option<String>,
}

/// The right to start a process, given back when it is dropped unused.
#[derive(Debug)]
pub(super) struct StartRight {
    lanes: Arc<Lanes>,
    key: Key,
    used: bool,
}

impl Lanes {
    pub(super) fn new(options: PoolOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a run, or the right to make one. Waits for its turn. May be dropped.
    pub(super) async fn place(self: &Arc<Self>, wanted: &Wanted) -> Grant {
        let want = Want { key: wanted.key, session: wanted.session, shares: wanted.shares };
        let turn = {
            let mut state = self.lock();
            if state.closed {
                return Grant::Refused("the pool is closed");
            }
            if state.waiting.len() >= self.options.max_queue {
                return Grant::Refused("too many runs wait for a place in the pool");
            }
            let (tell, turn) = oneshot::channel();
            state.waiting.push_back(Waiter { want, tell });
            self.serve(state);
            turn
        };
        turn.await.unwrap_or(Grant::Refused("the pool is closed"))
    }

    /// The right to start one more process for this, if there is room.
    pub(super) fn start_right(self: &Arc<Self>, wanted: &Wanted) -> Option<StartRight> {
        let mut state = self.lock();
        let room = !state.closed && state.entries.len() + state.starting.len() < self.options.max_processes;
        room.then(|| self.right(&mut state, wanted.key))
    }

    fn right(self: &Arc<Self>, state: &mut State, key: Key) -> StartRight {
        state.starting.push(key);
        StartRight { lanes: Arc::clone(self), key, used: false }
    }

    /// Gives those who wait what there is, first come first served; one who can be served is not held up by one who
    /// waits for another kind of process.
    fn serve(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut left = Vec::new();
        let mut waiting = std::mem::take(&mut state.waiting);
        let mut still = VecDeque::new();
        while let Some(waiter) = waiting.pop_front() {
            if waiter.tell.is_closed() {
                continue;
            }
            match self.choose(&mut state, waiter.want, &mut left) {
                Some(grant) => {
                    if let Err(back) = waiter.tell.send(grant) {
                        // It went away this very moment; what it was given goes back when the lock is free.
                        left.push(Left::Grant(back));
                    }
                }
                None => still.push_back(waiter),
            }
        }
        state.waiting = still;
        drop(state);
        drop(left);
    }

    fn choose(self: &Arc<Self>, state: &mut State, want: Want, left: &mut Vec<Left>) -> Option<Grant> {
        let fits = |entry: &Entry| {
            let now = entry.live.state();
            let room = entry.active == 0
                || want.shares
                    && !entry.exclusive
                    && entry.active < self.options.lanes
                    && now.opening < self.options.opening;
            entry.key == want.key && !entry.leaving && !now.closed && room
        };
        let has_spare = |entry: &Entry| entry.spares.iter().any(|(key, _)| Some(*key) == want.session);
        let best = state.entries.iter_mut().filter(|entry| fits(entry));
        if let Some(entry) = best.min_by_key(|entry| (!has_spare(entry), entry.active)) {
            entry.active += 1;
            entry.exclusive = !want.shares;
            let spare = entry.spares.iter().position(|(key, _)| Some(*key) == want.session);
            let spare = spare.map(|at| entry.spares.swap_remove(at).1);
            let place = Place { lanes: Arc::clone(self), id: entry.id, live: Arc::clone(&entry.live), spare };
            state.runs += 1;
            return Some(Grant::Place(place));
        }
        // One that is coming up will do for those who can share it.
        if want.shares && state.starting.contains(&want.key) {
            return None;
        }
        if state.entries.len() + state.starting.len() >= self.options.max_processes {
            // Somebody else's idle process makes room.
            let idle = state.entries.iter().enumerate().filter(|(_, e)| e.active == 0 && e.key != want.key);
            let oldest = idle.min_by_key(|(_, entry)| entry.idle_since).map(|(at, _)| at)?;
            left.push(Left::Live(state.entries.swap_remove(oldest).live));
        }
        Some(Grant::Start(self.right(state, want.key)))
    }

    /// Counts a run that is tried again.
    pub(super) fn retried(&self) {
        self.lock().retried += 1;
    }

    /// A process that nobody can use any more is forgotten; those that are too old, used or big are let go.
    pub(super) fn tidy(self: &Arc<Self>) {
        let mut gone = Vec::new();
        let mut state = self.lock();
        let State { entries, recycled, .. } = &mut *state;
        entries.retain_mut(|entry| {
            if entry.active > 0 {
                return true;
            }
            let idle = entry.idle_since.elapsed() > self.options.idle;
            let worn = self.is_worn(entry);
            *recycled += u64::from(worn);
            let stays = !entry.live.state().closed && !idle && !worn;
            if !stays {
                gone.push(Arc::clone(&entry.live));
            }
            stays
        });
        self.serve(state);
        drop(gone);
    }

    fn is_worn(&self, entry: &Entry) -> bool {
        let memory = || entry.live.pid.and_then(process::memory_of);
        entry.born.elapsed() > self.options.max_age
            || entry.live.state().served >= self.options.max_sessions
            || memory().is_some_and(|bytes| bytes > self.options.max_memory)
    }

    pub(super) fn status(&self) -> PoolStatus {
        let state = self.lock();
        let ms = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let processes = state.entries.iter().map(|entry| {
            let now = entry.live.state();
            ProcessStatus {
                agent: entry.agent.to_owned(),
                version: entry.version.clone(),
                pid: entry.live.pid,
                ready: now.ready,
                active: entry.active,
                sessions: now.served,
                age_ms: ms(entry.born),
                memory: entry.live.pid.and_then(process::memory_of),
            }
        });
        PoolStatus {
            processes: processes.collect(),
            queued: state.waiting.len(),
            runs: state.runs,
            started: state.started,
            retried: state.retried,
            recycled: state.recycled,
        }
    }

    /// How long nobody has used any process of this pool; `None` while somebody does or waits.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let state = self.lock();
        let busy = !state.waiting.is_empty()
            || !state.starting.is_empty()
            || state.entries.iter().any(|e| e.active > 0);
        let last = state.entries.iter().map(|entry| entry.idle_since.elapsed()).min();
        (!busy).then(|| last.unwrap_or(Duration::MAX))
    }

    pub(super) async fn close(&self) {
        let entries = {
            let mut state = self.lock();
            state.closed = true;
            state.waiting.clear();
            std::mem::take(&mut state.entries)
        };
        for entry in entries {
            match Arc::try_unwrap(entry.live) {
                Ok(live) => live.close().await,
                // A run is still on it; the process goes with it.
                Err(shared) => drop(shared),
            }
        }
    }
}

/// What is let go when the lock is free.
enum Left {
    #[expect(dead_code, reason = "it is dropped, and that gives it back")]
    Grant(Grant),
    #[expect(dead_code, reason = "it is dropped, and that lets the process go")]
    Live(Arc<LiveHandle>),
}

impl StartRight {
    /// The process is up: it is the pool's now, and whoever started it has a place on it.
    pub(super) fn started(mut self, live: LiveHandle, wanted: &Wanted) -> Place {
        self.used = true;
        let live = Arc::new(live);
        let mut state = self.lanes.lock();
        if let Some(at) = state.starting.iter().position(|key| *key == self.key) {
            state.starting.swap_remove(at);
        }
        state.last_id += 1;
        state.started += 1;
        state.runs += 1;
        let id = state.last_id;
        state.entries.push(Entry {
            id,
            key: self.key,
            agent: wanted.asked.agent.card().id,
            version: wanted.asked.program.version.map(|v| v.to_string()),
            live: Arc::clone(&live),
            born: Instant::now(),
            idle_since: Instant::now(),
            active: 1,
            exclusive: !wanted.shares,
            spares: Vec::new(),
            leaving: false,
        });
        self.lanes.serve(state);
        Place { lanes: Arc::clone(&self.lanes), id, live, spare: None }
    }
}

impl Drop for StartRight {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        let mut state = self.lanes.lock();
        if let Some(at) = state.starting.iter().position(|key| *key == self.key) {
            state.starting.swap_remove(at);
        }
        self.lanes.serve(state);
    }
}

impl Place {
    /// The process takes no more runs.
    pub(super) fn retire(&self) {
        let mut state = self.lanes.lock();
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.leaving = true;
        }
    }

    /// Keeps an open session for a run that wants one like it.
    pub(super) fn keep_spare(&self, session: Key, id: String) {
        let mut state = self.lanes.lock();
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.spares.push((session, id));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.lanes.lock();
        let Some(at) = state.entries.iter().position(|entry| entry.id == self.id) else { return };
        let entry = &mut state.entries[at];
        entry.active -= 1;
        entry.idle_since = Instant::now();
        let over = entry.active == 0;
        let worn = over && self.lanes.is_worn(entry);
        let gone = over && (entry.leaving || worn || entry.live.state().closed);
        let gone = gone.then(|| state.entries.swap_remove(at));
        state.recycled += u64::from(worn);
        self.lanes.serve(state);
        drop(gone);
    }
}
