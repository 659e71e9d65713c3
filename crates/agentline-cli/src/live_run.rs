//! Shows the events of a run in progress, and stops the run on signals.

use crate::{
    error::CommandError,
    exit,
    keyboard::{self, TypingMode},
    permission_prompt::PermissionPrompt,
    render::Renderer,
    ui::Ui,
};
use agentline::{Canceller, Error, Event, Record, Run, Signal, Verdict};
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

/// The maximum time to wait at exit, for remaining tasks or after a second signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the preparation of a run may continue after the first signal.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a stopped run waits for its output to be read.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to shut down after the first signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of threads that a run needs besides the workers: for blocking calls, signals, the watchdog and a scan.
const SPARE_THREADS: usize = 4;

/// Runs the task of a command that drives a run.
///
/// One worker drives the run and this thread writes the output, so a blocked reader does not keep the agent from being
/// stopped in time. The second thread costs less than half a millisecond of CPU time.
pub(crate) fn start<T, F: Future<Output = Result<T, CommandError>>>(
    task: impl FnOnce() -> F,
) -> Result<T, CommandError> {
    let runtime = runtime(1)?;
    let done = runtime.block_on(task());
    // Dropping the remaining tasks ends the agent and removes its private directory.
    runtime.shutdown_timeout(EXIT_TIMEOUT);
    done
}

/// Creates a runtime with this many workers.
///
/// Tokio panics if it cannot start a thread, so the threads are tried first.
pub(crate) fn runtime(workers: usize) -> Result<tokio::runtime::Runtime, CommandError> {
    try_threads(workers + SPARE_THREADS).map_err(|error| no_threads(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.map_err(|error| no_threads(&error))
}

/// Checks that this many threads can run at the same time.
fn try_threads(count: usize) -> io::Result<()> {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let mut threads = Vec::new();
    let mut tried = Ok(());
    for _ in 0..count {
        let released = Arc::clone(&released);
        // The thread ends when the other side of the channel is dropped.
        let wait = move || drop(released.lock().map(|released| released.recv()));
        match std::thread::Builder::new().stack_size(64 << 10).spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tried = Err(error);
                break;
            }
        }
    }
    drop(release);
    for thread in threads {
        // The thread cannot panic.
        let _ = thread.join();
    }
    tried
}

fn no_threads(error: &io::Error) -> CommandError {
    CommandError::Unable {
        message: format!("cannot start a thread: {error}"),
        hint: "raise the process limit (`ulimit -u`), or stop other processes".into(),
    }
}

/// Waits for a signal to stop this process. A second signal exits immediately.
pub(crate) async fn stopped() {
    first_signal().await;
}

/// Returns the first signal to stop this process. A second signal exits immediately.
pub(crate) async fn first_signal() -> Signal {
    let (stop_sender, stop) = oneshot::channel();
    let received = on_own_thread(async move {
        let Some(mut incoming) = Incoming::new() else { return };
        let signal = incoming.next().await;
        let _ = stop_sender.send(signal);
        tokio::select! {
            _ = incoming.next() => {}
            () = tokio::time::sleep(SHUTDOWN_TIMEOUT) => {}
        }
        exit_now(exit::by_signal(signal));
    });
    // Without a signal thread, signals have their default effect.
    match (received, stop.await) {
        (Ok(()), Ok(signal)) => signal,
        _ => std::future::pending().await,
    }
}

/// A run in progress, with the signals that stop it.
pub(crate) struct LiveRun {
    pub(crate) run: Run,
    signals: Signals,
    /// Asks the user about the agent's permission requests.
    permission_prompt: Option<PermissionPrompt>,
    /// The id and the verdict of the run, once it has ended.
    pub(crate) ended: Option<(String, Verdict)>,
}

impl LiveRun {
    /// Starts a run by awaiting `begin`.
    pub(crate) async fn begin(begin: impl Future<Output = Result<Run, Error>>) -> Result<Self, CommandError> {
        let mut signals = Signals::listen()?;
        let run = tokio::select! {
            biased;
            run = begin => run?,
            Ok(signal) = &mut signals.overdue => Run::cancelled_early(signal),
        };
        signals.stop_by(run.canceller());
        Ok(Self { run, signals, permission_prompt: None, ended: None })
    }

    /// Sets how the user is asked about permission requests.
    pub(crate) fn with_permission_prompt(mut self, permission_prompt: Option<PermissionPrompt>) -> Self {
        self.permission_prompt = permission_prompt;
        self
    }

    /// Shows all events to the end of the run. Returns the exit code.
    pub(crate) async fn show(&mut self, ui: &mut Ui, renderer: &mut Renderer) -> Result<u8, CommandError> {
        let shown = self.show_all(ui, renderer).await;
        ui.clear_spinner();
        if matches!(shown, Err(CommandError::BrokenPipe)) {
            // The output is no longer read. The run is cancelled and awaited, so that it cleans up.
            self.run.canceller().cancel_with(Signal::Terminate);
            while self.run.next().await.is_some() {}
        }
        shown
    }

