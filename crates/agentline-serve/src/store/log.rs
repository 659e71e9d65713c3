//! The latest committed events of one run, shared by all of its clients.

use crate::messages::Resync;
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The committed events of a run: the latest ones in memory, the others by their numbers.
#[derive(Debug)]
pub(crate) struct RunLog {
    ring: Mutex<Ring>,
    /// The number of the last event, and whether it is the outcome.
    head: watch::Sender<Head>,
    limit: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) last: u64,
    pub(crate) ended: bool,
}

#[derive(Debug, Default)]
struct Ring {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the first event that is still stored; 0 if there is none.
    first: u64,
    /// The number of the last event in `frames`.
    last: u64,
}

/// What a client gets next.
#[derive(Debug)]
pub(crate) enum Position {
    /// The next event.
    Frame(u64, Bytes),
    /// The next event is only in the database.
    Stored,
    /// The next event is no longer stored.
    Lost(Resync),
    /// There is nothing yet.
    Wait,
    /// The client has everything, and nothing follows.
    End,
}

impl RunLog {
    pub(crate) fn new(first: u64, last: u64, ended: bool, limit: usize) -> Self {
        let ring = Ring { first, last, ..Ring::default() };
        Self { ring: Mutex::new(ring), head: watch::Sender::new(Head { last, ended }), limit }
    }

    /// Adds committed events.
    pub(crate) fn publish(&self, frames: impl IntoIterator<Item = Bytes>, ended: bool) {
        let mut ring = self.ring();
        for frame in frames {
            ring.last += 1;
            if ring.first == 0 {
                ring.first = ring.last;
            }
            ring.bytes += frame.len();
            ring.frames.push_back(frame);
            while ring.bytes > self.limit && ring.frames.len() > 1 {
                ring.bytes -= ring.frames.pop_front().map_or(0, |frame| frame.len());
            }
        }
        let last = ring.last;
        drop(ring);
        self.head.send_modify(|head| *head = Head { last, ended: head.ended || ended });
    }

    /// Records that the events before this one are no longer stored.
    pub(crate) fn pruned(&self, first: u64) {
        let mut ring = self.ring();
        ring.first = ring.first.max(first);
    }

    /// Records that no event is stored any more.
    pub(crate) fn all_pruned(&self) {
        self.pruned(self.last() + 1);
    }

    /// Returns what a client gets after the event with this number.
    pub(crate) fn next(&self, after: u64) -> Position {
        let Head { last, ended } = *self.head.borrow();
        let ring = self.ring();
        if after > last || (after + 1 < ring.first && last > 0) {
            return Position::Lost(Resync { requested: after, first: ring.first.max(1), last });
        }
        if after == last {
            return if ended { Position::End } else { Position::Wait };
        }
        let begin = ring.last + 1 - ring.frames.len() as u64;
        let index = (after + 1).checked_sub(begin).and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| ring.frames.get(index)) {
            Some(frame) => Position::Frame(after + 1, frame.clone()),
            None => Position::Stored,
        }
    }

    /// Returns the number of the last event and whether the run has ended, and notes changes.
    pub(crate) fn head(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// Returns the number of the first stored event.
    pub(crate) fn first(&self) -> u64 {
        self.ring().first
    }

    /// Returns the number of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.head.borrow().last
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(frames: usize, limit: usize) -> RunLog {
        let log = RunLog::new(0, 0, false, limit);
        log.publish((0..frames).map(|_| Bytes::from_static(b"0123456789")), false);
        log
    }

    #[test]
    fn client_reads_each_position_from_memory_or_the_database() {
        let log = log(5, 20);
        assert!(matches!(log.next(0), Position::Stored));
        assert!(matches!(log.next(2), Position::Stored));
        assert!(matches!(log.next(3), Position::Frame(4, _)));
        assert!(matches!(log.next(5), Position::Wait));
        log.publish([], true);
        assert!(matches!(log.next(5), Position::End));
    }

    #[test]
    fn lost_positions_are_reported() {
        let log = log(5, 20);
        log.pruned(3);
        let Position::Lost(resync) = log.next(1) else { unreachable!("event 2 is gone") };
        assert_eq!(resync, Resync { requested: 1, first: 3, last: 5 });
        assert!(matches!(log.next(2), Position::Stored));
        assert!(matches!(log.next(9), Position::Lost(_)), "a number that was never sent");
    }

    #[test]
    fn client_of_a_removed_run_gets_one_report_and_the_end() {
        let log = log(5, 20);
        log.publish([], true);
        log.all_pruned();
        let Position::Lost(resync) = log.next(1) else { unreachable!("all events are gone") };
        assert_eq!(resync, Resync { requested: 1, first: 6, last: 5 });
        assert!(matches!(log.next(resync.first - 1), Position::End));
    }
}
