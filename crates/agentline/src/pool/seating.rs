//! Decides who sits where: which run is given which process, who waits for one, and which process is let go.
//!
//! Nothing is started or ended in here, and there is no clock: it is told what happened and when.

#[cfg(test)]
mod tests;

use super::{PoolOptions, key::Key};
use std::{collections::VecDeque, time::Instant};

/// A process, by the order in which they came.
pub(super) type EntryId = u64;
/// A run that waits, by the order in which they came.
pub(super) type Ticket = u64;

/// What a run wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// Which processes would do.
    pub(super) key: Key,
    /// Which sessions would do, if any that was opened beforehand can.
    pub(super) session: Option<Key>,
    /// It can be on a process beside others.
    pub(super) shares: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// This run sits down there, with a session that was opened beforehand where there is one.
    Sit { ticket: Ticket, entry: EntryId, spare: Option<String> },
    /// This run is to start a process.
    Start { ticket: Ticket, key: Key },
    /// This process is let go.
    LetGo(EntryId),
}

/// How one process stands.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: EntryId,
    key: Key,
    pub(super) born: Instant,
    idle_since: Instant,
    pub(super) active: usize,
    /// How many of them have no session yet.
    opening: usize,
    /// A run is on it that can have nobody beside it.
    exclusive: bool,
    /// How many sessions it has had.
    pub(super) sessions: u32,
    /// Sessions that are open and were not used yet, with what they were opened with.
    spares: Vec<(Key, String)>,
    /// It takes no more runs.
    leaving: bool,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    want: Want,
}

/// Who sits where.
#[derive(Debug)]
pub(super) struct Seating {
    options: PoolOptions,
    entries: Vec<Entry>,
    /// Processes that are being started, by what they are for.
    starting: Vec<Key>,
    waiting: VecDeque<Waiter>,
    last_ticket: Ticket,
    last_entry: EntryId,
    /// Processes that were let go because of their age, sessions or memory.
    pub(super) recycled: u64,
}

impl Seating {
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

    /// A run waits from now on, behind all others.
    pub(super) fn wait(&mut self, want: Want) -> Ticket {
        self.last_ticket += 1;
        self.waiting.push_back(Waiter { ticket: self.last_ticket, want });
        self.last_ticket
    }

