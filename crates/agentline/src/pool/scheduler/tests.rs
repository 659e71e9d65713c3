//! Tests of the scheduler without processes.

use super::{EntryId, Scheduler, SchedulerAction, SlotRequest, Ticket};
use crate::pool::PoolOptions;
use std::time::{Duration, Instant};

/// A simulated pool in which processes start immediately.
struct TestPool {
    scheduler: Scheduler,
    now: Instant,
    /// The process of each assigned run.
    placed: Vec<(Ticket, EntryId)>,
    started: usize,
    stopped: Vec<EntryId>,
}

impl TestPool {
    fn new(change: impl FnOnce(&mut PoolOptions)) -> Self {
        let mut options = PoolOptions::default();
        change(&mut options);
        let scheduler = Scheduler::new(options);
        Self { scheduler, now: Instant::now(), placed: Vec::new(), started: 0, stopped: Vec::new() }
    }

    fn wait(&mut self, slot_request: SlotRequest) -> Ticket {
        let ticket = self.scheduler.wait(slot_request, self.now);
        self.act_for(slot_request);
        ticket
    }

    fn act(&mut self, shares: bool) {
        self.act_for(if shares { sharing(0) } else { alone(0) });
    }

    /// Carries out decisions until there are none.
    fn act_for(&mut self, slot_request: SlotRequest) {
        loop {
            let decisions = self.scheduler.decide(self.now);
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                match decision {
                    SchedulerAction::Assign { ticket, entry, .. } => self.placed.push((ticket, entry)),
                    SchedulerAction::Start { ticket, key } => {
                        self.started += 1;
                        let entry =
                            self.scheduler.process_started(SlotRequest { key, ..slot_request }, self.now);
                        self.placed.push((ticket, entry));
                    }
                    SchedulerAction::StopProcess(entry) => self.stopped.push(entry),
                }
            }
        }
    }

    fn entry_of(&self, ticket: Ticket) -> Option<EntryId> {
        self.placed.iter().find(|(info, _)| *info == ticket).map(|(_, entry)| *entry)
    }

    fn open(&mut self, ticket: Ticket) {
        self.scheduler.opened(self.entry_of(ticket).unwrap(), self.now);
        self.act(true);
    }

    fn leave(&mut self, ticket: Ticket) {
        let at = self.placed.iter().position(|(info, _)| *info == ticket).unwrap();
        let (_, entry) = self.placed.swap_remove(at);
        self.scheduler.leave(entry, false, self.now);
        self.act(false);
    }

    fn have_slots(&self, tickets: &[Ticket]) -> Vec<bool> {
        tickets.iter().map(|ticket| self.entry_of(*ticket).is_some()).collect()
    }
}

fn alone(key: u8) -> SlotRequest {
    SlotRequest {
        key: key.into(),
        session: Some(100.into()),
        shares: false,
        max_sessions: None,
        is_opening: false,
    }
}

fn sharing(key: u8) -> SlotRequest {
    SlotRequest { shares: true, ..alone(key) }
}

#[test]
fn sharing_runs_use_one_process_and_open_two_sessions_at_once() {
    let mut pool = TestPool::new(|options| options.max_processes = 3);
    let runs: Vec<Ticket> = (0..6).map(|_| pool.wait(sharing(1))).collect();
    assert_eq!(pool.have_slots(&runs), [true, true, false, false, false, false]);
    assert_eq!((pool.started, pool.scheduler.queued()), (1, 4), "the other runs wait and start nothing");
    pool.open(runs[0]);
    assert_eq!(pool.have_slots(&runs), [true, true, true, false, false, false]);
    pool.open(runs[1]);
    // The four slots are taken, so one more process serves the remaining two runs.
    assert_eq!((pool.started, pool.scheduler.queued()), (2, 0));
    assert_eq!(pool.entry_of(runs[0]), pool.entry_of(runs[3]));
    assert_eq!(pool.entry_of(runs[4]), pool.entry_of(runs[5]));
}

