//! Tests of the scheduler without processes.

use super::{EntryId, Scheduler, SchedulerAction, SlotRequest, Ticket};
use crate::pool::PoolOptions;
use std::time::{Duration, Instant};

/// A simulated pool in which processes start immediately.
struct Room {
    scheduler: Scheduler,
    now: Instant,
    /// The process of each assigned run.
    sat: Vec<(Ticket, EntryId)>,
    started: usize,
    gone: Vec<EntryId>,
}

impl Room {
    fn new(change: impl FnOnce(&mut PoolOptions)) -> Self {
        let mut options = PoolOptions::default();
        change(&mut options);
        let scheduler = Scheduler::new(options);
        Self { scheduler, now: Instant::now(), sat: Vec::new(), started: 0, gone: Vec::new() }
    }

    fn wait(&mut self, want: SlotRequest) -> Ticket {
        let ticket = self.scheduler.wait(want);
        self.act(want.shares);
        ticket
    }

    /// Carries out decisions until there are none.
    fn act(&mut self, shares: bool) {
        loop {
            let decisions = self.scheduler.decide(self.now);
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                match decision {
                    SchedulerAction::Sit { ticket, entry, .. } => self.sat.push((ticket, entry)),
                    SchedulerAction::Start { ticket, key } => {
                        self.started += 1;
                        let entry = self.scheduler.up(key, shares, self.now);
                        self.sat.push((ticket, entry));
                    }
                    SchedulerAction::LetGo(entry) => self.gone.push(entry),
                }
            }
        }
    }

    fn place_of(&self, ticket: Ticket) -> Option<EntryId> {
        self.sat.iter().find(|(info, _)| *info == ticket).map(|(_, entry)| *entry)
    }

    fn open(&mut self, ticket: Ticket) {
        self.scheduler.opened(self.place_of(ticket).unwrap());
        self.act(true);
    }

    fn leave(&mut self, ticket: Ticket) {
        let at = self.sat.iter().position(|(info, _)| *info == ticket).unwrap();
        let (_, entry) = self.sat.swap_remove(at);
        self.scheduler.leave(entry, false, self.now);
        self.act(false);
    }

    fn is_sitting(&self, tickets: &[Ticket]) -> Vec<bool> {
        tickets.iter().map(|ticket| self.place_of(*ticket).is_some()).collect()
    }
}

fn alone(key: u8) -> SlotRequest {
    SlotRequest { key: key.into(), session: Some(100.into()), shares: false }
}

fn beside(key: u8) -> SlotRequest {
    SlotRequest { shares: true, ..alone(key) }
}

#[test]
fn sharing_runs_use_one_process_and_open_two_sessions_at_once() {
    let mut room = Room::new(|options| options.max_processes = 3);
    let runs: Vec<Ticket> = (0..6).map(|_| room.wait(beside(1))).collect();
    assert_eq!(room.is_sitting(&runs), [true, true, false, false, false, false]);
    assert_eq!((room.started, room.scheduler.queued()), (1, 4), "the others wait, and start nothing");
    room.open(runs[0]);
    assert_eq!(room.is_sitting(&runs), [true, true, true, false, false, false]);
    room.open(runs[1]);
    // The four slots are taken, so one more process serves the remaining two runs.
    assert_eq!((room.started, room.scheduler.queued()), (2, 0));
    assert_eq!(room.place_of(runs[0]), room.place_of(runs[3]));
    assert_eq!(room.place_of(runs[4]), room.place_of(runs[5]));
}

#[test]
fn run_that_ends_before_its_session_opened_frees_its_slot() {
    let mut room = Room::new(|options| (options.max_processes, options.concurrent_openings) = (1, 1));
    let (first, second) = (room.wait(beside(1)), room.wait(beside(1)));
    assert_eq!(room.is_sitting(&[first, second]), [true, false]);
    let entry = room.place_of(first).unwrap();
    room.scheduler.leave(entry, true, room.now);
    room.act(true);
    assert_eq!(room.is_sitting(&[second]), [true]);
}

