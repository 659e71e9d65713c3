//! Assigns runs to processes, queues runs, and decides which processes are retired.
//!
//! This module starts and ends nothing and has no clock: events and times are passed in.

#[cfg(test)]
mod tests;

use super::{PoolOptions, key::PoolKey};
use std::{collections::VecDeque, time::Instant};

/// The number of a process, in order of start.
pub(super) type EntryId = u64;
/// The number of a waiting run, in order of arrival.
pub(super) type Ticket = u64;

/// The requirements of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest {
    /// The key of suitable processes.
    pub(super) key: PoolKey,
    /// The key of suitable sessions, if a session opened in advance can be used.
    pub(super) session: Option<PoolKey>,
    /// Whether the run can share a process with others.
    pub(super) shares: bool,
    /// How many sessions a process of this kind can have, if its agent limits that.
    pub(super) max_sessions: Option<u32>,
    /// Whether a session is opened for a later run.
    pub(super) is_opening: bool,
}

/// A decision of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SchedulerAction {
    /// Assigns this run to a process, with a session opened in advance if there is one.
    Assign { ticket: Ticket, entry: EntryId, open_session: Option<String> },
    /// Lets this run start a process.
    Start { ticket: Ticket, key: PoolKey },
    /// Retires this process.
    StopProcess(EntryId),
}

/// The state of one process.
#[derive(Debug)]
pub(super) struct ProcessEntry {
    pub(super) id: EntryId,
    key: PoolKey,
    pub(super) born: Instant,
    /// When the first session was open.
    ready: Option<Instant>,
    idle_since: Instant,
    pub(super) active: usize,
    /// How many of the active runs have no session yet.
    opening: usize,
    /// Whether the process is used by a run that cannot share it.
    exclusive: bool,
    /// The number of sessions so far.
    pub(super) sessions: u32,
    /// The number of sessions after which the process is replaced.
    max_sessions: u32,
    /// Open sessions that are still unused, with their keys.
    spare_sessions: Vec<(PoolKey, String)>,
    /// Whether the process accepts no more runs.
    leaving: bool,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    slot_request: SlotRequest,
    since: Instant,
}

/// The scheduler: processes, starts and waiting runs.
#[derive(Debug)]
pub(super) struct Scheduler {
    options: PoolOptions,
    entries: Vec<ProcessEntry>,
    /// The keys of processes that are being started.
    starting: Vec<PoolKey>,
    waiting: VecDeque<Waiter>,
    last_ticket: Ticket,
    last_entry: EntryId,
    /// The number of processes that were retired because of their age, sessions or memory.
    pub(super) recycled: u64,
}

impl Scheduler {
    pub(super) fn new(options: PoolOptions) -> Self {
        Self {
            options,
            entries: Vec::new(),
            starting: Vec::new(),
            waiting: VecDeque::new(),
            last_ticket: 0,
            last_entry: 0,
            recycled: 0,
        }
    }

    /// Adds a run to the end of the queue.
    pub(super) fn wait(&mut self, slot_request: SlotRequest, now: Instant) -> Ticket {
        self.last_ticket += 1;
        self.waiting.push_back(Waiter { ticket: self.last_ticket, slot_request, since: now });
        self.last_ticket
    }