#[test]
fn run_that_ends_before_its_session_opened_frees_its_slot() {
    let mut pool = TestPool::new(|options| (options.max_processes, options.concurrent_openings) = (1, 1));
    let (first, second) = (pool.wait(sharing(1)), pool.wait(sharing(1)));
    assert_eq!(pool.have_slots(&[first, second]), [true, false]);
    let entry = pool.entry_of(first).unwrap();
    pool.scheduler.leave(entry, true, pool.now);
    pool.act(true);
    assert_eq!(pool.have_slots(&[second]), [true]);
}

#[test]
fn non_sharing_runs_have_their_own_process_and_wait_in_order() {
    let mut pool = TestPool::new(|options| options.max_processes = 2);
    let runs: Vec<Ticket> = (0..4).map(|_| pool.wait(alone(1))).collect();
    assert_eq!(pool.have_slots(&runs), [true, true, false, false]);
    pool.leave(runs[1]);
    assert_eq!(pool.have_slots(&runs), [true, false, true, false]);
    pool.leave(runs[0]);
    assert_eq!(pool.have_slots(&runs), [false, false, true, true]);
    assert_eq!(pool.started, 2);
}

#[test]
fn sharing_run_neither_joins_nor_overtakes_a_non_sharing_run() {
    let mut pool = TestPool::new(|options| options.max_processes = 1);
    let first = pool.wait(sharing(1));
    pool.open(first);
    let single = pool.wait(alone(1));
    let late = pool.wait(sharing(1));
    assert_eq!(
        pool.have_slots(&[single, late]),
        [false, false],
        "the later run must not take the free session"
    );
    pool.leave(first);
    assert_eq!(pool.have_slots(&[single, late]), [true, false]);
    pool.leave(single);
    assert_eq!(pool.have_slots(&[late]), [true]);
}

#[test]
fn longest_idle_process_of_another_kind_is_evicted() {
    let mut pool = TestPool::new(|options| options.max_processes = 2);
    let (first, second) = (pool.wait(alone(1)), pool.wait(alone(2)));
    let (older, newer) = (pool.entry_of(second).unwrap(), pool.entry_of(first).unwrap());
    pool.leave(second);
    pool.now += Duration::from_secs(1);
    pool.leave(first);
    let third = pool.wait(alone(3));
    assert_eq!((pool.have_slots(&[third]), pool.stopped.clone()), (vec![true], vec![older]));
    let fourth = pool.wait(alone(1));
    assert_eq!(pool.entry_of(fourth), Some(newer), "the other process still exists");
}

#[test]
fn sharing_runs_do_not_starve_another_run() {
    let mut pool = TestPool::new(|options| (options.max_processes, options.concurrent_sessions) = (1, 2));
    let mut active = pool.wait(sharing(1));
    pool.open(active);
    let other = pool.wait(alone(2));
    for _ in 0..3 {
        // Without the waiting run of another kind, the next run would start before the last one ends.
        let next = pool.wait(sharing(1));
        assert_eq!(pool.have_slots(&[next]), [false]);
        if pool.entry_of(active).is_some() {
            pool.leave(active);
            assert_eq!(pool.have_slots(&[other]), [true]);
        }
        active = next;
    }
}

#[test]
fn servable_run_is_not_blocked_by_an_unservable_one() {
    let mut pool = TestPool::new(|options| options.max_processes = 2);
    let first = pool.wait(alone(1));
    let shared = pool.wait(sharing(2));
    pool.open(shared);
    let (waits, goes) = (pool.wait(alone(1)), pool.wait(sharing(2)));
    assert_eq!(pool.have_slots(&[first, waits, goes]), [true, false, true]);
}

#[test]
fn run_that_gives_up_is_removed_from_the_queue() {
    let mut pool = TestPool::new(|options| options.max_processes = 1);
    let runs: Vec<Ticket> = (0..3).map(|_| pool.wait(alone(1))).collect();
    assert!(
        pool.scheduler.remove_waiter(runs[1])
            && !pool.scheduler.remove_waiter(runs[1])
            && !pool.scheduler.remove_waiter(runs[0])
    );
    assert_eq!(pool.scheduler.queued(), 1);
    pool.leave(runs[0]);
    assert_eq!(pool.have_slots(&runs), [false, false, true]);
}

