//! The entry point: an ACP agent for one client.

use crate::{
    held_agent::ServedAgent,
    native::NativeAgent,
    peer::ClientPeer,
    proxy::ProxiedAgent,
    sessions::{HeldAgents, Reconnection, ServeEnd},
    transport::AcpTransport,
    workspace::{Workspace, WorkspaceSettings},
};
use agentline::{Problem, Problems, Surface};
use std::{path::Path, time::Duration};
use tokio::sync::{mpsc::Receiver, oneshot};

/// How long the last frames may take after the client has disconnected.
const LAST_FRAMES: Duration = Duration::from_secs(1);

/// An ACP agent that serves clients with the agents of agentline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AcpServer {
    settings: WorkspaceSettings,
    translates: bool,
    held: Option<HeldAgents>,
}

impl AcpServer {
    /// Creates a server. `configure` returns the settings for the directory that a client names for a session, or the
    /// reason why the client cannot use it. It must set the working directory of the request.
    pub fn new(configure: impl Fn(&Path) -> Result<Workspace, Problems> + Send + Sync + 'static) -> Self {
        Self { settings: WorkspaceSettings::new(configure), translates: false, held: None }
    }

    /// Translates the surface of every agent, also of those that speak ACP, so that all agents offer the same modes and
    /// options.
    #[must_use]
    pub fn translating(mut self) -> Self {
        self.translates = true;
        self
    }

    /// Keeps the agents of a client that disconnects for this long, with their sessions. Prompts continue, and
    /// their requests to the client are refused. A client that loads one of these sessions gets the agent with all of them,
    /// and all updates so far. All clients of this server can load them, so clients that must not share sessions need their own one.
    #[must_use]
    pub fn keeping_sessions(mut self, time: Duration) -> Self {
        self.held = Some(HeldAgents::new(time));
        self
    }

    /// Returns the sessions of each agent that is kept for clients that have disconnected.
    #[must_use]
    pub fn kept_sessions(&self) -> Vec<Vec<String>> {
        self.held.as_ref().map(HeldAgents::sessions).unwrap_or_default()
    }

    /// Ends all agents that are kept for clients that have disconnected.
    pub async fn close_kept_sessions(&self) {
        if let Some(held) = &self.held {
            held.close_all().await;
        }
    }

    /// Checks the settings for a directory. Starts nothing.
    ///
    /// # Errors
    /// Returns all problems, such as an agent that has no surface for conversations.
    pub fn check(&self, directory: impl AsRef<Path>) -> Result<(), Problems> {
        let Workspace { agentline, mut request } = self.settings.of(directory.as_ref())?;
        request.surface = agentline.live_surface(&request)?;
        if request.surface.is_none() {
            let problem =
                Problem::new("agent", format!("`{}` has no surface for conversations", request.agent));
            return Err(problem.hint("use another agent").into());
        }
        request.prompt = "prompt of a client".to_owned();
        request.needs_live = true;
        agentline.validate(&request)
    }

    /// Serves one client until it disconnects or the agent exits, and ends everything that was started for it. `directory`
    /// is where the agent starts before the client has named the directory of a session.
    ///
    /// # Errors
    /// Fails if the settings for `directory` are invalid. Nothing was started in that case.
    pub async fn serve(
        &self,
        directory: impl AsRef<Path>,
        transport: AcpTransport,
    ) -> Result<ConnectionEnd, agentline::Error> {
        let first = self.settings.of(directory.as_ref())?;
        let surface = first.agentline.live_surface(&first.request)?;
        let AcpTransport { mut incoming, outgoing } = transport;
        let (peer, sent) = ClientPeer::new(outgoing.clone());
        let (settings, held) = (self.settings.clone(), self.held.clone());
        let mut agent = if surface == Some(Surface::Acp) && !self.translates {
            ServedAgent::Proxied(Box::new(ProxiedAgent::new(settings, peer, first, held)))
        } else {
            ServedAgent::Native(Box::new(NativeAgent::new(settings, peer, first, held)))
        };
        let end = match agent.serve(None, &mut incoming).await {
            ServeEnd::Moves { to, frame } => {
                let (ended, is_disconnected) = oneshot::channel();
                let client = Reconnection { incoming, outgoing, first: frame, ended };
                tokio::spawn(agent.pass_on(to, client));
                return Ok(ConnectionEnd::of(is_disconnected.await.unwrap_or(false)));
            }
            end => end,
        };
        drop(outgoing);
        let is_disconnected = matches!(end, ServeEnd::Disconnected);
        if let Some(held) = self.held.as_ref().filter(|_| is_disconnected)
            && let Some(commands) = agent.begin_waiting(held)
        {
            tokio::spawn(agent.wait_for_clients(held.clone(), commands));
        } else {
            finish(agent, sent).await;
        }
        Ok(ConnectionEnd::of(is_disconnected))
    }
}

/// Ends an agent after its last frames are sent.
async fn finish(agent: ServedAgent, mut sent: Receiver<()>) {
    agent.close().await;
    // The client may have closed only its own direction.
    let _ = tokio::time::timeout(LAST_FRAMES, sent.recv()).await;
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// The client has disconnected.
    Disconnected,
    /// The agent has exited. The client has got a response to each of its requests.
    AgentExited,
}

impl ConnectionEnd {
    fn of(is_disconnected: bool) -> Self {
        if is_disconnected { Self::Disconnected } else { Self::AgentExited }
    }
}