    /// Removes a run from the queue. Returns whether it was queued.
    pub(super) fn remove_waiter(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiter| waiter.ticket != ticket);
        self.waiting.len() < before
    }

    /// Clears the queue and retires all processes.
    pub(super) fn close(&mut self) {
        self.waiting.clear();
        self.entries.iter_mut().for_each(|entry| entry.leaving = true);
    }

    pub(super) fn queued(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn starting(&self) -> usize {
        self.starting.len()
    }

    pub(super) fn entries(&self) -> &[ProcessEntry] {
        &self.entries
    }

    /// Records that a pending start has ended.
    pub(super) fn end_start(&mut self, key: PoolKey) {
        if let Some(at) = self.starting.iter().position(|started| *started == key) {
            self.starting.swap_remove(at);
        }
    }

    /// Records that a process was started, with its first run.
    pub(super) fn process_started(&mut self, slot_request: SlotRequest, now: Instant) -> EntryId {
        let SlotRequest { key, shares, max_sessions, .. } = slot_request;
        self.end_start(key);
        self.last_entry += 1;
        self.entries.push(ProcessEntry {
            id: self.last_entry,
            key,
            born: now,
            ready: None,
            idle_since: now,
            active: 1,
            opening: 1,
            exclusive: !shares,
            sessions: 1,
            max_sessions: max_sessions
                .map_or(self.options.max_sessions, |most| most.min(self.options.max_sessions)),
            spare_sessions: Vec::new(),
            leaving: false,
        });
        self.last_entry
    }

    /// Records that a run has opened its session.
    pub(super) fn opened(&mut self, id: EntryId, now: Instant) {
        if let Some(entry) = self.find(id) {
            entry.opening = entry.opening.saturating_sub(1);
            entry.ready.get_or_insert(now);
        }
    }

    /// Keeps an open session for a later run.
    pub(super) fn keep_session(&mut self, id: EntryId, session: PoolKey, name: String) {
        if let Some(entry) = self.find(id) {
            entry.spare_sessions.push((session, name));
        }
    }

    /// Keeps a process whose only session is still unused for a later run.
    pub(super) fn keep_unused(&mut self, id: EntryId) {
        if let Some(entry) = self.find(id) {
            entry.sessions = 0;
        }
    }

    /// Returns whether a process may be started in advance: there is room, and no process of this kind is unused.
    pub(super) fn lacks_spare(&self, slot_request: SlotRequest) -> bool {
        self.entries.len() + self.starting.len() < self.options.max_processes
            && self.waiting.is_empty()
            && !self.starting.contains(&slot_request.key)
            && self.spare_sessions(slot_request) == 0
    }

    /// Returns the number of open sessions that are available for runs like this one.
    pub(super) fn spare_sessions(&self, slot_request: SlotRequest) -> usize {
        let of = |entry: &ProcessEntry| {
            let of_key = |(key, _): &&(PoolKey, String)| Some(*key) == slot_request.session;
            usize::from(entry.sessions == 0) + entry.spare_sessions.iter().filter(of_key).count()
        };
        self.entries.iter().filter(|entry| entry.key == slot_request.key && !entry.leaving).map(of).sum()
    }

    /// Records that a run has left its process.
    pub(super) fn leave(&mut self, id: EntryId, was_opening: bool, now: Instant) {
        if let Some(entry) = self.find(id) {
            entry.opening = entry.opening.saturating_sub(usize::from(was_opening));
            entry.active = entry.active.saturating_sub(1);
            entry.idle_since = now;
        }
    }

    /// Retires a process: it has exited or is faulty.
    pub(super) fn retire(&mut self, id: EntryId) {
        if let Some(entry) = self.find(id) {
            entry.leaving = true;
        }
    }

    /// Records the memory use of a process, and retires it if that is too high.
    pub(super) fn record_memory(&mut self, id: EntryId, bytes: u64) {
        let too_much = bytes > self.options.max_memory;
        if let Some(entry) = self.find(id).filter(|entry| too_much && !entry.leaving) {
            entry.leaving = true;
            self.recycled += 1;
        }
    }

    fn find(&mut self, id: EntryId) -> Option<&mut ProcessEntry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// Returns all decisions that are due. Runs are served in order of arrival; a run that can be served does not wait
    /// for one that needs another kind of process, and no run waits forever.
    pub(super) fn decide(&mut self, now: Instant) -> Vec<SchedulerAction> {
        let mut decisions = Vec::new();
        self.retire_processes(now, &mut decisions);
        let mut passed: Vec<PoolKey> = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            let Waiter { ticket, slot_request, since } = waiter;
            // A run does not overtake an earlier one that waits for the same kind of process.
            let chosen = if passed.contains(&slot_request.key) {
                None
            } else {
                self.choose(slot_request, since, now, &mut decisions)
            };
            match chosen {
                Some(Placement::At(entry, open_session)) => {
                    decisions.push(SchedulerAction::Assign { ticket, entry, open_session })
                }
                Some(Placement::New) => {
                    self.starting.push(slot_request.key);
                    decisions.push(SchedulerAction::Start { ticket, key: slot_request.key });
                }
                None => {
                    passed.push(slot_request.key);
                    self.waiting.push_back(waiter);
                }
            }
        }
        decisions
    }

    /// Retires processes that have reached their limits, and removes those that are retired or idle and have no runs.
    fn retire_processes(&mut self, now: Instant, decisions: &mut Vec<SchedulerAction>) {
        let Self { options, entries, recycled, .. } = self;
        entries.retain_mut(|entry| {
            let used_up =
                entry.sessions >= entry.max_sessions && entry.opening == 0 && entry.spare_sessions.is_empty();
            if !entry.leaving && (used_up || now.duration_since(entry.born) > options.max_age) {
                entry.leaving = true;
                *recycled += 1;
            }
            let forgotten = now.duration_since(entry.idle_since) > options.idle_timeout;
            let goes = entry.active == 0 && (entry.leaving || forgotten);
            if goes {
                decisions.push(SchedulerAction::StopProcess(entry.id));
            }
            !goes
        });
    }

    fn choose(
        &mut self,
        slot_request: SlotRequest,
        since: Instant,
        now: Instant,
        decisions: &mut Vec<SchedulerAction>,
    ) -> Option<Placement> {
        let Self { options, entries, starting, .. } = self;
        let has_spare = |entry: &ProcessEntry| {
            entry.spare_sessions.iter().any(|(key, _)| Some(*key) == slot_request.session)
        };
        let has_lane = |entry: &ProcessEntry| {
            let can_share =
                slot_request.shares && !entry.exclusive && entry.active < options.concurrent_sessions;
            entry.key == slot_request.key && !entry.leaving && (entry.active == 0 || can_share)
        };
        let may_open = |entry: &ProcessEntry| {
            // A process that was prepared for a run is not prepared again.
            let is_prepared = slot_request.is_opening && entry.sessions == 0;
            !is_prepared && entry.opening < options.concurrent_openings && entry.sessions < entry.max_sessions
        };
        let fits = |entry: &&mut ProcessEntry| has_lane(entry) && (has_spare(entry) || may_open(entry));
        let best = entries.iter_mut().filter(fits).min_by_key(|entry| (!has_spare(entry), entry.active));
        if let Some(entry) = best {
            let open_session =
                entry.spare_sessions.iter().position(|(key, _)| Some(*key) == slot_request.session);
            let open_session = open_session.map(|at| entry.spare_sessions.remove(at).1);
            entry.active += 1;
            entry.exclusive = !slot_request.shares;
            if open_session.is_none() {
                entry.opening += 1;
                entry.sessions += 1;
            }
            return Some(Placement::At(entry.id, open_session));
        }
        // A run that can share a process waits for one that is starting or opening other sessions.
        let soon = |entry: &ProcessEntry| has_lane(entry) && entry.sessions < entry.max_sessions;
        if slot_request.shares && (starting.contains(&slot_request.key) || entries.iter().any(soon)) {
            return None;
        }
        if let Some(most) = options.concurrent_starts {
            let opens_first = |entry: &&ProcessEntry| entry.ready.is_none() && entry.opening > 0;
            let starts = starting.len() + entries.iter().filter(opens_first).count();
            let may_free_in_time = |entry: &ProcessEntry| {
                entry.key == slot_request.key
                    && !entry.leaving
                    && entry.sessions < entry.max_sessions
                    && entry.ready.is_some_and(|ready| now < since.max(ready) + (ready - entry.born))
            };
            if starts >= most || entries.iter().any(may_free_in_time) {
                return None;
            }
        }
        if entries.len() + starting.len() < options.max_processes {
            return Some(Placement::New);
        }
        // Retire an idle process of another kind, or one of this kind that has reached its number of sessions.
        let useless =
            |entry: &ProcessEntry| entry.key != slot_request.key || entry.sessions >= entry.max_sessions;
        let idle = entries.iter().enumerate().filter(|(_, entry)| entry.active == 0 && useless(entry));
        if let Some((at, _)) = idle.min_by_key(|(_, entry)| entry.idle_since) {
            decisions.push(SchedulerAction::StopProcess(entries.swap_remove(at).id));
            return Some(Placement::New);
        }
        // A shared process may never become idle, so one of another kind stops accepting runs. If a process of this
        // kind exists or is starting, its next free slot is used instead.
        let has_process =
            starting.contains(&slot_request.key) || entries.iter().any(|entry| entry.key == slot_request.key);
        if !has_process && !entries.iter().any(|entry| entry.leaving) {
            let shared = entries.iter_mut().filter(|entry| !entry.exclusive);
            if let Some(entry) = shared.min_by_key(|entry| entry.active) {
                entry.leaving = true;
            }
        }
        None
    }
}

enum Placement {
    At(EntryId, Option<String>),
    New,
}