#[test]
fn process_is_replaced_after_its_session_limit_even_while_in_use() {
    let mut pool = TestPool::new(|options| (options.max_processes, options.max_sessions) = (1, 3));
    let runs: Vec<Ticket> = (0..3).map(|_| pool.wait(sharing(1))).collect();
    pool.open(runs[0]);
    pool.open(runs[1]);
    pool.open(runs[2]);
    let late = pool.wait(sharing(1));
    assert_eq!(pool.have_slots(&[late]), [false]);
    let worn = pool.entry_of(runs[0]).unwrap();
    runs.iter().for_each(|run| pool.leave(*run));
    assert_eq!((pool.stopped.clone(), pool.started, pool.scheduler.recycled), (vec![worn], 2, 1));
    assert_eq!(pool.have_slots(&[late]), [true]);
}

#[test]
fn age_memory_and_idle_time_end_a_process() {
    let mut pool = TestPool::new(|options| {
        (options.max_age, options.idle_timeout) = (Duration::from_secs(100), Duration::from_secs(10));
        options.max_memory = 1000;
    });
    let run = pool.wait(alone(1));
    pool.now += Duration::from_secs(101);
    pool.act(false);
    assert!(pool.stopped.is_empty(), "a run still uses the process");
    pool.leave(run);
    assert_eq!((pool.stopped.len(), pool.scheduler.recycled), (1, 1));

    let run = pool.wait(alone(1));
    let entry = pool.entry_of(run).unwrap();
    pool.scheduler.record_memory(entry, 1000);
    pool.leave(run);
    assert_eq!(pool.stopped.len(), 1);
    let run = pool.wait(alone(1));
    pool.scheduler.record_memory(entry, 1001);
    pool.scheduler.record_memory(entry, 1002);
    pool.leave(run);
    assert_eq!((pool.stopped.len(), pool.scheduler.recycled), (2, 2));

    let run = pool.wait(alone(1));
    pool.now += Duration::from_secs(20);
    pool.act(false);
    pool.leave(run);
    pool.now += Duration::from_secs(10);
    pool.act(false);
    assert_eq!(pool.stopped.len(), 2, "the process has not been idle for long enough");
    pool.now += Duration::from_secs(1);
    pool.act(false);
    assert_eq!(
        (pool.stopped.len(), pool.scheduler.recycled),
        (3, 2),
        "an idle exit does not count as recycling"
    );
}

#[test]
fn lost_process_keeps_no_run_waiting() {
    let mut pool = TestPool::new(|options| options.max_processes = 1);
    let first = pool.wait(alone(1));
    pool.leave(first);
    let entry = pool.scheduler.entries()[0].id;
    pool.scheduler.retire(entry);
    let second = pool.wait(alone(1));
    assert_eq!((pool.stopped.clone(), pool.started), (vec![entry], 2));
    // A process that dies during a run is not reused, and its slot is free when the run has ended.
    let under = pool.entry_of(second).unwrap();
    pool.scheduler.retire(under);
    let third = pool.wait(alone(1));
    assert_eq!(pool.have_slots(&[third]), [false]);
    pool.leave(second);
    assert_eq!(pool.have_slots(&[third]), [true]);
}

#[test]
fn run_waits_for_a_busy_process_as_long_as_a_start_takes_if_starts_are_limited() {
    let mut pool = TestPool::new(|options| options.concurrent_starts = Some(2));
    let second = Duration::from_secs(1);
    let runs: Vec<Ticket> = (0..4).map(|_| pool.wait(alone(1))).collect();
    assert_eq!(pool.started, 2, "two processes start at a time");
    pool.now += 3 * second;
    pool.open(runs[0]);
    pool.open(runs[1]);
    // A start took three seconds, so the others wait that long.
    pool.now += 2 * second;
    pool.act(false);
    assert_eq!((pool.started, pool.have_slots(&runs)), (2, vec![true, true, false, false]));
    pool.leave(runs[0]);
    assert_eq!((pool.started, pool.have_slots(&runs[2..])), (2, vec![true, false]));
    pool.now += second;
    pool.act(false);
    assert_eq!((pool.started, pool.have_slots(&runs[3..])), (3, vec![true]));
    // A run that came later has not waited yet. One that needs another kind of process does not wait, unless two start.
    let late = pool.wait(alone(1));
    let other = pool.wait(alone(2));
    assert_eq!((pool.started, pool.have_slots(&[late, other])), (4, vec![false, true]));
    // A process that never opened a session does not block starts for ever.
    pool.leave(other);
    pool.now += 3 * second;
    pool.act(false);
    assert_eq!((pool.started, pool.have_slots(&[late])), (4, vec![false]), "four processes are allowed");
}

