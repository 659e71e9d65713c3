//! Serves clients over streamable HTTP: one path, a token, and an end for clients that are gone.
//!
//! A client of a protocol with sessions is its session. Requests of protocol 2026-07-28, which has none, belong
//! together to one client, because they have the same token.

use crate::{
    client::McpClient,
    handler::{AgentToolHandler, ClientSource},
    state::ServerState,
};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{SessionManager, local::LocalSessionManager},
};
use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use subtle::ConstantTimeEq;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// The path of the server.
pub(crate) const PATH: &str = "/mcp";
/// The header with the id of a session.
const SESSION: &str = "mcp-session-id";
/// The key of requests without a session.
const NO_SESSION: &str = "";
/// The maximum size of a request.
const LONGEST_REQUEST: usize = 4 << 20;
/// The maximum number of connections at the same time.
const MOST_CONNECTIONS: usize = 256;
/// How long a connection may take to send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// The delay before accepting again when the process is out of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

/// The server on one address.
struct McpEndpoint {
    state: Arc<ServerState>,
    token: String,
    service: StreamableHttpService<AgentToolHandler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Clients by their session.
    clients: Mutex<HashMap<String, Arc<HttpClient>>>,
}

/// A client with its activity.
struct HttpClient {
    tools: Arc<McpClient>,
    /// The number of requests and streams in progress.
    open: AtomicUsize,
    last: Mutex<Instant>,
}

/// Counts a request as in progress until its response has been sent or its connection is closed.
struct OpenRequest(Arc<HttpClient>);

/// Serves clients until `stop` completes. Returns after their runs are over.
pub(crate) async fn serve(
    state: Arc<ServerState>,
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    stop: impl Future<Output = ()>,
) {
    let shutdown = CancellationToken::new();
    let endpoint = Arc::new(McpEndpoint::new(state, address, token, &shutdown));
    tokio::select! {
        () = accept(&listener, &endpoint) => {}
        () = reap(&endpoint) => {}
        () = stop => {}
    }
    let clients: Vec<_> = endpoint.clients().drain().map(|(_, client)| client).collect();
    clients.iter().for_each(|client| client.tools.stop());
    for client in clients {
        client.tools.close().await;
    }
    shutdown.cancel();
}

async fn accept(listener: &TcpListener, endpoint: &Arc<McpEndpoint>) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Over the limit, the connection is closed.
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
                    // Small responses must not be delayed.
                    let _ = stream.set_nodelay(true);
                    let endpoint = Arc::clone(endpoint);
                    let service = service_fn(move |request| {
                        let endpoint = Arc::clone(&endpoint);
                        async move { Ok::<_, Infallible>(endpoint.answer(request).await) }
                    });
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD_TIME)
                        .serve_connection(TokioIo::new(stream), service);
                    connections.spawn(async move {
                        // A connection that fails concerns its client alone.
                        let _ = connection.await;
                        drop(slot);
                    });
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Ends the clients that have been idle for too long.
async fn reap(endpoint: &McpEndpoint) {
    let limit = endpoint.state.options.idle_end;
    loop {
        sleep((limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(5))).await;
        // Under the lock, so that none of them becomes active before it is removed.
        let idle: Vec<_> = endpoint.clients().extract_if(|_, client| client.is_idle(limit)).collect();
        idle.iter().for_each(|(_, client)| client.tools.stop());
        for (session, _) in idle {
            endpoint.close_session(&session).await;
        }
    }
}

impl McpEndpoint {
    fn new(
        state: Arc<ServerState>,
        address: SocketAddr,
        token: String,
        shutdown: &CancellationToken,
    ) -> Self {
        let port = address.port();
        let hosts = [format!("{address}"), format!("localhost:{port}"), format!("127.0.0.1:{port}")];
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_max_request_body_bytes(LONGEST_REQUEST)
            .with_cancellation_token(shutdown.clone())
            // No web page may use the server.
            .enforce_origin_validation();
        let mut sessions = LocalSessionManager::default();
        // The endpoint decides when a client is idle, because it also counts open streams.
        sessions.session_config.keep_alive = None;
        let sessions = Arc::new(sessions);
        let handler = AgentToolHandler { state: Arc::clone(&state), client: ClientSource::OfRequest };
        let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::clone(&sessions), config);
        Self { state, token, service, sessions, clients: Mutex::default() }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> HttpAnswer {
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "not found");
        }
        if !self.is_authorized(&request) {
            let mut answer = plain(StatusCode::UNAUTHORIZED, "the token is missing or invalid");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            return answer;
        }
        // A body without a known length is limited while it is read.
        if request.body().size_hint().lower() > LONGEST_REQUEST as u64 {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
        }
        let session = session_of(request.headers());
        let is_end = request.method() == Method::DELETE;
        // An unknown session gets the answer of the protocol: 404.
        let open = match &session {
            Some(session) => self.clients().get(session).map(OpenRequest::of),
            None => Some(self.open_request(NO_SESSION)),
        };
        if let Some(open) = &open {
            request.extensions_mut().insert(Arc::clone(&open.0.tools));
        }
        let answer = self.service.handle(request).await;
        let open = match session_of(answer.headers()).filter(|_| session.is_none()) {
            Some(new) => Some(self.open_request(&new)),
            None => open,
        };
        if let Some(session) = session.filter(|_| is_end && answer.status().is_success()) {
            self.end(&session).await;
        }
        answer.map(|body| {
            body.map_frame(move |frame| {
                // The request is in progress until its body is dropped.
                let _ = &open;
                frame
            })
            .boxed()
        })
    }

    fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let value = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let credentials = value
            .and_then(|value| value.split_at_checked("Bearer ".len()))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
        credentials.is_some_and(|(_, token)| token.ct_eq(self.token.as_bytes()).into())
    }

    /// Counts a request of a client, which is new or known.
    fn open_request(&self, session: &str) -> OpenRequest {
        let mut clients = self.clients();
        OpenRequest::of(clients.entry(session.to_owned()).or_insert_with(|| {
            Arc::new(HttpClient {
                tools: McpClient::new(self.state.scope.clone()),
                open: AtomicUsize::new(0),
                last: Mutex::new(Instant::now()),
            })
        }))
    }

    /// Ends a client and its runs.
    async fn end(&self, session: &str) {
        let ended = self.clients().remove(session);
        if let Some(client) = ended {
            client.tools.stop();
        }
        self.close_session(session).await;
    }

    async fn close_session(&self, session: &str) {
        if session != NO_SESSION {
            // The session may be closed already.
            let _ = self.sessions.close_session(&session.into()).await;
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpClient>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpClient {
    fn is_idle(&self, limit: Duration) -> bool {
        self.open.load(Ordering::SeqCst) == 0
            && self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= limit
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl OpenRequest {
    fn of(client: &Arc<HttpClient>) -> Self {
        client.touch();
        client.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(client))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.touch();
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn session_of(headers: &header::HeaderMap) -> Option<String> {
    headers.get(SESSION)?.to_str().ok().map(str::to_owned)
}

fn plain(status: StatusCode, message: &'static str) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
