//! A handle of a live agent process: runs are submitted through it, and the process ends when the handle is dropped.

use crate::{
    agentline::Inner,
    drive::drive,
    follow::AgentHome,
    integrity::Integrity,
    link::{Bell, Held, link},
    litter::Litter,
    private_dir::PrivateDir,
    process::{Process, SpawnError},
    ready::{Start, Trip},
    run::{Launched, Run},
    seat::{Boarding, Gone, Tell, refuse},
    tape_file::TapeFile,
    temp_dir::ProcessTemp,
};
use agentline_core::{Connection, Spent, Veil};
use std::{path::PathBuf, sync::Arc, time::Instant};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender},
        watch,
    },
    task::JoinHandle,
};

/// A live process before its event loop starts.
pub(crate) struct Live {
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    /// Secrets that are redacted in the output of every run.
    pub(crate) secrets: Vec<String>,
    pub(crate) tape: Option<TapeFile>,
    pub(crate) max_line: usize,
    pub(crate) begun: Instant,
    /// Directories that are removed after the process: its private directory, and its temporary workspace if it has
    /// one.
    pub(crate) private: (PrivateDir, Option<Arc<PrivateDir>>),
    /// The state of the files that enforce the policy.
    pub(crate) integrity: Arc<Integrity>,
    /// Files to copy from the private directory back to the user's home.
    pub(crate) copy_back: Vec<(PathBuf, PathBuf)>,
    /// Submitted runs. When all senders are dropped, the process is retired.
    pub(crate) boarding: UnboundedReceiver<Boarding>,
    pub(crate) bell: Bell,
    pub(crate) state: watch::Sender<LiveState>,
    pub(crate) gone: Gone,
    /// Whether the process outlives its runs.
    pub(crate) lives_on: bool,
    /// A session that the agent opens by itself when it starts.
    pub(crate) litter: Option<Litter>,
    pub(crate) temp: ProcessTemp,
}

/// The state of a live process, for choosing one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LiveState {
    /// Whether the agent has answered.
    pub(crate) ready: bool,
    /// Whether the process accepts no more runs.
    pub(crate) closed: bool,
    /// The number of runs on the process.
    pub(crate) seats: usize,
    /// The number of runs whose session is still being opened.
    pub(crate) opening: usize,
    /// The number of runs so far.
    pub(crate) served: u32,
    /// The reported usage of all runs together.
    pub(crate) spent: Spent,
}

/// A handle of a live agent process. Dropping it retires the process, which exits when its runs have ended.
#[derive(Debug)]
pub(crate) struct LiveHandle {
    board: UnboundedSender<Boarding>,
    bell: Bell,
    state: watch::Receiver<LiveState>,
    gone: Gone,
    task: JoinHandle<()>,
    launched: Launched,
    veil: Veil,
    /// The home directory that the agent sees.
    pub(crate) agent_home: Arc<AgentHome>,
    /// The state of the files that enforce the policy.
    integrity: Arc<Integrity>,
    /// The process id of the agent.
    pub(crate) pid: Option<u32>,
}

impl LiveHandle {
    /// Starts a process. `mark` identifies everything that it starts.
    pub(crate) fn start(inner: &Inner, start: Start, mark: &str, begun: Instant) -> Result<Self, SpawnError> {
        Self::start_by(Bell::default(), inner, start, mark, begun)
    }

    /// Starts a process like [`start`](Self::start), for a run that already has its channel.
    pub(crate) fn start_by(
        bell: Bell,
        inner: &Inner,
        start: Start,
        mark: &str,
        begun: Instant,
    ) -> Result<Self, SpawnError> {
        let (board, boarding) = tokio::sync::mpsc::unbounded_channel();
        let veil = Veil::new(&start.launch.secrets);
        let launched = Launched::of(&start.launch, &veil);
        let agent_home = AgentHome::new(start.launch.agent_home.clone());
        let live = inner.go_live(start, mark, boarding, Bell::clone(&bell), begun)?;
        let state = live.state.subscribe();
        let (pid, gone) = (live.process.pid(), Gone::clone(&live.gone));
        let integrity = Arc::clone(&live.integrity);
        Ok(Self {
            board,
            bell,
            state,
            gone,
            task: tokio::spawn(drive(live)),
            launched,
            veil,
            agent_home,
            integrity,
            pid,
        })
    }

    /// Submits a run. If the process has exited in the meantime, the outcome reports it.
    pub(crate) fn run(&self, trip: Trip, tell: Tell) -> Run {
        let run_id = trip.order.who.run_id.clone();
        Run::new(run_id, self.board(trip, tell), self.launched.clone()).veiled(self.veil.clone())
    }

    /// Submits a run like [`run`](Self::run), for callers that handle its events themselves.
    pub(crate) fn board(&self, trip: Trip, tell: Tell) -> Held {
        let (driven, held) = link(Bell::clone(&self.bell));
        self.take(trip.board(driven, tell));
        held
    }

    /// Submits a run whose channel already wakes this process's loop.
    pub(crate) fn take(&self, boarding: Boarding) {
        if let Err(gone) = self.board.send(boarding) {
            refuse(gone.0, self.gone.get());
        }
    }

    /// Returns whether all files that enforce the policy are intact. Blocks briefly.
    pub(crate) fn is_intact(&self) -> bool {
        self.integrity.change().is_none()
    }

    /// Returns the current state of the process.
    pub(crate) fn state(&self) -> LiveState {
        self.state.borrow().clone()
    }

    /// Returns a receiver of the state, which is updated until the loop ends.
    pub(crate) fn watch(&self) -> watch::Receiver<LiveState> {
        self.state.clone()
    }

    /// Waits until the state matches or the process is closed, and returns the state.
    pub(crate) async fn wait_for(&self, mut so: impl FnMut(&LiveState) -> bool) -> LiveState {
        let mut state = self.state.clone();
        match state.wait_for(|now| now.closed || so(now)).await {
            Ok(now) => now.clone(),
            Err(_) => LiveState { closed: true, ..LiveState::default() },
        }
    }

    /// Retires the process and waits until it has exited.
    pub(crate) async fn close(self) {
        let Self { board, task, .. } = self;
        drop(board);
        // A loop that panicked has ended its process.
        let _ = task.await;
    }
}