#[test]
fn failed_start_lets_the_next_run_try() {
    let mut scheduler = Scheduler::new(PoolOptions { max_processes: 1, ..PoolOptions::default() });
    let now = Instant::now();
    let (first, second) = (scheduler.wait(sharing(1), now), scheduler.wait(sharing(1), now));
    let start = |ticket| vec![SchedulerAction::Start { ticket, key: 1.into() }];
    assert_eq!(scheduler.decide(now), start(first));
    assert_eq!(scheduler.decide(now), []);
    scheduler.end_start(1.into());
    assert_eq!(scheduler.decide(now), start(second));
}

#[test]
fn prewarmed_sessions_go_to_matching_runs_without_opening() {
    let mut pool = TestPool::new(|options| {
        (options.max_processes, options.concurrent_openings, options.max_sessions) = (1, 1, 4)
    });
    let opener = pool.wait(SlotRequest { session: None, ..sharing(1) });
    let entry = pool.entry_of(opener).unwrap();
    for name in ["a", "b"] {
        pool.scheduler.keep_session(entry, 100.into(), name.into());
    }
    pool.open(opener);
    pool.leave(opener);
    assert_eq!(pool.scheduler.spare_sessions(sharing(1)), 2);
    let other = SlotRequest { session: Some(7.into()), ..sharing(1) };
    let waits: Vec<Ticket> = [other, sharing(1), sharing(1), sharing(1)]
        .map(|slot_request| pool.scheduler.wait(slot_request, pool.now))
        .into();
    let sit = |ticket: usize, open_session: Option<&str>| SchedulerAction::Assign {
        ticket: waits[ticket],
        entry,
        open_session: open_session.map(str::to_owned),
    };
    // The first run opens its own session, two take the available ones, and the last would have to open another at the
    // same time.
    assert_eq!(pool.scheduler.decide(pool.now), [sit(0, None), sit(1, Some("a")), sit(2, Some("b"))]);
    assert_eq!((pool.scheduler.spare_sessions(sharing(1)), pool.scheduler.queued()), (0, 1));
    assert_eq!(pool.scheduler.entries()[0].sessions, 2, "a session is counted once");
}

#[test]
fn process_with_one_session_is_prepared_for_one_run_and_then_stopped() {
    let mut pool = TestPool::new(|options| options.max_processes = 2);
    let single = SlotRequest { max_sessions: Some(1), ..alone(1) };
    let opening = SlotRequest { session: None, is_opening: true, ..single };
    let first = pool.wait(single);
    let used = pool.entry_of(first).unwrap();
    pool.open(first);
    assert!(pool.scheduler.lacks_spare(single), "the process of the first run cannot serve another one");
    let spare = pool.wait(opening);
    let prepared = pool.entry_of(spare).unwrap();
    assert_ne!(used, prepared);
    pool.scheduler.keep_unused(prepared);
    pool.open(spare);
    pool.leave(spare);
    assert_eq!((pool.scheduler.spare_sessions(single), pool.scheduler.lacks_spare(single)), (1, false));
    assert!(pool.stopped.is_empty(), "the prepared process is kept");
    pool.leave(first);
    assert_eq!(pool.stopped, [used]);
    let again = pool.wait(opening);
    assert_ne!(pool.entry_of(again), Some(prepared), "a prepared process is not prepared again");
    // A run with other servers, which no open session has, can use it too.
    let second = pool.wait(SlotRequest { session: None, ..single });
    assert_eq!(pool.entry_of(second), Some(prepared));
    pool.open(second);
    pool.leave(second);
    assert_eq!(pool.stopped, [used, prepared]);
}
