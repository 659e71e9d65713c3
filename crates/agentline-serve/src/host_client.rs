//! A client of the host protocol in the same process. The server starts runs as any other host does.

use agentline::{
    Agentline,
    host::{
        self, HostOptions,
        messages::{PermissionQuestion, RpcError},
    },
};
use agentline_core::rpc::{self, RpcMessage};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The size of the pipes between the two sides.
const PIPE: usize = 256 << 10;

/// What the other side reports about runs.
pub(crate) enum HostReport {
    /// An event of a run.
    Event { run: String, head: EventHead, event: Box<RawValue> },
    /// A request for permission, with the id that the answer repeats.
    Permission { id: Box<RawValue>, question: PermissionQuestion },
}

type Answer = Result<Box<RawValue>, RpcError>;

/// A client of the host protocol.
#[derive(Debug)]
pub(crate) struct HostClient {
    lines: mpsc::UnboundedSender<String>,
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
    next: AtomicU64,
    stop: CancellationToken,
    serving: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
}

#[derive(Deserialize)]
struct EventParams<'a> {
    run: String,
    #[serde(borrow)]
    event: &'a RawValue,
}

/// The fields that every event has.
#[derive(Debug, Deserialize)]
pub(crate) struct EventHead {
    /// The number that the run gave to the event.
    pub(crate) seq: u64,
    /// The type of the event.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

impl HostClient {
    /// Starts the other side. Reports are passed to a function in their order.
    pub(crate) fn start<F, A>(agentline: Agentline, options: HostOptions, take: F) -> Arc<Self>
    where
        F: Fn(HostReport) -> A + Send + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let (read, write) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let serving =
            tokio::spawn(async move { host::serve(agentline, read, write, options, stopped).await });
        let (lines, outgoing) = mpsc::unbounded_channel();
        let client = Arc::new(Self {
            lines,
            pending: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
            stop,
            serving: Mutex::new(Some(serving)),
        });
        let (read, write) = tokio::io::split(ours);
        tokio::spawn(write_lines(write, outgoing));
        tokio::spawn(read_lines(Arc::clone(&client), read, take));
        client
    }

    /// Calls a method and returns its result as JSON.
    pub(crate) async fn call(&self, method: &str, params: &impl Serialize) -> Answer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let is_open = self.pending().as_mut().map(|pending| pending.insert(id, sender)).is_some();
        if !is_open || self.lines.send(rpc::request(id, method, params)).is_err() {
            return Err(stopping());
        }
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Calls a method and reads its result.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, RpcError> {
        let answer = self.call(method, params).await?;
        serde_json::from_str(answer.get()).map_err(|error| internal(error.to_string()))
    }

    /// Answers a request of the other side.
    pub(crate) fn answer(&self, id: &RawValue, result: &impl Serialize) {
        // If the other side is gone, so is the request.
        let _ = self.lines.send(rpc::response(id, result));
    }

    /// Cancels all runs and waits until no agent is left.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(serving) = serving {
            // A panic was reported by the runtime; there is nothing left to close.
            let _ = serving.await;
        }
    }

    fn take_answer(&self, id: &RawValue, answer: Answer) {
        let sender = id.get().parse().ok().and_then(|id: u64| self.pending().as_mut()?.remove(&id));
        if let Some(sender) = sender {
            // The caller may have stopped waiting.
            let _ = sender.send(answer);
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write_lines(mut to: WriteHalf<DuplexStream>, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if to.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_lines<F, A>(client: Arc<HostClient>, from: ReadHalf<DuplexStream>, take: F)
where
    F: Fn(HostReport) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let mut from = BufReader::with_capacity(PIPE, from);
    let mut line = String::new();
    while matches!(from.read_line(&mut line).await, Ok(1..)) {
        if let Some(report) = read_message(&client, &line) {
            take(report).await;
        }
        line.clear();
        line.shrink_to(PIPE);
    }
    // Nothing is answered any more.
    client.pending().take();
}

/// Handles an answer, or returns what is reported.
fn read_message(client: &HostClient, line: &str) -> Option<HostReport> {
    match rpc::parse(line).ok()? {
        RpcMessage::Response { id, result } => {
            let answer = result.map(ToOwned::to_owned).map_err(|error| rpc_error(&error));
            client.take_answer(id, answer);
            None
        }
        RpcMessage::Notification { method, params } if method == "run/event" => {
            let params: EventParams<'_> = serde_json::from_str(params.get()).ok()?;
            let head = serde_json::from_str(params.event.get()).ok()?;
            Some(HostReport::Event { run: params.run, head, event: params.event.to_owned() })
        }
        RpcMessage::Request { id, method, params } if method == "permission/ask" => {
            let question = serde_json::from_str(params.get()).ok()?;
            Some(HostReport::Permission { id: id.to_owned(), question })
        }
        _ => None,
    }
}

fn rpc_error(error: &rpc::JsonRpcError<'_>) -> RpcError {
    let mut copied = RpcError::new(error.code, error.message.clone());
    copied.data = error.data.and_then(|data| serde_json::from_str(data.get()).ok());
    copied
}

fn internal(message: String) -> RpcError {
    RpcError::new(-32603, message)
}

fn stopping() -> RpcError {
    RpcError::new(-32800, "the server is stopping")
}
