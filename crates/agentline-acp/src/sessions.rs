//! Agents whose client has disconnected, until a client loads one of their sessions.

use crate::{
    failure::{ErrorResponse, INVALID_PARAMS},
    params::OpenSession,
    record::{SessionRecords, resolved},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{
    mpsc::{Receiver, Sender},
    oneshot,
};

/// How many agents wait at most. The oldest one ends when there are more.
const MOST_HELD: usize = 16;

/// The agents that wait for a client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HeldAgents {
    limit: Duration,
    entries: Arc<Mutex<Vec<HeldEntry>>>,
}

#[derive(Debug)]
struct HeldEntry {
    sessions: Vec<String>,
    command: oneshot::Sender<HeldCommand>,
}

/// A command to an agent that waits for a client.
#[derive(Debug)]
pub(crate) enum HeldCommand {
    /// A client has loaded one of its sessions.
    Reconnect(Reconnection),
    /// The agent ends and reports that it has ended.
    Close(oneshot::Sender<()>),
}

/// A client that takes over an agent.
#[derive(Debug)]
pub(crate) struct Reconnection {
    pub(crate) incoming: Receiver<Vec<u8>>,
    pub(crate) outgoing: Sender<Vec<u8>>,
    /// The frame that loads the session.
    pub(crate) first: Vec<u8>,
    /// Gets whether the client has disconnected, instead of the agent having exited.
    pub(crate) ended: oneshot::Sender<bool>,
}

/// Sends the only command to an agent that waits for a client.
pub(crate) type HeldTicket = oneshot::Sender<HeldCommand>;

/// How a connection continues after a frame.
#[derive(Debug)]
pub(crate) enum ServeEnd {
    Disconnected,
    AgentExited,
    /// The client gets an agent that has waited for it.
    Moves {
        to: HeldTicket,
        frame: Vec<u8>,
    },
}

/// Where a session is that a client loads.
pub(crate) enum KnownSession {
    /// It is open on this connection.
    Here(String),
    /// Its agent waits for a client.
    Held(HeldTicket),
    Unknown,
}

impl HeldAgents {
    /// Creates an empty set of agents, which wait for at most this time.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, entries: Arc::default() }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Adds an agent with its sessions. The receiver gets the command for it.
    pub(crate) fn add(&self, sessions: Vec<String>) -> oneshot::Receiver<HeldCommand> {
        let (command, receiver) = oneshot::channel();
        let mut entries = self.lock();
        entries.retain(|entry| !entry.command.is_closed());
        if entries.len() >= MOST_HELD {
            // Without its sender, the oldest one ends.
            entries.remove(0);
        }
        entries.push(HeldEntry { sessions, command });
        receiver
    }

    /// Returns the sessions of each agent that waits.
    pub(crate) fn sessions(&self) -> Vec<Vec<String>> {
        let entries = self.lock();
        entries
            .iter()
            .filter(|entry| !entry.command.is_closed())
            .map(|entry| entry.sessions.clone())
            .collect()
    }

    /// Takes the agent of a session.
    fn take(&self, session: &str) -> Option<HeldTicket> {
        let mut entries = self.lock();
        let has_session =
            |entry: &HeldEntry| !entry.command.is_closed() && entry.sessions.iter().any(|one| one == session);
        let found = entries.iter().position(has_session)?;
        Some(entries.remove(found).command)
    }

    /// Finds a session that a client loads. If the client already has other sessions, the agent that has waited for it
    /// ends, because two processes must not have one session.
    pub(crate) async fn find(
        &self,
        params: &OpenSession,
        records: &SessionRecords,
    ) -> Result<KnownSession, ErrorResponse> {
        let Some(session) = &params.session_id else { return Ok(KnownSession::Unknown) };
        if let Some(directory) = records.directory(session) {
            if directory == resolved(&params.cwd) {
                return Ok(KnownSession::Here(session.clone()));
            }
            let message = format!("the session `{session}` is in `{}`", directory.display());
            return Err(ErrorResponse::new(INVALID_PARAMS, message));
        }
        let Some(ticket) = self.take(session) else { return Ok(KnownSession::Unknown) };
        if records.sessions().is_empty() {
            return Ok(KnownSession::Held(ticket));
        }
        close(ticket).await;
        Ok(KnownSession::Unknown)
    }

    /// Ends all agents that wait.
    pub(crate) async fn close_all(&self) {
        let all = std::mem::take(&mut *self.lock());
        let mut closing = tokio::task::JoinSet::new();
        for entry in all {
            closing.spawn(close(entry.command));
        }
        closing.join_all().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HeldEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn close(ticket: HeldTicket) {
    let (done, is_gone) = oneshot::channel();
    if ticket.send(HeldCommand::Close(done)).is_ok() {
        // An agent that has ended by itself does not report it.
        let _ = is_gone.await;
    }
}
