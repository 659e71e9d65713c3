//! The client of a connection: frames to it, and the requests that it has not answered yet.

use crate::{failure::ErrorResponse, record::SessionRecords};
use agentline_core::{Redactor, rpc};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
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
    oneshot, watch,
};

/// How many bytes may wait for a slow client before the agent's output is no longer read.
const MOST_WAITING: usize = 8 << 20;

/// A handle to the client. Cheap to clone.
///
/// An agent that outlives its client is detached from it, and attached to the next one.
#[derive(Clone, Debug)]
pub(crate) struct ClientPeer {
    queue: UnboundedSender<QueuedFrame>,
    client: Arc<watch::Sender<Client>>,
    records: SessionRecords,
    load: Arc<QueueLoad>,
    redactor: Arc<RwLock<Redactor>>,
    pending: Arc<Mutex<HashMap<String, oneshot::Sender<ClientAnswer>>>>,
    last: Arc<AtomicU64>,
}

/// The client's response to a request.
pub(crate) type ClientAnswer = Result<Box<RawValue>, String>;

/// One client after another.
#[derive(Clone, Debug)]
struct Client {
    number: u64,
    /// Where its frames go, unless it has disconnected.
    outgoing: Option<Sender<Vec<u8>>>,
}

/// A frame for one client.
#[derive(Debug)]
struct QueuedFrame {
    client: u64,
    frame: Vec<u8>,
}

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
        let (client, current) = watch::channel(Client { number: 0, outgoing: Some(outgoing) });
        tokio::spawn(forward(queued, current, Arc::clone(&load), ended));
        let peer = Self {
            queue,
            client: Arc::new(client),
            records: SessionRecords::default(),
            load,
            redactor: Arc::default(),
            pending: Arc::default(),
            last: Arc::default(),
        };
        (peer, end)
    }

    /// Detaches the client, which has disconnected. Frames are dropped until the next one is attached.
    pub(crate) fn detach(&self) {
        self.client.send_modify(|client| client.outgoing = None);
        self.lock().clear();
    }

    /// Attaches the next client. Frames for earlier ones are dropped.
    pub(crate) fn attach(&self, outgoing: Sender<Vec<u8>>) {
        self.client.send_modify(|client| {
            client.number += 1;
            client.outgoing = Some(outgoing);
        });
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.client.borrow().outgoing.is_some()
    }

    /// Returns the number of the current client.
    pub(crate) fn client_number(&self) -> u64 {
        self.client.borrow().number
    }

    /// Returns the records of the open sessions.
    pub(crate) fn records(&self) -> &SessionRecords {
        &self.records
    }

    /// Adds secrets that are redacted in frames to the client, besides those of other sessions.
    pub(crate) fn add_redactor(&self, redactor: &Redactor) {
        let mut all = self.redactor.write().unwrap_or_else(PoisonError::into_inner);
        *all = all.joined(redactor);
    }

    /// Queues a frame as it is.
    pub(crate) fn send_as_is(&self, frame: impl Into<Vec<u8>>) {
        let client = self.client.borrow();
        if client.outgoing.is_none() {
            return;
        }
        let queued = QueuedFrame { client: client.number, frame: frame.into() };
        self.load.bytes.fetch_add(queued.frame.len(), Ordering::Relaxed);
        // A disconnected client needs no frames.
        let _ = self.queue.send(queued);
    }

    /// Redacts a frame and queues it.
    pub(crate) fn send(&self, frame: &str) {
        self.send_as_is(self.redacted(frame));
    }

    fn redacted(&self, frame: &str) -> String {
        let redactor = self.redactor.read().unwrap_or_else(PoisonError::into_inner);
        redactor.text(frame.trim_end_matches('\n')).into_owned()
    }

    /// Sends an update of a session, and adds it to the record of the session.
    pub(crate) fn update(&self, session: &str, update: &Value) {
        let frame = self.redacted(&update_frame(session, update));
        self.records.push(session, &frame);
        self.send_as_is(frame);
    }

    /// Adds the client's prompt to the record of a session. The client itself knows it.
    pub(crate) fn record_prompt(&self, session: &str, blocks: &[Value]) {
        for block in blocks {
            let update = json!({"sessionUpdate": "user_message_chunk", "content": block});
            self.records.push(session, &self.redacted(&update_frame(session, &update)));
        }
    }

    /// Sends the recorded updates of a session.
    pub(crate) fn replay(&self, session: &str) {
        self.records.updates(session).into_iter().for_each(|frame| self.send_as_is(frame));
    }

    pub(crate) fn respond<T: Serialize>(&self, id: &RawValue, result: Result<T, ErrorResponse>) {
        match result {
            Ok(result) => self.send(&rpc::response(id, &result)),
            Err(error) => self.send(&rpc::error_response(id, &error)),
        }
    }

    /// Responds to a request of the client with this number, unless another one has taken its place.
    pub(crate) fn respond_to<T: Serialize>(
        &self,
        client: u64,
        id: &RawValue,
        result: Result<T, ErrorResponse>,
    ) {
        if client == self.client_number() {
            self.respond(id, result);
        }
    }

    /// Sends a request to the client and waits for the response. It waits for a person, so it has no clock of its own.
    pub(crate) async fn request(&self, method: &str, params: &impl Serialize) -> ClientAnswer {
        if !self.is_attached() {
            return Err("no client is connected".to_owned());
        }
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

    /// Returns whether few frames are waiting for the client.
    pub(crate) fn has_room(&self) -> bool {
        self.load.bytes.load(Ordering::Relaxed) < MOST_WAITING
    }

    /// Waits until few frames are waiting for the client.
    pub(crate) async fn wait_for_room(&self) {
        self.wait_until_below(MOST_WAITING).await;
    }

    /// Waits until no frames are waiting for the client.
    pub(crate) async fn wait_until_sent(&self) {
        self.wait_until_below(1).await;
    }

    async fn wait_until_below(&self, bytes: usize) {
        loop {
            let mut space = std::pin::pin!(self.load.space.notified());
            space.as_mut().enable();
            if self.load.bytes.load(Ordering::Relaxed) < bytes {
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
    mut queued: UnboundedReceiver<QueuedFrame>,
    mut current: watch::Receiver<Client>,
    load: Arc<QueueLoad>,
    _ended: Sender<()>,
) {
    while let Some(QueuedFrame { client, frame }) = queued.recv().await {
        let length = frame.len();
        let Client { number, outgoing } = current.borrow_and_update().clone();
        if let Some(outgoing) = outgoing.filter(|_| client == number) {
            tokio::select! {
                biased;
                // A disconnected client needs no frames.
                _ = outgoing.send(frame) => {}
                Ok(()) = current.changed() => {}
            }
        }
        load.bytes.fetch_sub(length, Ordering::Relaxed);
        load.space.notify_waiters();
    }
}

fn update_frame(session: &str, update: &Value) -> String {
    rpc::notification("session/update", &json!({"sessionId": session, "update": update}))
}