    /// A run does not wait any more. Says whether it did.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiter| waiter.ticket != ticket);
        self.waiting.len() < before
    }

    /// Nobody waits any more, and no process takes another run.
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

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A process that was to be started did not come up.
    pub(super) fn failed(&mut self, key: Key) {
        if let Some(at) = self.starting.iter().position(|started| *started == key) {
            self.starting.swap_remove(at);
        }
    }

    /// A process is up, and whoever started it sits on it.
    pub(super) fn up(&mut self, key: Key, shares: bool, now: Instant) -> EntryId {
        self.failed(key);
        self.last_entry += 1;
        self.entries.push(Entry {
            id: self.last_entry,
            key,
            born: now,
            idle_since: now,
            active: 1,
            opening: 1,
            exclusive: !shares,
            sessions: 1,
            spares: Vec::new(),
            leaving: false,
        });
        self.last_entry
    }

    /// A run has its session.
    pub(super) fn opened(&mut self, id: EntryId) {
        if let Some(entry) = self.find(id) {
            entry.opening = entry.opening.saturating_sub(1);
        }
    }

    /// A session waits for a run that wants one like it.
    pub(super) fn keep_spare(&mut self, id: EntryId, session: Key, name: String) {
        if let Some(entry) = self.find(id) {
            entry.spares.push((session, name));
        }
    }

    /// How many sessions wait for runs like this one.
    pub(super) fn spares(&self, want: Want) -> usize {
        let of = |entry: &Entry| entry.spares.iter().filter(|(key, _)| Some(*key) == want.session).count();
        self.entries.iter().filter(|entry| entry.key == want.key && !entry.leaving).map(of).sum()
    }

    /// A run got up from its place.
    pub(super) fn leave(&mut self, id: EntryId, was_opening: bool, now: Instant) {
        if was_opening {
            self.opened(id);
        }
        if let Some(entry) = self.find(id) {
            entry.active = entry.active.saturating_sub(1);
            entry.idle_since = now;
        }
    }

    /// The process takes no more runs: it is gone, or something is wrong with it.
    pub(super) fn retire(&mut self, id: EntryId) {
        if let Some(entry) = self.find(id) {
            entry.leaving = true;
        }
    }

    /// The process takes so much memory.
    pub(super) fn weighs(&mut self, id: EntryId, bytes: u64) {
        let too_much = bytes > self.options.max_memory;
        if let Some(entry) = self.find(id).filter(|entry| too_much && !entry.leaving) {
            entry.leaving = true;
            self.recycled += 1;
        }
    }

    fn find(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// Everything that is to be done now. Who came first is served first; one who can be served is not held up by one
    /// who waits for another kind of process, and nobody is passed for ever.
    pub(super) fn decide(&mut self, now: Instant) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.let_go(now, &mut decisions);
        let mut passed: Vec<Key> = Vec::new();
        for Waiter { ticket, want } in std::mem::take(&mut self.waiting) {
            // Whoever waits for such a process is served before those who came later.
            let chosen = if passed.contains(&want.key) { None } else { self.choose(want, &mut decisions) };
            match chosen {
                Some(Seat::At(entry, spare)) => decisions.push(Decision::Sit { ticket, entry, spare }),
                Some(Seat::New) => {
                    self.starting.push(want.key);
                    decisions.push(Decision::Start { ticket, key: want.key });
                }
                None => {
                    passed.push(want.key);
                    self.waiting.push_back(Waiter { ticket, want });
                }
            }
        }
        decisions
    }

    /// Processes that are worn take no more runs, and those that nobody is on and nobody will be on go.
    fn let_go(&mut self, now: Instant, decisions: &mut Vec<Decision>) {
        let Self { options, entries, recycled, .. } = self;
        entries.retain_mut(|entry| {
            let used_up =
                entry.sessions >= options.max_sessions && entry.opening == 0 && entry.spares.is_empty();
            if !entry.leaving && (used_up || now.duration_since(entry.born) > options.max_age) {
                entry.leaving = true;
                *recycled += 1;
            }
            let forgotten = now.duration_since(entry.idle_since) > options.idle;
            let goes = entry.active == 0 && (entry.leaving || forgotten);
            if goes {
                decisions.push(Decision::LetGo(entry.id));
            }
            !goes
        });
    }

    fn choose(&mut self, want: Want, decisions: &mut Vec<Decision>) -> Option<Seat> {
        let Self { options, entries, starting, .. } = self;
        let has_spare = |entry: &Entry| entry.spares.iter().any(|(key, _)| Some(*key) == want.session);
        let has_lane = |entry: &Entry| {
            let beside = want.shares && !entry.exclusive && entry.active < options.lanes;
            entry.key == want.key && !entry.leaving && (entry.active == 0 || beside)
        };
        let may_open =
            |entry: &Entry| entry.opening < options.opening && entry.sessions < options.max_sessions;
        let fits = |entry: &&mut Entry| has_lane(entry) && (has_spare(entry) || may_open(entry));
        let best = entries.iter_mut().filter(fits).min_by_key(|entry| (!has_spare(entry), entry.active));
        if let Some(entry) = best {
            let spare = entry.spares.iter().position(|(key, _)| Some(*key) == want.session);
            let spare = spare.map(|at| entry.spares.remove(at).1);
            entry.active += 1;
            entry.exclusive = !want.shares;
            if spare.is_none() {
                entry.opening += 1;
                entry.sessions += 1;
            }
            return Some(Seat::At(entry.id, spare));
        }
        // One that is coming up, or that opens other sessions just now, will do for those who can share it.
        let soon = |entry: &Entry| has_lane(entry) && entry.sessions < options.max_sessions;
        if want.shares && (starting.contains(&want.key) || entries.iter().any(soon)) {
            return None;
        }
        if entries.len() + starting.len() < options.max_processes {
            return Some(Seat::New);
        }
        // Somebody else's idle process makes room, and one of our own that is of no use any more.
        let useless = |entry: &Entry| entry.key != want.key || entry.sessions >= options.max_sessions;
        let idle = entries.iter().enumerate().filter(|(_, entry)| entry.active == 0 && useless(entry));
        if let Some((at, _)) = idle.min_by_key(|(_, entry)| entry.idle_since) {
            decisions.push(Decision::LetGo(entries.swap_remove(at).id));
            return Some(Seat::New);
        }
        // A process that others share might never be idle; so one takes no more of them. Where a process like ours is
        // there or coming, its next free place is ours.
        let ours = starting.contains(&want.key) || entries.iter().any(|entry| entry.key == want.key);
        if !ours && !entries.iter().any(|entry| entry.leaving) {
            let shared = entries.iter_mut().filter(|entry| !entry.exclusive);
            if let Some(entry) = shared.min_by_key(|entry| entry.active) {
                entry.leaving = true;
            }
        }
        None
    }
}

enum Seat {
    At(EntryId, Option<String>),
    New,
}
