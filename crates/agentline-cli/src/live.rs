//! A run that somebody watches: its events are shown as they come, and signals stop it.

use crate::{exit, question::Desk, render::Renderer, stop::Stop, ui::Ui};
use agentline::{Canceller, Error, Event, Record, Run, Verdict};
use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI32, Ordering},
    },
    task::Poll,
    time::Duration,
};
use tokio::sync::oneshot;

/// How long the end may take once the user has no more patience.
const LAST_MOMENT: Duration = Duration::from_secs(2);
/// How long a run may still be prepared after the first signal.
const PREPARATION: Duration = Duration::from_secs(3);
/// How long the output of a run that was ended may wait to be read.
const READING: Duration = Duration::from_secs(10);
/// How long a server may take to end in order after the first signal.
const ORDERLY_END: Duration = Duration::from_secs(60);
/// Threads besides the workers that a run needs: for what blocks, for signals, for the watchdog, for a scan.
const SPARE_THREADS: usize = 4;

/// Runs what a command does with a run.
///
/// The run is driven by the one worker; what is shown is written by this thread. So a reader who does not read keeps
/// nobody from stopping the agent in time. The second thread costs less than half a millisecond of CPU.
pub(crate) fn start<T, F: Future<Output = Result<T, Stop>>>(task: impl FnOnce() -> F) -> Result<T, Stop> {
    let runtime = runtime(1)?;
    let done = runtime.block_on(task());
    // What still runs is dropped, and with it the agent and its private folder.
    runtime.shutdown_timeout(LAST_MOMENT);
    done
}

/// A runtime with this many workers.
///
/// The runtime panics when a thread cannot be started, so that is tried first.
pub(crate) fn runtime(workers: usize) -> Result<tokio::runtime::Runtime, Stop> {
    try_threads(workers + SPARE_THREADS).map_err(|error| no_threads(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.map_err(|error| no_threads(&error))
}

/// Whether this many threads can be had at once.
fn try_threads(count: usize) -> io::Result<()> {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let mut threads = Vec::new();
    let mut tried = Ok(());
    for _ in 0..count {
        let held = Arc::clone(&held);
        // It ends when the other side of the channel is gone.
        let wait = move || drop(held.lock().map(|held| held.recv()));
        match std::thread::Builder::new().stack_size(64 << 10).spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tried = Err(error);
                break;
            }
        }
    }
    drop(hold);
    for thread in threads {
        // It cannot panic.
        let _ = thread.join();
    }
    tried
}

fn no_threads(error: &io::Error) -> Stop {
    Stop::Unable {
        message: format!("could not start a thread: {error}"),
        hint: "raise the limit on processes (`ulimit -u`), or end some".into(),
    }
}

/// Waits until this process is told to stop. A second signal ends the program at once, whatever it does.
pub(crate) async fn stopped() {
    let (say_stop, stop) = oneshot::channel();
    let heard = on_own_thread(async move {
        let Some(mut incoming) = Incoming::new() else { return };
        let signal = incoming.next().await;
        let _ = say_stop.send(());
        tokio::select! {
            _ = incoming.next() => {}
            () = tokio::time::sleep(ORDERLY_END) => {}
        }
        exit_now(exit::by_signal(signal));
    });
    // Without a thread for them, signals end the program as they end any other.
    if heard.is_err() || stop.await.is_err() {
        std::future::pending::<()>().await;
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
    pub(crate) async fn begin(begin: impl Future<Output = Result<Run, Error>>) -> Result<Self, Stop> {
        let mut signals = Signals::listen()?;
        let run = tokio::select! {
            biased;
            run = begin => run?,
            Ok(signal) = &mut signals.impatient => Run::cancelled_early(signal),
        };
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
///
/// They are heard by a thread of their own, so that they take effect whatever the other threads do: one may be busy, and
/// the one that shows the run may wait for a reader that does not read.
struct Signals {
    shared: Arc<SignalsShared>,
    enough: oneshot::Receiver<i32>,
    /// The first signal came a while ago.
    impatient: oneshot::Receiver<i32>,
}

#[derive(Default)]
struct SignalsShared {
    first: AtomicI32,
    canceller: OnceLock<Canceller>,
    begun: tokio::sync::Notify,
}

impl Signals {
    fn listen() -> Result<Self, Stop> {
        let shared = Arc::new(SignalsShared::default());
        let (say_enough, enough) = oneshot::channel();
        let (say_impatient, impatient) = oneshot::channel();
        let heard = Arc::clone(&shared);
        on_own_thread(async move {
            let Some(mut incoming) = Incoming::new() else { return };
            let signal = tokio::select! {
                signal = incoming.next() => signal,
                code = unread(&heard) => exit_now(code),
            };
            heard.first.store(signal, Ordering::SeqCst);
            // A run that is still being prepared is stopped as soon as it has begun, so that its outcome is told too.
            if let Some(run) = heard.canceller.get() {
                run.cancel_by(signal);
            }
            let impatient = async {
                tokio::time::sleep(PREPARATION).await;
                let _ = say_impatient.send(signal);
                std::future::pending::<()>().await;
            };
            let signal = tokio::select! {
                signal = incoming.next() => signal,
                code = unread(&heard) => exit_now(code),
                () = impatient => signal,
            };
            let _ = say_enough.send(signal);
            // The thread that shows may be waiting for its reader; whoever asks twice does not wait for that.
            tokio::time::sleep(LAST_MOMENT).await;
            exit_now(exit::by_signal(signal));
        })?;
        Ok(Self { shared, enough, impatient })
    }

    fn stop_by(&self, canceller: Canceller) {
        // It is set once, here.
        let _ = self.shared.canceller.set(canceller.clone());
        self.shared.begun.notify_one();
        match self.shared.first.load(Ordering::SeqCst) {
            0 => {}
            signal => canceller.cancel_by(signal),
        }
    }

    /// The first signal that came.
    fn first(&self) -> Option<i32> {
        Some(self.shared.first.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

/// Waits until a run that a clock or a signal has ended was over for a while: nothing reads what is shown of it. Returns
/// its exit code.
///
/// A run that ended by itself may be read for as long as the reader likes.
async fn unread(shared: &SignalsShared) -> u8 {
    let canceller = loop {
        match shared.canceller.get() {
            Some(canceller) => break canceller,
            None => shared.begun.notified().await,
        }
    };
    match canceller.over().await {
        Some(verdict @ (Verdict::TimedOut | Verdict::Cancelled)) => {
            tokio::time::sleep(READING).await;
            let first = Some(shared.first.load(Ordering::SeqCst)).filter(|signal| *signal != 0);
            exit::of(verdict, first)
        }
        _ => std::future::pending().await,
    }
}

fn exit_now(code: u8) -> ! {
    std::process::exit(i32::from(code))
}

/// Runs something on a thread of its own, with a runtime of its own.
fn on_own_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<(), Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| no_threads(&error))?;
    let work = move || runtime.block_on(work);
    let thread = std::thread::Builder::new().name("signals".into()).spawn(work);
    thread.map(drop).map_err(|error| no_threads(&error))
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
