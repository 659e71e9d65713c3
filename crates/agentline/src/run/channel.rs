//! The channel between the handle of a run and the event loop: events in one direction, cancellation in the other.

use agentline_core::{Outcome, Record, Signal, Verdict};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
    time::Instant,
};
use tokio::sync::Notify;

/// Wakes an event loop when a run is cancelled or its consumer has room again.
pub(crate) type Wakeup = Arc<Notify>;

/// How many batches of events may be queued for a slow consumer before the agent's output is no longer read.
const BATCHES: usize = 4;

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Vec<Record>>,
    outcome: Option<Box<Outcome>>,
    /// Whether the run has ended.
    closed: bool,
    /// The signal of a cancellation, until the loop has taken it.
    stop: Option<Signal>,
    /// The signal and time of the first cancellation.
    asked_to_stop: Option<(Signal, Instant)>,
    /// The verdict of the run, once it has ended.
    verdict: Option<Verdict>,
    /// Whether the handle was dropped.
    dropped: bool,
    /// Whether events are discarded, so that only the outcome wakes the consumer.
    only_outcome: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wakeup: Wakeup,
    /// Wakes tasks that wait only for the end of the run.
    over: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run. Only the first call has an effect on the result.
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

    fn ask_to_stop(&self, signal: Signal) {
        let mut state = self.lock();
        state.stop.get_or_insert(signal);
        state.asked_to_stop.get_or_insert_with(|| (signal, Instant::now()));
        drop(state);
        self.wakeup.notify_one();
    }
}

/// The end of the channel that the event loop holds.
#[derive(Debug)]
pub(crate) struct RunSender {
    shared: Arc<Shared>,
}

/// The end of the channel that the handle holds. Dropping it cancels the run.
#[derive(Debug)]
pub(crate) struct RunReceiver {
    shared: Arc<Shared>,
}

/// Cancels a run without keeping it alive.
#[derive(Clone, Debug)]
pub(crate) struct Stopper {
    shared: Weak<Shared>,
}

/// An item received over the channel.
pub(crate) enum RunItem {
    Batch(Vec<Record>),
    Over(Option<Box<Outcome>>),
}

/// A run whose events are forwarded to another channel: where they come from, and what happens to them on the way.
pub(crate) trait ForwardedRun {
    /// Waits for the next item. Must be cancel safe.
    async fn next(&mut self) -> RunItem;

    /// Passes on a cancellation.
    async fn cancel(&mut self, signal: Signal);

    /// Returns the events to send for this batch, which may include events that were held back.
    fn pass(&mut self, batch: Vec<Record>) -> Vec<Record>;
}

/// Forwards the events of a run until its end, while the consumer has room for them, and cancellations in the other
/// direction. Returns the outcome of the run, or `None` if its task was lost.
pub(crate) async fn forward(run: &mut impl ForwardedRun, to: &RunSender) -> Option<Box<Outcome>> {
    loop {
        let item = tokio::select! {
            item = run.next(), if !to.is_full() => item,
            signal = to.cancelled_or_ready() => {
                if let Some(signal) = signal {
                    run.cancel(signal).await;
                }
                continue;
            }
        };
        match item {
            RunItem::Batch(batch) => {
                let batch = run.pass(batch);
                if !batch.is_empty() {
                    to.send(batch);
                }
            }
            RunItem::Over(outcome) => return outcome,
        }
    }
}

/// The signal of the cancellation when a handle is dropped.
const DROPPED: Signal = Signal::Terminate;

pub(crate) fn channel(wakeup: Wakeup) -> (RunSender, RunReceiver) {
    let shared = Arc::new(Shared { state: Mutex::new(State::default()), wakeup, over: Notify::new() });
    (RunSender { shared: Arc::clone(&shared) }, RunReceiver { shared })
}

impl RunSender {
    /// Queues events. Never blocks.
    pub(crate) fn send(&self, batch: Vec<Record>) {
        let mut state = self.shared.lock();
        if !state.dropped && !state.only_outcome && !state.closed {
            state.batches.push_back(batch);
            wake(state);
        }
    }

    /// Returns whether the consumer discards events.
    pub(crate) fn wants_outcome_only(&self) -> bool {
        self.shared.lock().only_outcome
    }

