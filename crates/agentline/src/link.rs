//! What ties a run's handle to the loop that drives it: events one way, a stop the other way.

use agentline_core::{Outcome, Record};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};
use tokio::sync::Notify;

/// Wakes a loop that drives a process: a run wants to be stopped, or has room again.
pub(crate) type Bell = Arc<Notify>;

/// How many batches of events may wait for a slow consumer before the agent is not read any further.
const BATCHES: usize = 4;

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Vec<Record>>,
    outcome: Option<Box<Outcome>>,
    /// Nothing more will come.
    closed: bool,
    /// The signal by which the run is to be stopped, until the loop has taken note.
    stop: Option<i32>,
    /// Nobody wants the run any more.
    dropped: bool,
    /// Nobody reads the events any more: they are dropped, and whoever waits is woken by the outcome alone.
    only_outcome: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    bell: Bell,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Driven {
    shared: Arc<Shared>,
}

/// The handle's end. Dropping it tells the loop that nobody wants the run any more.
#[derive(Debug)]
pub(crate) struct Held {
    shared: Arc<Shared>,
}

/// A way to stop the run that does not keep it.
#[derive(Clone, Debug)]
pub(crate) struct Stopper {
    shared: Weak<Shared>,
}

/// What came over the link.
pub(crate) enum Came {
    Batch(Vec<Record>),
    Over(Option<Box<Outcome>>),
}

/// What a run's handle is stopped by when it is dropped.
const DROPPED: i32 = 15;

pub(crate) fn link(bell: Bell) -> (Driven, Held) {
    let shared = Arc::new(Shared { state: Mutex::new(State::default()), bell });
    (Driven { shared: Arc::clone(&shared) }, Held { shared })
}

impl Driven {
    /// Hands events over; never waits.
    pub(crate) fn send(&self, batch: Vec<Record>) {
        let mut state = self.shared.lock();
        if !state.dropped && !state.only_outcome {
            state.batches.push_back(batch);
            wake(state);
        }
    }

    /// Whether nobody reads the events any more.
    pub(crate) fn wants_outcome_only(&self) -> bool {
        self.shared.lock().only_outcome
    }

    /// Whether the consumer is behind.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.lock().batches.len() >= BATCHES
    }

    /// The signal by which the run is to be stopped, told once; the drop of the handle is one too.
    pub(crate) fn stop(&self) -> Option<i32> {
        self.shared.lock().stop.take()
    }

    /// Waits until the run is to be stopped, for as long as no loop drives it.
    pub(crate) async fn stopped(&self, bell: &Bell) -> i32 {
        loop {
            if let Some(signal) = self.stop() {
                return signal;
            }
            bell.notified().await;
        }
    }

    /// The last word.
    pub(crate) fn finish(self, outcome: Outcome) {
        self.shared.lock().outcome = Some(Box::new(outcome));
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        wake(state);
    }
}

impl Held {
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Came> {
        let mut state = self.shared.lock();
        if let Some(batch) = state.batches.pop_front() {
            let had_been_full = state.batches.len() + 1 >= BATCHES;
            drop(state);
            if had_been_full {
                self.shared.bell.notify_one();
            }
            return Poll::Ready(Came::Batch(batch));
        }
        if state.closed {
            return Poll::Ready(Came::Over(state.outcome.take()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Passes over all events, those that wait included: to be woken for each would cost more than to make them.
    pub(crate) fn want_outcome_only(&self) {
        let mut state = self.shared.lock();
        state.only_outcome = true;
        let unread = std::mem::take(&mut state.batches);
        drop(state);
        if unread.len() >= BATCHES {
            self.shared.bell.notify_one();
        }
    }

    pub(crate) fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.dropped = true;
        state.batches.clear();
        state.stop.get_or_insert(DROPPED);
        drop(state);
        self.shared.bell.notify_one();
    }
}

impl Stopper {
    pub(crate) fn stop(&self, signal: i32) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().stop.get_or_insert(signal);
            shared.bell.notify_one();
        }
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Event, Origin, Who};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_wants_the_outcome_only_is_woken_by_it_alone() {
        let batch = || vec![Record::new(1, 0, Origin::Stdout, None, Event::Text { text: "a".into() })];
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let (driven, held) = link(Bell::default());
        assert!(held.poll(&mut cx).is_pending());
        driven.send(batch());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        for _ in 1..BATCHES {
            driven.send(batch());
        }
        assert!(driven.is_full() && !driven.wants_outcome_only());
        held.want_outcome_only();
        assert!(!driven.is_full() && driven.wants_outcome_only());
        assert!(held.poll(&mut cx).is_pending());
        driven.send(batch());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let failure = agentline_core::Failure::new(agentline_core::Kind::Crashed, "over");
        driven.finish(Outcome::not_begun(&Who::default(), agentline_core::Verdict::Failed, failure));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(matches!(held.poll(&mut cx), Poll::Ready(Came::Over(Some(_)))));
    }
}
