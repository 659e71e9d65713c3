//! Ends runs whose event loop does not end them in time.
//!
//! The loop of a process enforces the timeouts of its runs. It cannot do so while its thread is busy or blocked, or
//! while another task of the same runtime keeps it from being polled. One thread for the whole program watches all
//! loops. If a loop has missed its own wake-up, the thread ends its runs that are past their timeout or cancelled: it
//! kills the agent and sends the caller an outcome.

use crate::{process::Killer, run::channel::Finisher};
use agentline_core::{Failure, FailureKind, Notice, Outcome, RunInfo, Verdict};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

/// How late a loop may be before the watchdog ends its runs.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which loops are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The registration of a loop. Dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct LoopWatch {
    watched: Arc<Watched>,
}

#[derive(Debug)]
struct Watched {
    killer: Killer,
    state: Mutex<LoopState>,
}

#[derive(Debug, Default)]
struct LoopState {
    /// When the loop will wake up at the latest.
    wakes_at: Option<Instant>,
    /// When the loop was first found to be late. After a pause of the whole program, the loop gets one more
    /// tick.
    late_since: Option<Instant>,
    runs: Vec<WatchedRun>,
}

#[derive(Debug)]
struct WatchedRun {
    info: RunInfo,
    ends_at: Instant,
    finisher: Finisher,
}

impl LoopWatch {
    /// Watches the loop of a process.
    pub(crate) fn new(killer: Killer) -> Self {
        let watched = Arc::new(Watched { killer, state: Mutex::default() });
        registry().add(&watched);
        Self { watched }
    }

    /// Records that the loop has made progress, and when it will wake up at the latest.
    pub(crate) fn progressed(&self, wakes_at: Option<Instant>) {
        let mut state = self.watched.lock();
        (state.wakes_at, state.late_since) = (wakes_at, None);
    }

    /// Adds a run of the loop that must end by `ends_at`.
    pub(crate) fn add(&self, info: &RunInfo, ends_at: Instant, finisher: Finisher) {
        self.watched.lock().runs.push(WatchedRun { info: info.clone(), ends_at, finisher });
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, LoopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends runs that the loop should have ended.
    fn check(&self, now: Instant) {
        let mut state = self.lock();
        if state.wakes_at.is_some_and(|when| now > when + STALL_TIMEOUT) {
            state.late_since.get_or_insert(now);
        }
        let is_late = state.late_since.is_some_and(|since| now > since + CHECK_INTERVAL);
        state.runs.retain(|run| run.finisher.state().is_some());
        let overdue: Vec<(Finisher, Outcome)> = state
            .runs
            .iter()
            .filter_map(|run| Some((run.finisher.clone(), run.overdue(now, is_late)?)))
            .collect();
        drop(state);
        if overdue.is_empty() {
            return;
        }
        // Other runs on the process cannot make progress either.
        self.killer.kill();
        for (finisher, outcome) in overdue {
            finisher.finish(outcome);
        }
    }
}

impl WatchedRun {
    /// Returns the outcome of a run that its loop should have ended, or `None` if it is not overdue.
    fn overdue(&self, now: Instant, is_late: bool) -> Option<Outcome> {
        let state = self.finisher.state()?;
        if let Some((signal, when)) = state.first_cancel
            && (is_late || !state.is_stopping() && now > when + STALL_TIMEOUT)
        {
            let message = format!(
                "cancelled by the caller ({}); agentline was too busy to end the run cleanly",
                signal.name()
            );
            return Some(Outcome::not_started(
                &self.info,
                Verdict::Cancelled,
                Failure::new(FailureKind::Cancelled, message),
            ));
        }
        (is_late && now > self.ends_at).then(|| {
            let message = "timed out, and agentline was too busy to end the run cleanly";
            let failure = Failure::new(FailureKind::TimeoutRun, message)
                .hint("report this with a tape of the run (`--record FILE`)");
            let mut outcome = Outcome::not_started(&self.info, Verdict::TimedOut, failure);
            let message = "the workspace was not compared, so `files` is incomplete";
            outcome.warnings.push(Notice::new("workspace_not_compared", message));
            outcome
        })
    }
}

/// All loops of this program.
#[derive(Debug, Default)]
struct Registry {
    loops: Mutex<Vec<Weak<Watched>>>,
    added: Condvar,
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    static THREAD: OnceLock<()> = OnceLock::new();
    let registry = REGISTRY.get_or_init(Registry::default);
    THREAD.get_or_init(|| {
        // Without the thread, only the loops themselves end runs.
        let _ = std::thread::Builder::new().name("agentline-watch".into()).spawn(|| registry.watch());
    });
    registry
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Watched>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, watched: &Arc<Watched>) {
        self.lock().push(Arc::downgrade(watched));
        self.added.notify_one();
    }

    fn watch(&self) {
        loop {
            let mut loops = self.lock();
            while loops.is_empty() {
                loops = self.added.wait(loops).unwrap_or_else(PoisonError::into_inner);
            }
            loops.retain(|watched| watched.strong_count() > 0);
            let alive: Vec<Arc<Watched>> = loops.iter().filter_map(Weak::upgrade).collect();
            drop(loops);
            let now = Instant::now();
            alive.iter().for_each(|watched| watched.check(now));
            drop(alive);
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{
        process::{Process, Spawn},
        run::channel::{RunItem, Wakeup, channel},
    };

    /// Checks that a stalled loop's agent is killed and that the caller gets an outcome.
    #[tokio::test(flavor = "multi_thread")]
    async fn watchdog_ends_a_run_with_a_stuck_event_loop() {
        let mark = uuid::Uuid::new_v4().to_string();
        let mut spawn = Spawn::new("/bin/sleep", "/", &mark);
        spawn.args = vec!["600".into()];
        let mut process = Process::spawn(spawn).unwrap();
        let watch = LoopWatch::new(process.killer());
        let (late, mut late_receiver) = channel(Wakeup::default());
        let (stopped, mut stopped_receiver) = channel(Wakeup::default());
        let (patient, patient_receiver) = channel(Wakeup::default());
        let now = Instant::now();
        watch.add(&RunInfo::default(), now, late.finisher());
        watch.add(&RunInfo::default(), now + Duration::from_secs(600), stopped.finisher());
        watch.add(&RunInfo::default(), now + Duration::from_secs(600), patient.finisher());
        stopped_receiver.stopper().stop(agentline_core::Signal::Terminate);
        watch.progressed(Some(now));
        let mut verdicts = Vec::new();
        for receiver in [&mut late_receiver, &mut stopped_receiver] {
            match tokio::time::timeout(Duration::from_secs(60), receiver.next()).await.unwrap() {
                RunItem::Over(Some(outcome)) => verdicts.push(outcome.verdict),
                _ => panic!("the run must be over"),
            }
        }
        assert_eq!(verdicts, [Verdict::TimedOut, Verdict::Cancelled]);
        assert!(now.elapsed() >= STALL_TIMEOUT);
        assert!(patient.finisher().state().is_some(), "a run that has time left is not ended");
        let mut bytes = Vec::new();
        let exit = tokio::time::timeout(Duration::from_secs(60), process.next(&mut bytes)).await.unwrap();
        assert!(matches!(exit, crate::process::ProcessEvent::Exit(_)), "{exit:?}");
        drop((late, stopped, patient, patient_receiver, watch));
    }
}