    /// Returns whether the consumer is behind.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.lock().batches.len() >= BATCHES
    }

    /// Returns the signal of a cancellation, once. Dropping the handle also cancels.
    pub(crate) fn stop(&self) -> Option<Signal> {
        self.shared.lock().stop.take()
    }

    /// Waits for a cancellation while no event loop drives the run.
    pub(crate) async fn stopped(&self, wakeup: &Wakeup) -> Signal {
        loop {
            if let Some(signal) = self.stop() {
                return signal;
            }
            wakeup.notified().await;
        }
    }

    /// Waits for a cancellation, or until the consumer may have made room. Returns `None` in the second case.
    async fn cancelled_or_ready(&self) -> Option<Signal> {
        if let Some(signal) = self.stop() {
            return Some(signal);
        }
        self.shared.wakeup.notified().await;
        self.stop()
    }

    /// Ends the run with its outcome.
    pub(crate) fn finish(self, outcome: Outcome) {
        self.shared.end_with(Some(outcome));
    }

    /// Returns a handle that can end the run if its loop does not.
    pub(crate) fn finisher(&self) -> Finisher {
        Finisher { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for RunSender {
    fn drop(&mut self) {
        self.shared.end_with(None);
    }
}

impl RunReceiver {
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<RunItem> {
        let mut state = self.shared.lock();
        if let Some(batch) = state.batches.pop_front() {
            let had_been_full = state.batches.len() + 1 >= BATCHES;
            drop(state);
            if had_been_full {
                self.shared.wakeup.notify_one();
            }
            return Poll::Ready(RunItem::Batch(batch));
        }
        if state.closed {
            return Poll::Ready(RunItem::Over(state.outcome.take()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits for the next item. Cancel safe.
    pub(crate) async fn next(&self) -> RunItem {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Discards all queued and future events. Waking the consumer for each event would cost more than producing it.
    pub(crate) fn want_outcome_only(&self) {
        let mut state = self.shared.lock();
        state.only_outcome = true;
        let unread = std::mem::take(&mut state.batches);
        drop(state);
        if unread.len() >= BATCHES {
            self.shared.wakeup.notify_one();
        }
    }

    pub(crate) fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for RunReceiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.dropped = true;
        state.batches.clear();
        drop(state);
        self.shared.ask_to_stop(DROPPED);
    }
}

impl Stopper {
    pub(crate) fn stop(&self, signal: Signal) {
        if let Some(shared) = self.shared.upgrade() {
            shared.ask_to_stop(signal);
        }
    }

    /// Waits until the run has ended, whether or not its events are read. Returns `None` if its verdict is not known.
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

/// Ends a run from outside its event loop.
#[derive(Clone, Debug)]
pub(crate) struct Finisher {
    shared: Weak<Shared>,
}

/// The state of a run, for the watchdog of its loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunProgress {
    /// The signal and time of the first cancellation.
    pub(crate) asked_to_stop: Option<(Signal, Instant)>,
    /// Whether the loop has taken the cancellation.
    pub(crate) is_stopping: bool,
}

impl Finisher {
    /// Returns the state of the run; `None` if it has ended.
    pub(crate) fn state(&self) -> Option<RunProgress> {
        let shared = self.shared.upgrade()?;
        let state = shared.lock();
        let is_stopping = state.asked_to_stop.is_some() && state.stop.is_none();
        (!state.closed).then_some(RunProgress { asked_to_stop: state.asked_to_stop, is_stopping })
    }

    /// Ends the run with this outcome, unless it has already ended.
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
    use agentline_core::{Event, Origin, RunInfo};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn outcome_waiter_is_woken_only_by_the_outcome() {
        let batch = || vec![Record::new(1, 0, Origin::Stdout, None, Event::Text { text: "a".into() })];
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let (sender, receiver) = channel(Wakeup::default());
        assert!(receiver.poll(&mut cx).is_pending());
        sender.send(batch());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        for _ in 1..BATCHES {
            sender.send(batch());
        }
        assert!(sender.is_full() && !sender.wants_outcome_only());
        receiver.want_outcome_only();
        assert!(!sender.is_full() && sender.wants_outcome_only());
        assert!(receiver.poll(&mut cx).is_pending());
        sender.send(batch());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let failure = agentline_core::Failure::new(agentline_core::FailureKind::Crashed, "over");
        sender.finish(Outcome::not_begun(&RunInfo::default(), agentline_core::Verdict::Failed, failure));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(matches!(receiver.poll(&mut cx), Poll::Ready(RunItem::Over(Some(_)))));
    }
}
