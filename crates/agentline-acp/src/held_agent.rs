//! One agent of a client, of either kind, and its wait for another client.

use crate::{
    native::NativeAgent,
    peer::ClientPeer,
    proxy::ProxiedAgent,
    sessions::{HeldAgents, HeldCommand, ServeEnd},
};
use tokio::sync::mpsc::{Receiver, channel};

/// An agent that serves a client.
pub(crate) enum ServedAgent {
    Proxied(Box<ProxiedAgent>),
    Native(Box<NativeAgent>),
}

impl ServedAgent {
    /// Serves a client from this frame on, until it disconnects or the agent exits.
    pub(crate) async fn serve(
        &mut self,
        first: Option<Vec<u8>>,
        incoming: &mut Receiver<Vec<u8>>,
    ) -> ServeEnd {
        match self {
            Self::Proxied(agent) => agent.serve(first, incoming).await,
            Self::Native(agent) => agent.serve(first, incoming).await,
        }
    }

    /// Ends the agent and everything that was started for its client.
    pub(crate) async fn close(self) {
        match self {
            Self::Proxied(agent) => agent.close().await,
            Self::Native(agent) => agent.close().await,
        }
    }

    pub(crate) fn peer(&self) -> &ClientPeer {
        match self {
            Self::Proxied(agent) => agent.peer(),
            Self::Native(agent) => agent.peer(),
        }
    }

    /// Detaches the client. Prompts continue, and what they ask for is refused.
    fn client_left(&mut self) {
        match self {
            Self::Proxied(agent) => agent.client_left(),
            Self::Native(agent) => agent.peer().detach(),
        }
    }

    /// Keeps the agent, whose client has disconnected, while it has sessions and until its time is over.
    pub(crate) async fn wait_for_clients(mut self, held: HeldAgents) {
        loop {
            self.client_left();
            let sessions = self.peer().records().sessions();
            if sessions.is_empty() {
                return self.close().await;
            }
            let mut commands = held.add(sessions);
            let (_open, mut nothing) = channel(1);
            let command = tokio::select! {
                _ = self.serve(None, &mut nothing) => None,
                command = &mut commands => command.ok(),
                () = tokio::time::sleep(held.limit()) => None,
            };
            // From here on, no client can take it.
            commands.close();
            match command.or_else(|| commands.try_recv().ok()) {
                Some(HeldCommand::Reconnect(mut client)) => {
                    self.peer().attach(client.outgoing);
                    let end = self.serve(Some(client.first), &mut client.incoming).await;
                    let is_disconnected = !matches!(end, ServeEnd::AgentExited);
                    if !is_disconnected {
                        self.peer().wait_until_sent().await;
                        self.close().await;
                        // The connection may be gone.
                        let _ = client.ended.send(false);
                        return;
                    }
                    let _ = client.ended.send(true);
                }
                Some(HeldCommand::Close(_is_gone)) => return self.close().await,
                None => return self.close().await,
            }
        }
    }
}
