//! The channel between the handle of a run and the event loop: events in one direction, cancellation in the other.

use agentline_core::{Outcome, Record, Signal, Verdict};
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Instant,
};
use tokio::sync::{Notify, mpsc, watch};

/// Wakes an event loop when a run is cancelled or its consumer has room again.
pub(crate) type Wakeup = Arc<Notify>;

/// How many batches of events may be queued for a slow consumer before the agent's output is no longer read.
const BATCHES: usize = 4;

#[derive(Debug)]
struct Shared {
    items: mpsc::UnboundedSender<RunItem>,
    /// The number of batches that the consumer has not taken yet.
    queued: AtomicUsize,
    /// Whether events are discarded, so that only the outcome wakes the consumer.
    only_outcome: AtomicBool,
    progress: watch::Sender<RunProgress>,
    wakeup: Wakeup,
}

impl Shared {
    /// Ends the run. Only the first call has an effect.
    fn end_with(&self, outcome: Option<Outcome>) {
        let end = RunEnd { verdict: outcome.as_ref().map(|outcome| outcome.verdict) };
        let is_first = self.progress.send_if_modified(|progress| {
            let is_first = progress.end.is_none();
            progress.end.get_or_insert(end);
            is_first
        });
        if is_first {
            // Fails if the consumer is gone.
            let _ = self.items.send(RunItem::Over(outcome.map(Box::new)));
        }
    }

    fn cancel(&self, signal: Signal) {
        self.progress.send_modify(|progress| {
            progress.pending_signal.get_or_insert(signal);
            progress.first_cancel.get_or_insert_with(|| (signal, Instant::now()));
        });
        self.wakeup.notify_one();
    }
}

/// The state of a run as its handle, its event loop and its watchdog see it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunProgress {
    /// The signal of a cancellation, until the loop has taken it.
    pending_signal: Option<Signal>,
    /// The signal and time of the first cancellation.
    pub(crate) first_cancel: Option<(Signal, Instant)>,
    /// Set when the run has ended.
    end: Option<RunEnd>,
}

/// The result of a run that has ended.
#[derive(Clone, Copy, Debug)]
struct RunEnd {
    /// The verdict; `None` if the task of the run was lost.
    verdict: Option<Verdict>,
}

impl RunProgress {
    /// Returns whether the loop has taken the cancellation.
    pub(crate) fn is_stopping(&self) -> bool {
        self.first_cancel.is_some() && self.pending_signal.is_none()
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
    items: mpsc::UnboundedReceiver<RunItem>,
    shared: Arc<Shared>,
}

/// Cancels a run without keeping it alive.
#[derive(Clone, Debug)]
pub(crate) struct Stopper {
    shared: Weak<Shared>,
}

/// An item received over the channel.
#[derive(Debug)]
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
    let (sender, items) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        items: sender,
        queued: AtomicUsize::default(),
        only_outcome: AtomicBool::default(),
        progress: watch::Sender::default(),
        wakeup,
    });
    (RunSender { shared: Arc::clone(&shared) }, RunReceiver { items, shared })
}

impl RunSender {
    /// Queues events. Never blocks.
    pub(crate) fn send(&self, batch: Vec<Record>) {
        if !self.needs_outcome_only() {
            self.shared.queued.fetch_add(1, Ordering::AcqRel);
            // Fails if the consumer is gone.
            let _ = self.shared.items.send(RunItem::Batch(batch));
        }
    }

    /// Returns whether the consumer discards events.
    pub(crate) fn needs_outcome_only(&self) -> bool {
        self.shared.only_outcome.load(Ordering::Acquire)
    }

    /// Returns whether the consumer is behind.
    pub(crate) fn is_full(&self) -> bool {
        let is_behind = self.shared.queued.load(Ordering::Acquire) >= BATCHES;
        is_behind && !self.needs_outcome_only() && !self.shared.items.is_closed()
    }

    /// Returns the signal of a cancellation, once. Dropping the handle also cancels.
    pub(crate) fn stop(&self) -> Option<Signal> {
        let mut signal = None;
        self.shared.progress.send_if_modified(|progress| {
            signal = progress.pending_signal.take();
            false
        });
        signal
    }

    /// Waits for a cancellation while no event loop drives the run.
    pub(crate) async fn stopped(&self) -> Signal {
        loop {
            if let Some(signal) = self.cancelled_or_ready().await {
                return signal;
            }
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
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RunItem> {
        loop {
            match ready!(self.items.poll_recv(cx)) {
                Some(RunItem::Batch(batch)) => {
                    if self.shared.queued.fetch_sub(1, Ordering::AcqRel) == BATCHES {
                        self.shared.wakeup.notify_one();
                    }
                    if !self.shared.only_outcome.load(Ordering::Acquire) {
                        return Poll::Ready(RunItem::Batch(batch));
                    }
                }
                Some(RunItem::Over(outcome)) => {
                    self.items.close();
                    return Poll::Ready(RunItem::Over(outcome));
                }
                None => return Poll::Ready(RunItem::Over(None)),
            }
        }
    }

    /// Waits for the next item. Cancel safe.
    pub(crate) async fn next(&mut self) -> RunItem {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Discards all queued and future events. Waking the consumer for each event would cost more than producing it.
    pub(crate) fn request_outcome_only(&self) {
        self.shared.only_outcome.store(true, Ordering::Release);
        self.shared.wakeup.notify_one();
    }

    pub(crate) fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for RunReceiver {
    fn drop(&mut self) {
        self.items.close();
        self.shared.cancel(DROPPED);
    }
}

impl Stopper {
    pub(crate) fn stop(&self, signal: Signal) {
        if let Some(shared) = self.shared.upgrade() {
            shared.cancel(signal);
        }
    }

    /// Waits until the run has ended, whether or not its events are read. Returns `None` if its verdict is not known.
    pub(crate) async fn over(&self) -> Option<Verdict> {
        let mut progress = self.shared.upgrade()?.progress.subscribe();
        progress.wait_for(|progress| progress.end.is_some()).await.ok()?.end?.verdict
    }
}

/// Ends a run from outside its event loop.
#[derive(Clone, Debug)]
pub(crate) struct Finisher {
    shared: Weak<Shared>,
}

impl Finisher {
    /// Returns the state of the run; `None` if it has ended.
    pub(crate) fn state(&self) -> Option<RunProgress> {
        let progress = *self.shared.upgrade()?.progress.borrow();
        progress.end.is_none().then_some(progress)
    }

    /// Ends the run with this outcome, unless it has already ended.
    pub(crate) fn finish(&self, outcome: Outcome) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_with(Some(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Event, Origin, RunInfo};
    use std::{sync::atomic::AtomicU32, task::Waker};

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
        let (sender, mut receiver) = channel(Wakeup::default());
        assert!(receiver.poll(&mut cx).is_pending());
        sender.send(batch());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        for _ in 1..BATCHES {
            sender.send(batch());
        }
        assert!(sender.is_full() && !sender.needs_outcome_only());
        receiver.request_outcome_only();
        assert!(!sender.is_full() && sender.needs_outcome_only());
        assert!(receiver.poll(&mut cx).is_pending());
        sender.send(batch());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let failure = agentline_core::Failure::new(agentline_core::FailureKind::Crashed, "over");
        sender.finish(Outcome::not_started(&RunInfo::default(), agentline_core::Verdict::Failed, failure));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(matches!(receiver.poll(&mut cx), Poll::Ready(RunItem::Over(Some(_)))));
    }
}
