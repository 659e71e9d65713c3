//! A run that somebody watches: its events are shown as they come, and signals stop it.

use crate::{exit, question::Desk, render::Renderer, stop::Stop, ui::Ui};
use agentline::{Canceller, Error, Event, Record, Run};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    task::Poll,
    time::Duration,
};
use tokio::sync::oneshot;

/// How long the end may take once the user has no more patience.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Runs what a command does with a run.
///
/// The run is driven by the one worker; what is shown is written by this thread. So a reader who does not read keeps
/// nobody from stopping the agent in time. The second thread costs less than half a millisecond of CPU.
pub(crate) fn start<T, F: Future<Output = Result<T, Stop>>>(task: impl FnOnce() -> F) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Stop::failed(format!("could not start a thread: {error}")))?;
    let done = runtime.block_on(task());
    // What still runs is dropped, and with it the agent and its private folder.
    runtime.shutdown_timeout(LAST_MOMENT);
    done
}

/// Waits until this process is told to stop.
#[cfg(unix)]
pub(crate) async fn stopped() {
    match Incoming::new() {
        Some(mut incoming) => drop(incoming.next().await),
        None => std::future::pending().await,
    }
}

/// A run in progress, with the signals that stop it.
pub(crate) struct Live {
    pub(crate) run: Run,
    signals: Signals,
    /// Where the agent's questions are put to the user.
    desk: Option<Desk>,
}

impl Live {
    /// Starts a run: `begin` does.
    pub(crate) async fn begin(begin: impl Future<Output = Result<Run, Error>>) -> Result<Self, Error> {
        let signals = Signals::listen();
        let run = begin.await?;
        signals.stop_by(run.canceller());
        Ok(Self { run, signals, desk: None })
    }

    /// Puts the agent's questions to the user.
    pub(crate) fn asking(mut self, desk: Option<Desk>) -> Self {
        self.desk = desk;
        self
    }

    /// Shows everything until the end. Returns the exit code.
    pub(crate) async fn show(&mut self, ui: &mut Ui, renderer: &mut Renderer) -> Result<u8, Stop> {
        let shown = self.show_all(ui, renderer).await;
        ui.rest();
        if matches!(shown, Err(Stop::BrokenPipe)) {
            // Nobody wants the answer any more. The run is stopped in order, so that it clears up after itself.
            self.run.canceller().cancel_by(15);
            while self.run.next().await.is_some() {}
        }
        shown
    }

    async fn show_all(&mut self, ui: &mut Ui, renderer: &mut Renderer) -> Result<u8, Stop> {
        renderer.begin(ui);
        let mut code = exit::FAILED;
        loop {
            match self.next(ui).await? {
                Next::Record(record) => {
                    if let Event::Outcome { outcome } = &record.event {
                        code = exit::of(outcome.verdict, self.signals.first());
                    }
                    renderer.record(ui, &record)?;
                }
                Next::End => break,
                Next::Enough(signal) => return Err(Stop::Signal(signal)),
            }
        }
        ui.flush()?;
        Ok(code)
    }

    /// The next event. What was written is shown before it is waited for.
    async fn next(&mut self, ui: &mut Ui) -> Result<Next, Stop> {
        poll_fn(|cx| {
            match pin!(self.run.next()).poll(cx) {
                Poll::Ready(Some(record)) => return Poll::Ready(Ok(Next::Record(record))),
                Poll::Ready(None) => return Poll::Ready(Ok(Next::End)),
                Poll::Pending => {}
            }
            if let Poll::Ready(Ok(signal)) = Pin::new(&mut self.signals.enough).poll(cx) {
                return Poll::Ready(Ok(Next::Enough(signal)));
            }
            if let Some(desk) = &mut self.desk {
                desk.poll(cx, ui);
            }
            match ui.flush() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error.into())),
            }
        })
        .await
    }
}

enum Next {
    Record(Record),
    End,
    /// A second signal came.
    Enough(i32),
}

/// The signals that came: the first stops the run in order, the second at once.
struct Signals {
    first: Arc<AtomicI32>,
    canceller: Arc<std::sync::OnceLock<Canceller>>,
    enough: oneshot::Receiver<i32>,
}

impl Signals {
    fn listen() -> Self {
        let (first, canceller) = (Arc::new(AtomicI32::new(0)), Arc::new(std::sync::OnceLock::new()));
        let (say_enough, enough) = oneshot::channel();
        let signals = Self { first: Arc::clone(&first), canceller: Arc::clone(&canceller), enough };
        tokio::spawn(async move {
            let Some(mut incoming) = Incoming::new() else { return };
            let signal = incoming.next().await;
            first.store(signal, Ordering::SeqCst);
            // A run that is still being prepared is stopped as soon as it has begun, so that its outcome is told too.
            if let Some(run) = canceller.get() {
                run.cancel_by(signal);
            }
            let signal = incoming.next().await;
            let _ = say_enough.send(signal);
            // The thread that shows may be waiting for its reader; whoever asks twice does not wait for that.
            tokio::time::sleep(LAST_MOMENT).await;
            std::process::exit(i32::from(exit::by_signal(signal)));
        });
        signals
    }

    fn stop_by(&self, canceller: Canceller) {
        // It is set once, here.
        let _ = self.canceller.set(canceller.clone());
        match self.first.load(Ordering::SeqCst) {
            0 => {}
            signal => canceller.cancel_by(signal),
        }
    }

    /// The first signal that came.
    fn first(&self) -> Option<i32> {
        Some(self.first.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

/// The signals of this process.
#[cfg(unix)]
struct Incoming {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Incoming {
    fn new() -> Option<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Some(Self {
            interrupt: signal(SignalKind::interrupt()).ok()?,
            terminate: signal(SignalKind::terminate()).ok()?,
            hangup: signal(SignalKind::hangup()).ok()?,
        })
    }

    /// The next one: 2 or 15. A closed terminal ends a run as SIGTERM does.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 15,
        }
    }
}

#[cfg(not(unix))]
struct Incoming;

#[cfg(not(unix))]
impl Incoming {
    fn new() -> Option<Self> {
        Some(Self)
    }

    async fn next(&mut self) -> i32 {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        2
    }
}
