//! A server on loopback with a thread for each connection, all of which end when it is dropped.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::http::{HttpConnection, Incoming};

/// Whether the connection can serve another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Open,
    Closed,
}

/// Answers one request. The last argument sleeps, and returns `false` when the server is being stopped.
type Answer =
    Box<dyn Fn(Incoming, &mut HttpConnection, &dyn Fn(u64) -> bool) -> io::Result<After> + Send + Sync>;

/// A server that serves until it is dropped.
pub(crate) struct LoopbackServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Answer,
    /// The open connections, and whether the server is being stopped.
    open: Mutex<Open>,
    stopping: Condvar,
}

#[derive(Default)]
struct Open {
    stopped: bool,
    next_id: u64,
    connections: HashMap<u64, (TcpStream, Option<JoinHandle<()>>)>,
}

impl LoopbackServer {
    /// Serves on a free port.
    pub(crate) fn start(
        answer: impl Fn(Incoming, &mut HttpConnection, &dyn Fn(u64) -> bool) -> io::Result<After>
        + Send
        + Sync
        + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let answer: Answer = Box::new(answer);
        let shared = Arc::new(Shared { answer, open: Mutex::default(), stopping: Condvar::new() });
        let acceptor = thread::Builder::new().name("scripted-model".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        })?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Returns the base address, without a trailing slash.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        lock(&self.shared.open).stopped = true;
        self.shared.stopping.notify_all();
        // The acceptor notices the end when another client connects.
        let woken = TcpStream::connect(self.address);
        if let (Ok(_), Some(acceptor)) = (woken, self.acceptor.take()) {
            let _ = acceptor.join();
        }
        let connections = std::mem::take(&mut lock(&self.shared.open).connections);
        for (stream, _) in connections.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in connections.into_values().filter_map(|(_, thread)| thread) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut open = lock(&shared.open);
        if open.stopped {
            return;
        }
        let Ok(stream) = stream else { continue };
        let (Ok(control), Ok(connection)) = (stream.try_clone(), HttpConnection::new(stream)) else {
            continue;
        };
        open.next_id += 1;
        let id = open.next_id;
        open.connections.insert(id, (control, None));
        let spawned = thread::Builder::new().name(format!("scripted-model-{id}")).spawn({
            let shared = Arc::clone(shared);
            move || {
                // A panicking responder must not leave its client waiting forever.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| serve(connection, &shared)));
                // A thread that is being joined no longer has an entry, and needs none.
                lock(&shared.open).connections.remove(&id);
            }
        });
        match (spawned, open.connections.get_mut(&id)) {
            (Ok(thread), Some((_, slot))) => *slot = Some(thread),
            _ => drop(open.connections.remove(&id)),
        }
    }
}

/// Serves the requests of one connection until either side closes it.
fn serve(mut connection: HttpConnection, shared: &Shared) {
    let wait = |millis| shared.wait(millis);
    while let Ok(Some(incoming)) = connection.next_request() {
        let closes_connection = incoming.closes_connection();
        match (shared.answer)(incoming, &mut connection, &wait) {
            Ok(After::Open) if !closes_connection => {}
            _ => break,
        }
    }
    connection.drop_now();
}

impl Shared {
    /// Sleeps. Returns `false` if the server is stopped meanwhile.
    fn wait(&self, millis: u64) -> bool {
        let timeout = Duration::from_millis(millis);
        let waited = self.stopping.wait_timeout_while(lock(&self.open), timeout, |open| !open.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

/// Locks a mutex even if another test panicked, so that what was recorded stays available.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