#[test]
fn non_sharing_runs_have_their_own_process_and_wait_in_order() {
    let mut room = Room::new(|options| options.max_processes = 2);
    let runs: Vec<Ticket> = (0..4).map(|_| room.wait(alone(1))).collect();
    assert_eq!(room.is_sitting(&runs), [true, true, false, false]);
    room.leave(runs[1]);
    assert_eq!(room.is_sitting(&runs), [true, false, true, false]);
    room.leave(runs[0]);
    assert_eq!(room.is_sitting(&runs), [false, false, true, true]);
    assert_eq!(room.started, 2);
}

#[test]
fn sharing_run_neither_joins_nor_overtakes_a_non_sharing_run() {
    let mut room = Room::new(|options| options.max_processes = 1);
    let first = room.wait(beside(1));
    room.open(first);
    let single = room.wait(alone(1));
    let late = room.wait(beside(1));
    assert_eq!(room.is_sitting(&[single, late]), [false, false], "there would be a lane for the late one");
    room.leave(first);
    assert_eq!(room.is_sitting(&[single, late]), [true, false]);
    room.leave(single);
    assert_eq!(room.is_sitting(&[late]), [true]);
}

#[test]
fn longest_idle_process_of_another_kind_is_evicted() {
    let mut room = Room::new(|options| options.max_processes = 2);
    let (first, second) = (room.wait(alone(1)), room.wait(alone(2)));
    let (older, newer) = (room.place_of(second).unwrap(), room.place_of(first).unwrap());
    room.leave(second);
    room.now += Duration::from_secs(1);
    room.leave(first);
    let third = room.wait(alone(3));
    assert_eq!((room.is_sitting(&[third]), room.gone.clone()), (vec![true], vec![older]));
    let fourth = room.wait(alone(1));
    assert_eq!(room.place_of(fourth), Some(newer), "the other one is still there");
}

#[test]
fn sharing_runs_do_not_starve_another_run() {
    let mut room = Room::new(|options| (options.max_processes, options.concurrent_sessions) = (1, 2));
    let mut sitting = room.wait(beside(1));
    room.open(sitting);
    let other = room.wait(alone(2));
    for _ in 0..3 {
        // Without the waiting run of another kind, the next run would start before the last one ends.
        let next = room.wait(beside(1));
        assert_eq!(room.is_sitting(&[next]), [false]);
        if room.place_of(sitting).is_some() {
            room.leave(sitting);
            assert_eq!(room.is_sitting(&[other]), [true]);
        }
        sitting = next;
    }
}

#[test]
fn servable_run_is_not_blocked_by_an_unservable_one() {
    let mut room = Room::new(|options| options.max_processes = 2);
    let first = room.wait(alone(1));
    let shared = room.wait(beside(2));
    room.open(shared);
    let (waits, goes) = (room.wait(alone(1)), room.wait(beside(2)));
    assert_eq!(room.is_sitting(&[first, waits, goes]), [true, false, true]);
}

#[test]
fn run_that_gives_up_is_removed_from_the_queue() {
    let mut room = Room::new(|options| options.max_processes = 1);
    let runs: Vec<Ticket> = (0..3).map(|_| room.wait(alone(1))).collect();
    assert!(
        room.scheduler.give_up(runs[1])
            && !room.scheduler.give_up(runs[1])
            && !room.scheduler.give_up(runs[0])
    );
    assert_eq!(room.scheduler.queued(), 1);
    room.leave(runs[0]);
    assert_eq!(room.is_sitting(&runs), [false, false, true]);
}

#[test]
fn process_is_replaced_after_its_session_limit_even_while_in_use() {
    let mut room = Room::new(|options| (options.max_processes, options.max_sessions) = (1, 3));
    let runs: Vec<Ticket> = (0..3).map(|_| room.wait(beside(1))).collect();
    room.open(runs[0]);
    room.open(runs[1]);
    room.open(runs[2]);
    let late = room.wait(beside(1));
    assert_eq!(room.is_sitting(&[late]), [false]);
    let worn = room.place_of(runs[0]).unwrap();
    runs.iter().for_each(|run| room.leave(*run));
    assert_eq!((room.gone.clone(), room.started, room.scheduler.recycled), (vec![worn], 2, 1));
    assert_eq!(room.is_sitting(&[late]), [true]);
}