    async fn show_all(&mut self, ui: &mut Ui, renderer: &mut Renderer) -> Result<u8, CommandError> {
        renderer.begin(ui);
        let mut code = exit::FAILED;
        loop {
            match self.next(ui).await? {
                Next::Record(record) => {
                    if let Event::Outcome { outcome } = &record.event {
                        code = exit::of(outcome.verdict, self.signals.shared.first());
                        self.ended = Some((outcome.run_id.clone(), outcome.verdict));
                    }
                    renderer.record(ui, &record)?;
                }
                Next::End => break,
                Next::SecondSignal(signal) => return Err(CommandError::Signal(signal)),
            }
        }
        ui.flush()?;
        Ok(code)
    }

    /// Returns the next event. Flushes the output before waiting.
    async fn next(&mut self, ui: &mut Ui) -> Result<Next, CommandError> {
        poll_fn(|cx| {
            match pin!(self.run.next()).poll(cx) {
                Poll::Ready(Some(record)) => return Poll::Ready(Ok(Next::Record(record))),
                Poll::Ready(None) => return Poll::Ready(Ok(Next::End)),
                Poll::Pending => {}
            }
            if let Poll::Ready(Ok(signal)) = Pin::new(&mut self.signals.second_signal).poll(cx) {
                return Poll::Ready(Ok(Next::SecondSignal(signal)));
            }
            if let Some(permission_prompt) = &mut self.permission_prompt {
                permission_prompt.poll(cx, ui);
            }
            match ui.flush() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error.into())),
            }
        })
        .await
    }
}

#[expect(clippy::large_enum_variant, reason = "one value exists at a time")]
enum Next {
    Record(Record),
    End,
    /// A second signal was received.
    SecondSignal(Signal),
}

/// The received signals. The first cancels the run, the second ends it immediately.
///
/// A separate thread receives them, so that they take effect even if the other threads are busy or blocked on output.
struct Signals {
    shared: Arc<SignalsShared>,
    second_signal: oneshot::Receiver<Signal>,
    /// Receives the first signal some time after it arrived.
    overdue: oneshot::Receiver<Signal>,
}

#[derive(Default)]
struct SignalsShared {
    /// The number of the first signal, or 0.
    first: AtomicI32,
    canceller: OnceLock<Canceller>,
    started: tokio::sync::Notify,
}

impl SignalsShared {
    /// Returns the first signal.
    fn first(&self) -> Option<Signal> {
        Some(self.first.load(Ordering::SeqCst)).filter(|number| *number != 0).map(Signal::from)
    }
}

impl Signals {
    fn listen() -> Result<Self, CommandError> {
        let shared = Arc::new(SignalsShared::default());
        let (send_second_signal, second_signal) = oneshot::channel();
        let (send_overdue, overdue) = oneshot::channel();
        let received = Arc::clone(&shared);
        on_own_thread(async move {
            let Some(mut incoming) = Incoming::new() else { return };
            let signal = tokio::select! {
                signal = incoming.next() => signal,
                code = unread(&received) => exit_now(code),
            };
            received.first.store(signal.number(), Ordering::SeqCst);
            // A run that is still being prepared is cancelled when it has started, so that it also has an outcome.
            if let Some(run) = received.canceller.get() {
                run.cancel_with(signal);
            }
            let overdue = async {
                tokio::time::sleep(PREPARATION_TIMEOUT).await;
                let _ = send_overdue.send(signal);
                std::future::pending::<()>().await;
            };
            let signal = tokio::select! {
                signal = incoming.next() => signal,
                code = unread(&received) => exit_now(code),
                () = overdue => signal,
            };
            let _ = send_second_signal.send(signal);
            // The output thread may be blocked; after a second signal the program does not wait for it.
            tokio::time::sleep(EXIT_TIMEOUT).await;
            exit_now(exit::by_signal(signal));
        })?;
        Ok(Self { shared, second_signal, overdue })
    }

    fn stop_by(&self, canceller: Canceller) {
        // The value is set only here.
        let _ = self.shared.canceller.set(canceller.clone());
        self.shared.started.notify_one();
        if let Some(signal) = self.shared.first() {
            canceller.cancel_with(signal);
        }
    }
}

/// Waits until a run that was ended by a timeout or signal has been over for a while and its output is still unread.
/// Returns its exit code.
///
/// The output of a run that ended by itself may be read at any speed.
async fn unread(shared: &SignalsShared) -> u8 {
    let canceller = loop {
        match shared.canceller.get() {
            Some(canceller) => break canceller,
            None => shared.started.notified().await,
        }
    };
    match canceller.over().await {
        Some(verdict @ (Verdict::TimedOut | Verdict::Cancelled)) => {
            tokio::time::sleep(OUTPUT_TIMEOUT).await;
            exit::of(verdict, shared.first())
        }
        _ => std::future::pending().await,
    }
}

fn exit_now(code: u8) -> ! {
    // A question may be open.
    keyboard::set_mode(TypingMode::Lines);
    std::process::exit(i32::from(code))
}

/// Runs a future on a new thread with its own runtime.
fn on_own_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<(), CommandError> {
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

    /// Returns the next signal. A closed terminal counts as SIGTERM.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.hangup.recv() => Signal::Terminate,
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

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}
