//! One agent of a client, of either kind, and its wait for another client.

use crate::{
    native::NativeAgent,
    peer::ClientPeer,
    proxy::ProxiedAgent,
    sessions::{HeldAgents, HeldCommand, HeldTicket, Reconnection, ServeEnd},
};
use tokio::sync::{
    mpsc::{Receiver, channel},
    oneshot,
};

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

    /// Passes the client on to an agent that has waited for it, and ends this one.
    pub(crate) async fn pass_on(self, to: HeldTicket, client: Reconnection) {
        self.peer().wait_until_sent().await;
        // An agent that has exited meanwhile ends the connection, and the client can load the session again.
        let _ = to.send(HeldCommand::Reconnect(client));
        self.close().await;
    }

    pub(crate) fn peer(&self) -> &ClientPeer {
        match self {
            Self::Proxied(agent) => agent.peer(),
            Self::Native(agent) => agent.peer(),
        }
    }

    /// Detaches the client. Prompts continue, and their requests for permission are refused.
    fn client_left(&mut self) {
        match self {
            Self::Proxied(agent) => agent.client_left(),
            Self::Native(agent) => agent.peer().detach(),
        }
    }

    /// Detaches the client, which has disconnected. If there are sessions, other clients can take the agent from now on.
    pub(crate) fn begin_waiting(&mut self, held: &HeldAgents) -> Option<oneshot::Receiver<HeldCommand>> {
        self.client_left();
        let sessions = self.peer().records().sessions();
        (!sessions.is_empty()).then(|| held.add(sessions))
    }

    /// Waits for the next clients and serves them, until the agent exits or has waited for too long.
    pub(crate) async fn wait_for_clients(
        mut self,
        held: HeldAgents,
        mut commands: oneshot::Receiver<HeldCommand>,
    ) {
        loop {
            let (_open, mut nothing) = channel(1);
            let command = tokio::select! {
                _ = self.serve(None, &mut nothing) => None,
                command = &mut commands => command.ok(),
                () = tokio::time::sleep(held.limit()) => None,
            };
            // From here on, no client can take it.
            commands.close();
            let client = match command.or_else(|| commands.try_recv().ok()) {
                Some(HeldCommand::Reconnect(client)) => client,
                Some(HeldCommand::Close(gone)) => {
                    self.close().await;
                    // The server may not wait for it.
                    let _ = gone.send(());
                    return;
                }
                None => return self.close().await,
            };
            let Reconnection { mut incoming, outgoing, first, ended } = client;
            self.peer().attach(outgoing.clone());
            let is_disconnected = match self.serve(Some(first), &mut incoming).await {
                ServeEnd::Moves { to, frame } => {
                    let client = Reconnection { incoming, outgoing, first: frame, ended };
                    return self.pass_on(to, client).await;
                }
                ServeEnd::Disconnected => true,
                ServeEnd::AgentExited => false,
            };
            // The connection must not wait for an agent that waits for the next client.
            drop(outgoing);
            let next = if is_disconnected { self.begin_waiting(&held) } else { None };
            let Some(next) = next else {
                self.peer().wait_until_sent().await;
                self.close().await;
                // The connection may be closed.
                let _ = ended.send(is_disconnected);
                return;
            };
            commands = next;
            let _ = ended.send(is_disconnected);
        }
    }
}
