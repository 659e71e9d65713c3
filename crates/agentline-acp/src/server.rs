//! The entry point: an ACP agent for one client.

use crate::{
    native::NativeAgent,
    peer::ClientPeer,
    proxy::ProxiedAgent,
    transport::AcpTransport,
    workspace::{Workspace, WorkspaceSettings},
};
use agentline::{Problem, Problems, Surface};
use std::{path::Path, time::Duration};

/// How long the last frames may take after the client has disconnected.
const LAST_FRAMES: Duration = Duration::from_secs(1);

/// An ACP agent that serves clients with the agents of agentline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AcpServer {
    settings: WorkspaceSettings,
    translates: bool,
}

impl AcpServer {
    /// Creates a server. `configure` returns the settings for the directory that a client names for a session, or the
    /// reason why the client cannot use it. It must set the working directory of the request.
    pub fn new(configure: impl Fn(&Path) -> Result<Workspace, Problems> + Send + Sync + 'static) -> Self {
        Self { settings: WorkspaceSettings::new(configure), translates: false }
    }

    /// Translates the surface of every agent, also of those that speak ACP, so that all agents offer the same modes and
    /// options.
    #[must_use]
    pub fn translating(mut self) -> Self {
        self.translates = true;
        self
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
        let (peer, mut sent) = ClientPeer::new(outgoing);
        let settings = self.settings.clone();
        let is_disconnected = if surface == Some(Surface::Acp) && !self.translates {
            ProxiedAgent::new(settings, peer, first).serve(&mut incoming).await
        } else {
            NativeAgent::new(settings, peer).serve(&first, &mut incoming).await;
            true
        };
        // The client may have closed only its own direction.
        let _ = tokio::time::timeout(LAST_FRAMES, sent.recv()).await;
        Ok(if is_disconnected { ConnectionEnd::Disconnected } else { ConnectionEnd::AgentExited })
    }
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