#[test]
fn age_memory_and_idle_time_end_a_process() {
    let mut room = Room::new(|options| {
        (options.max_age, options.idle_timeout) = (Duration::from_secs(100), Duration::from_secs(10));
        options.max_memory = 1000;
    });
    let run = room.wait(alone(1));
    room.now += Duration::from_secs(101);
    room.act(false);
    assert!(room.gone.is_empty(), "somebody is on it");
    room.leave(run);
    assert_eq!((room.gone.len(), room.scheduler.recycled), (1, 1));

    let run = room.wait(alone(1));
    let entry = room.place_of(run).unwrap();
    room.scheduler.weighs(entry, 1000);
    room.leave(run);
    assert_eq!(room.gone.len(), 1);
    let run = room.wait(alone(1));
    room.scheduler.weighs(entry, 1001);
    room.scheduler.weighs(entry, 1002);
    room.leave(run);
    assert_eq!((room.gone.len(), room.scheduler.recycled), (2, 2));

    let run = room.wait(alone(1));
    room.now += Duration::from_secs(20);
    room.act(false);
    room.leave(run);
    room.now += Duration::from_secs(10);
    room.act(false);
    assert_eq!(room.gone.len(), 2, "it rests, but not long enough");
    room.now += Duration::from_secs(1);
    room.act(false);
    assert_eq!((room.gone.len(), room.scheduler.recycled), (3, 2), "to be let go after a rest is no wear");
}

#[test]
fn lost_process_keeps_no_run_waiting() {
    let mut room = Room::new(|options| options.max_processes = 1);
    let first = room.wait(alone(1));
    room.leave(first);
    let entry = room.scheduler.entries()[0].id;
    room.scheduler.retire(entry);
    let second = room.wait(alone(1));
    assert_eq!((room.gone.clone(), room.started), (vec![entry], 2));
    // A process that dies during a run is not reused, and its slot is free when the run has ended.
    let under = room.place_of(second).unwrap();
    room.scheduler.retire(under);
    let third = room.wait(alone(1));
    assert_eq!(room.is_sitting(&[third]), [false]);
    room.leave(second);
    assert_eq!(room.is_sitting(&[third]), [true]);
}

#[test]
fn failed_start_lets_the_next_run_try() {
    let mut scheduler = Scheduler::new(PoolOptions { max_processes: 1, ..PoolOptions::default() });
    let now = Instant::now();
    let (first, second) = (scheduler.wait(beside(1)), scheduler.wait(beside(1)));
    let start = |ticket| vec![SchedulerAction::Start { ticket, key: 1.into() }];
    assert_eq!(scheduler.decide(now), start(first));
    assert_eq!(scheduler.decide(now), []);
    scheduler.failed(1.into());
    assert_eq!(scheduler.decide(now), start(second));
}

#[test]
fn prewarmed_sessions_go_to_matching_runs_without_opening() {
    let mut room = Room::new(|options| {
        (options.max_processes, options.concurrent_openings, options.max_sessions) = (1, 1, 4)
    });
    let opener = room.wait(SlotRequest { session: None, ..beside(1) });
    let entry = room.place_of(opener).unwrap();
    for name in ["a", "b"] {
        room.scheduler.keep_spare(entry, 100.into(), name.into());
    }
    room.open(opener);
    room.leave(opener);
    assert_eq!(room.scheduler.spares(beside(1)), 2);
    let other = SlotRequest { session: Some(7.into()), ..beside(1) };
    let waits: Vec<Ticket> =
        [other, beside(1), beside(1), beside(1)].map(|want| room.scheduler.wait(want)).into();
    let sit = |ticket: usize, spare: Option<&str>| SchedulerAction::Sit {
        ticket: waits[ticket],
        entry,
        spare: spare.map(str::to_owned),
    };
    // The first run opens its own session, two take the available ones, and the last would have to open another at the
    // same time.
    assert_eq!(room.scheduler.decide(room.now), [sit(0, None), sit(1, Some("a")), sit(2, Some("b"))]);
    assert_eq!((room.scheduler.spares(beside(1)), room.scheduler.queued()), (0, 1));
    assert_eq!(room.scheduler.entries()[0].sessions, 2, "a session is counted once");
}
