//! What ties a run's handle to the loop that drives it: events one way, a stop the other way.

use agentline_core::{Outcome, Record, Verdict};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
    time::Instant,
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
    /// The signal by which it was first asked to stop, and when.
    asked_to_stop: Option<(i32, Instant)>,
    /// How it ended.
    verdict: Option<Verdict>,
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
    /// Wakes those who wait for the end of the run alone.
    over: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run; only the first end counts.
    fn end_with(&self, outcome: Option<Outcome>) {
        let mut state = self.lock();
        if !state.closed {
            state.closed = true;
            state.verdict = outcome.as_ref().map(|outcome| outcome.verdict);
            state.outcome = outcome.map(Box::new);
        }
        wake(state);
        self.over.notify_waiters();
    }

    fn ask_to_stop(&self, signal: i32) {
        let mut state = self.lock();
        state.stop.get_or_insert(signal);
        state.asked_to_stop.get_or_insert_with(|| (signal, Instant::now()));
        drop(state);
        self.bell.notify_one();
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
    let shared = Arc::new(Shared { state: Mutex::new(State::default()), bell, over: Notify::new() });
    (Driven { shared: Arc::clone(&shared) }, Held { shared })
}

impl Driven {
    /// Hands events over; never waits.
    pub(crate) fn send(&self, batch: Vec<Record>) {
        let mut state = self.shared.lock();
        if !state.dropped && !state.only_outcome && !state.closed {
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
        self.shared.end_with(Some(outcome));
    }

    /// Ends the run from outside its loop, when the loop does not.
    pub(crate) fn finisher(&self) -> Finisher {
        Finisher { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.shared.end_with(None);
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
        drop(state);
        self.shared.ask_to_stop(DROPPED);
    }
}

impl Stopper {
    pub(crate) fn stop(&self, signal: i32) {
        if let Some(shared) = self.shared.upgrade() {
            shared.ask_to_stop(signal);
        }
    }

    /// Waits until the run is over, whether or not its events are read. `None` where its end is not known here.
    pub(crate) async fn over(&self) -> Option<Verdict> {
        loop {
            let shared = self.shared.upgrade()?;
            let mut over = std::pin::pin!(shared.over.notified());
            over.as_mut().enable();
            {
                let state = shared.lock();
                if state.closed {
                    return state.verdict;
                }
            }
            over.await;
        }
    }
}

/// Ends a run from outside its loop.
#[derive(Clone, Debug)]
pub(crate) struct Finisher {
    shared: Weak<Shared>,
}

/// How a run stands, for those who watch its loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunState {
    /// The signal by which it was first asked to stop, and when.
    pub(crate) asked_to_stop: Option<(i32, Instant)>,
    /// Its loop has taken note of that.
    pub(crate) is_stopping: bool,
}

impl Finisher {
    /// How the run stands; `None` when it is over.
    pub(crate) fn state(&self) -> Option<RunState> {
        let shared = self.shared.upgrade()?;
        let state = shared.lock();
        let is_stopping = state.asked_to_stop.is_some() && state.stop.is_none();
        (!state.closed).then_some(RunState { asked_to_stop: state.asked_to_stop, is_stopping })
    }

    /// Ends the run with this outcome, unless it has ended.
    pub(crate) fn finish(&self, outcome: Outcome) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_with(Some(outcome));
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
