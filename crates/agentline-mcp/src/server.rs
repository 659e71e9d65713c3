//! The server: serves clients on streams or over HTTP, and the agents that it starts on a private socket.

use crate::{
    http,
    nested::NestedListener,
    options::AgentToolOptions,
    state::{ServerState, new_token},
    stream,
};
use agentline::{Agentline, Problems};
use std::{io, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};

/// Offers agents as MCP tools. Cheap to clone; clones share the budget.
#[derive(Clone)]
pub struct AgentToolServer {
    state: Arc<ServerState>,
}

impl std::fmt::Debug for AgentToolServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentToolServer").field("options", &self.state.options).finish_non_exhaustive()
    }
}

/// An error that ends a server before it serves anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpServerError {
    /// The socket for agents that start others cannot be created.
    #[error("cannot create the socket for inner agents")]
    Socket(#[source] io::Error),
    /// The address is not on this machine.
    #[error("`{0}` is not a loopback address; the server would be open to the network without encryption")]
    NotLoopback(SocketAddr),
    /// The address is not available.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
}

/// An HTTP server that accepts connections, but does not answer yet.
#[derive(Debug)]
#[must_use]
pub struct HttpEndpoint {
    server: AgentToolServer,
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

impl AgentToolServer {
    /// Creates a server. Reads the settings of the first root.
    ///
    /// # Errors
    /// Returns all problems of the options and of the settings.
    pub fn new(agentline: Agentline, options: AgentToolOptions) -> Result<Self, Problems> {
        Ok(Self { state: Arc::new(ServerState::new(agentline, options)?) })
    }

    /// Returns a new random token for [`listen`](Self::listen).
    #[must_use]
    pub fn new_token() -> String {
        new_token()
    }

    /// Serves one client until its input ends or `stop` completes. Its runs are over when this returns.
    ///
    /// # Errors
    /// Fails if the socket for inner agents cannot be created.
    pub async fn serve_stream(
        &self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), McpServerError> {
        let (state, scope) = (Arc::clone(&self.state), self.state.scope.clone());
        self.with_inner(stream::serve(state, scope, input, output, stop)).await
    }

    /// Listens on a loopback address. Port 0 chooses a free one.
    ///
    /// # Errors
    /// Fails if the address is not a loopback address or not available.
    pub async fn listen(&self, address: SocketAddr, token: String) -> Result<HttpEndpoint, McpServerError> {
        if !address.ip().is_loopback() {
            return Err(McpServerError::NotLoopback(address));
        }
        let failed = |error| McpServerError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(HttpEndpoint { server: self.clone(), listener, address, token })
    }

    /// Accepts inner servers while the future is in progress.
    async fn with_inner(&self, served: impl Future<Output = ()>) -> Result<(), McpServerError> {
        if !cfg!(unix) {
            served.await;
            return Ok(());
        }
        let listener = NestedListener::open().map_err(McpServerError::Socket)?;
        // A second call keeps the first socket, which also serves its agents.
        let _ = self.state.socket.set(listener.path().to_owned());
        tokio::select! {
            () = served => {}
            () = listener.accept(&self.state) => {}
        }
        Ok(())
    }
}

impl HttpEndpoint {
    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, http::PATH)
    }

    /// Serves clients until `stop` completes. Their runs are over when this returns.
    ///
    /// # Errors
    /// Fails if the socket for inner agents cannot be created.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), McpServerError> {
        let Self { server, listener, address, token } = self;
        let state = Arc::clone(&server.state);
        server.with_inner(http::serve(state, listener, address, token, stop)).await
    }
}
