//! The entry point: an ACP agent for one client.

use crate::{
    native::NativeAgent,
    peer::ClientPeer,
    transport::AcpTransport,
    workspace::{Workspace, WorkspaceSettings},
};
use agentline::Problems;
use std::{path::Path, time::Duration};

/// How long the last frames may take after the client has disconnected.
const LAST_FRAMES: Duration = Duration::from_secs(1);

/// An ACP agent that serves clients with the agents of agentline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AcpServer {
    settings: WorkspaceSettings,
}

impl AcpServer {
    /// Creates a server. `configure` returns the settings for the directory that a client names for a session, or the
    /// reason why the client cannot use it. It must set the working directory of the request.
    pub fn new(configure: impl Fn(&Path) -> Result<Workspace, Problems> + Send + Sync + 'static) -> Self {
        Self { settings: WorkspaceSettings::new(configure) }
    }

    /// Serves one client until it disconnects, and ends everything that was started for it. `directory` is where the agent
    /// starts before the client has named the directory of a session.
    ///
    /// # Errors
    /// Fails if the settings for `directory` are invalid. Nothing was started in that case.
    pub async fn serve(
        &self,
        directory: impl AsRef<Path>,
        transport: AcpTransport,
    ) -> Result<(), agentline::Error> {
        let first = self.settings.of(directory.as_ref())?;
        let AcpTransport { mut incoming, outgoing } = transport;
        let (peer, mut sent) = ClientPeer::new(outgoing);
        NativeAgent::new(self.settings.clone(), peer.clone()).serve(&first, &mut incoming).await;
        drop(peer);
        // The client may have closed only its own direction.
        let _ = tokio::time::timeout(LAST_FRAMES, sent.recv()).await;
        Ok(())
    }
}
