//! The HTTP listener: one port on the loopback address for all runs of a runtime, with a path and a token for each run.
//!
//! It opens with the first run and closes with the last, so hundreds of warm runs share one port.

use super::{
    http_answer::{HttpAnswer, plain},
    relay::Relay,
    server::{LONGEST_REQUEST, McpToolServer},
};
use crate::tools::side_sender::SideSender;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use subtle::ConstantTimeEq;
use tokio::{
    net::TcpListener,
    runtime::{Handle, Id},
    task::{AbortHandle, JoinSet},
};

/// The maximum number of refused requests that are reported for a run.
const MAX_REPORTED_REFUSALS: u32 = 20;
/// The delay before accepting again when the process is out of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The listeners of this process: one for each runtime, since the tasks of a runtime end with it.
static LISTENERS: Mutex<Vec<(Id, Weak<Listener>)>> = Mutex::new(Vec::new());

/// An open port. Dropping the last reference closes it with every connection.
pub(super) struct Listener {
    address: SocketAddr,
    routes: Arc<Routes>,
    task: AbortHandle,
}

type Routes = Mutex<HashMap<String, Arc<Route>>>;

/// The servers of one run.
pub(super) struct Route {
    pub(super) token: String,
    pub(super) side: SideSender,
    pub(super) own: Option<McpToolServer>,
    /// Relayed servers by their name in the path.
    pub(super) foreign: HashMap<String, Arc<Relay>>,
    pub(super) refused: AtomicU32,
}

impl Listener {
    /// Returns the listener of this runtime, and opens it if necessary.
    pub(super) fn open() -> io::Result<Arc<Self>> {
        let runtime = Handle::try_current().map_err(io::Error::other)?.id();
        let mut listeners = locked(&LISTENERS);
        listeners.retain(|(_, listener)| listener.strong_count() > 0);
        let open =
            listeners.iter().filter(|(id, _)| *id == runtime).find_map(|(_, listener)| listener.upgrade());
        // The id of a runtime that ended may be reused, so check that the listener's task is still alive.
        if let Some(listener) = open.filter(|listener| !listener.task.is_finished()) {
            return Ok(listener);
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let routes = Arc::<Routes>::default();
        let task = tokio::spawn(keep(listener, address, Arc::clone(&routes))).abort_handle();
        let listener = Arc::new(Self { address, routes, task });
        listeners.push((runtime, Arc::downgrade(&listener)));
        Ok(listener)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}/r/{path}/mcp", self.address)
    }

    pub(super) fn enter(&self, run: &str, route: Route) {
        locked(&self.routes).insert(run.to_owned(), Arc::new(route));
    }

    pub(super) fn leave(&self, run: &str) {
        locked(&self.routes).remove(run);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The connections are tasks of this task and end with it.
        self.task.abort();
    }
}

async fn keep(listener: TcpListener, address: SocketAddr, routes: Arc<Routes>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Small responses must not be delayed.
                    let _ = stream.set_nodelay(true);
                    let routes = Arc::clone(&routes);
                    let service = service_fn(move |request| {
                        let routes = Arc::clone(&routes);
                        async move { Ok::<_, Infallible>(answer(request, address, &routes).await) }
                    });
                    connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(request: Request<Incoming>, address: SocketAddr, routes: &Routes) -> HttpAnswer {
    let Some((route, server)) = find(request.uri().path(), routes) else {
        return plain(StatusCode::NOT_FOUND, "not found");
    };
    if let Err((reason, status, message)) = check(&request, address, &route.token) {
        if route.refused.fetch_add(1, Ordering::Relaxed) < MAX_REPORTED_REFUSALS {
            route.side.send_line(&json!({ "refused": reason }));
        }
        return plain(status, message);
    }
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LONGEST_REQUEST).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large or incomplete");
    };
    let body = body.to_bytes();
    match server {
        None => match &route.own {
            Some(own) => own.answer(Request::from_parts(head, Full::new(body.clone())), &body).await,
            None => plain(StatusCode::NOT_FOUND, "no tools are offered"),
        },
        Some(server) => match route.foreign.get(&server) {
            Some(relay) => relay.answer(&head.method, &body).await,
            None => plain(StatusCode::NOT_FOUND, "no such server"),
        },
    }
}

/// Returns the run and relayed server of a path: `/r/RUN/mcp` or `/r/RUN/SERVER/mcp`.
fn find(path: &str, routes: &Routes) -> Option<(Arc<Route>, Option<String>)> {
    let path = path.strip_prefix("/r/")?.strip_suffix("/mcp")?;
    let (run, server) = match path.split_once('/') {
        Some((run, server)) => (run, Some(server.to_owned())),
        None => (path, None),
    };
    Some((locked(routes).get(run).cloned()?, server))
}

type Refusal = (&'static str, StatusCode, &'static str);

/// Checks the token, and refuses requests from web pages, which have another `Host` or an `Origin` header.
fn check(request: &Request<Incoming>, address: SocketAddr, token: &str) -> Result<(), Refusal> {
    let text = |name| request.headers().get(name).map(|value| value.as_bytes());
    let port = address.port();
    let own_hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            own_hosts.iter().any(|own_host| own_host.as_bytes().eq_ignore_ascii_case(host.as_bytes()))
        }
        _ => false,
    };
    if !named {
        return Err(("host", StatusCode::FORBIDDEN, "the Host header does not name this server"));
    }
    if text(header::ORIGIN).is_some() {
        return Err(("origin", StatusCode::FORBIDDEN, "requests from web pages are not allowed"));
    }
    let credentials = text(header::AUTHORIZATION).unwrap_or_default();
    let credentials = credentials
        .split_at_checked("Bearer ".len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    let good = credentials.is_some_and(|(_, credentials)| credentials.ct_eq(token.as_bytes()).into());
    if good { Ok(()) } else { Err(("token", StatusCode::UNAUTHORIZED, "the token is missing or invalid")) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
