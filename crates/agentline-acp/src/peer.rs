//! The client of a connection: frames to it, and the requests that it has not answered yet.

use crate::failure::ErrorResponse;
use agentline_core::{Redactor, rpc};
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::{
    Notify,
    mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel},
    oneshot,
};

/// How many bytes may wait for a slow client before the agent's output is no longer read.
const MOST_WAITING: usize = 8 << 20;

/// A handle to the client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ClientPeer {
    queue: UnboundedSender<Vec<u8>>,
    load: Arc<QueueLoad>,
    redactor: Arc<RwLock<Redactor>>,
    pending: Arc<Mutex<HashMap<String, oneshot::Sender<ClientAnswer>>>>,
    last: Arc<AtomicU64>,
}

/// The client's response to a request.
pub(crate) type ClientAnswer = Result<Box<RawValue>, String>;

#[derive(Debug, Default)]
struct QueueLoad {
    bytes: AtomicUsize,
    space: Notify,
}

impl ClientPeer {
    /// Creates a client whose frames go to `outgoing`. The task that sends them ends when all handles are dropped.
    pub(crate) fn new(outgoing: Sender<Vec<u8>>) -> (Self, Receiver<()>) {
        let (queue, queued) = unbounded_channel();
        let (ended, end) = channel(1);
        let load = Arc::<QueueLoad>::default();
        tokio::spawn(forward(queued, outgoing, Arc::clone(&load), ended));
        let peer =
            Self { queue, load, redactor: Arc::default(), pending: Arc::default(), last: Arc::default() };
        (peer, end)
    }

    /// Sets the secrets that are redacted in frames to the client.
    pub(crate) fn set_redactor(&self, redactor: Redactor) {
        *self.redactor.write().unwrap_or_else(PoisonError::into_inner) = redactor;
    }

    /// Queues a frame as it is.
    pub(crate) fn send_as_is(&self, frame: impl Into<Vec<u8>>) {
        let frame = frame.into();
        self.load.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        // A client that is gone needs no frames.
        let _ = self.queue.send(frame);
    }

    /// Redacts a frame and queues it.
    pub(crate) fn send(&self, frame: &str) {
        let redactor = self.redactor.read().unwrap_or_else(PoisonError::into_inner);
        self.send_as_is(redactor.text(frame.trim_end_matches('\n')).into_owned());
    }

    pub(crate) fn notify(&self, method: &str, params: &impl Serialize) {
        self.send(&rpc::notification(method, params));
    }

    pub(crate) fn respond<T: Serialize>(&self, id: &RawValue, result: Result<T, ErrorResponse>) {
        match result {
            Ok(result) => self.send(&rpc::response(id, &result)),
            Err(error) => self.send(&rpc::error_response(id, &error)),
        }
    }

    /// Sends a request to the client and waits for the response. It waits for a person, so it has no clock of its own.
    pub(crate) async fn request(&self, method: &str, params: &impl Serialize) -> ClientAnswer {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, answer) = oneshot::channel();
        self.lock().insert(id.to_string(), reply);
        let _forget = ForgetRequest { peer: self, id };
        self.send(&rpc::request(id, method, params));
        answer.await.unwrap_or_else(|_| Err("the client disconnected".to_owned()))
    }

    /// Passes on a response of the client. Returns whether a request was waiting for it.
    pub(crate) fn answered(&self, id: &RawValue, answer: ClientAnswer) -> bool {
        let reply = self.lock().remove(id.get().trim_matches('"'));
        reply.is_some_and(|reply| reply.send(answer).is_ok())
    }

    /// Waits until few frames are waiting for the client.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let mut space = std::pin::pin!(self.load.space.notified());
            space.as_mut().enable();
            if self.load.bytes.load(Ordering::Relaxed) < MOST_WAITING {
                return;
            }
            space.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<ClientAnswer>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a request that is no longer waited for.
struct ForgetRequest<'a> {
    peer: &'a ClientPeer,
    id: u64,
}

impl Drop for ForgetRequest<'_> {
    fn drop(&mut self) {
        self.peer.lock().remove(&self.id.to_string());
    }
}

async fn forward(
    mut queued: UnboundedReceiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
    load: Arc<QueueLoad>,
    _ended: Sender<()>,
) {
    while let Some(frame) = queued.recv().await {
        let length = frame.len();
        let sent = outgoing.send(frame).await;
        load.bytes.fetch_sub(length, Ordering::Relaxed);
        load.space.notify_waiters();
        if sent.is_err() {
            // The client is gone, so nothing waits for it any more.
            load.bytes.store(0, Ordering::Relaxed);
        }
    }
}
