//! A hold on a live agent: runs take their places on it, and it goes when nobody holds it any more.

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

/// A live process, before its loop begins.
pub(crate) struct Live {
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    /// What must not leave in any output, whichever run it is of.
    pub(crate) secrets: Vec<String>,
    pub(crate) tape: Option<TapeFile>,
    pub(crate) max_line: usize,
    pub(crate) begun: Instant,
    /// Removed when the process is gone: its private folder, and the workspace where that was made for it.
    pub(crate) private: (PrivateDir, Option<Arc<PrivateDir>>),
    /// What the agent's safety rests on.
    pub(crate) integrity: Arc<Integrity>,
    /// What may have to go back to the user from the private folder.
    pub(crate) copy_back: Vec<(PathBuf, PathBuf)>,
    /// Runs that want a place. When nobody can send one any more, the process is retired.
    pub(crate) boarding: UnboundedReceiver<Boarding>,
    pub(crate) bell: Bell,
    pub(crate) state: watch::Sender<LiveState>,
    pub(crate) gone: Gone,
    /// The process does not end with a run by itself.
    pub(crate) lives_on: bool,
    /// A session that the agent began at its start though nobody asked for it.
    pub(crate) litter: Option<Litter>,
    pub(crate) temp: ProcessTemp,
}

/// How a live process stands, for those who choose one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LiveState {
    /// It has answered.
    pub(crate) ready: bool,
    /// It takes no more runs.
    pub(crate) closed: bool,
    /// How many runs are on it.
    pub(crate) seats: usize,
    /// How many of them are still opening their session.
    pub(crate) opening: usize,
    /// How many it has had.
    pub(crate) served: u32,
    /// What they have used together, as far as it was told.
    pub(crate) spent: Spent,
}

/// A live agent process. Dropping it retires the process: it goes when its runs are over.
#[derive(Debug)]
pub(crate) struct LiveHandle {
    board: UnboundedSender<Boarding>,
    bell: Bell,
    state: watch::Receiver<LiveState>,
    gone: Gone,
    task: JoinHandle<()>,
    launched: Launched,
    veil: Veil,
    /// The folder that stands for the agent's home.
    pub(crate) agent_home: Arc<AgentHome>,
    /// What the agent's safety rests on.
    integrity: Arc<Integrity>,
    /// The agent's process.
    pub(crate) pid: Option<u32>,
}

impl LiveHandle {
    /// Starts a process. `mark` is on everything that it starts.
    pub(crate) fn start(inner: &Inner, start: Start, mark: &str, begun: Instant) -> Result<Self, SpawnError> {
        Self::start_by(Bell::default(), inner, start, mark, begun)
    }

    /// As [`start`](Self::start), for a run that has its link already.
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

    /// Gives a run a place. Where the process is gone meanwhile, the run's outcome says so.
    pub(crate) fn run(&self, trip: Trip, tell: Tell) -> Run {
        let run_id = trip.order.who.run_id.clone();
        Run::new(run_id, self.board(trip, tell), self.launched.clone()).veiled(self.veil.clone())
    }

    /// As [`run`](Self::run), for those who look after the run themselves.
    pub(crate) fn board(&self, trip: Trip, tell: Tell) -> Held {
        let (driven, held) = link(Bell::clone(&self.bell));
        self.take(trip.board(driven, tell));
        held
    }

    /// Gives a run a place whose link rings this process's bell.
    pub(crate) fn take(&self, boarding: Boarding) {
        if let Err(gone) = self.board.send(boarding) {
            refuse(gone.0, self.gone.get());
        }
    }

    /// Whether all files that the agent's safety rests on are as they were. Looks at the disk for a moment.
    pub(crate) fn is_intact(&self) -> bool {
        self.integrity.change().is_none()
    }

    /// How the process stands now.
    pub(crate) fn state(&self) -> LiveState {
        self.state.borrow().clone()
    }

    /// Tells how the process stands, until its loop is over.
    pub(crate) fn watch(&self) -> watch::Receiver<LiveState> {
        self.state.clone()
    }

    /// Waits until the process stands so, or is gone. Says how it stands then.
    pub(crate) async fn wait_for(&self, mut so: impl FnMut(&LiveState) -> bool) -> LiveState {
        let mut state = self.state.clone();
        match state.wait_for(|now| now.closed || so(now)).await {
            Ok(now) => now.clone(),
            Err(_) => LiveState { closed: true, ..LiveState::default() },
        }
    }

    /// Lets the process go and waits until it is gone.
    pub(crate) async fn close(self) {
        let Self { board, task, .. } = self;
        drop(board);
        // A loop that panicked has taken its process with it.
        let _ = task.await;
    }
}
