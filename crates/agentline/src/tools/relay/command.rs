//! A relayed server that is a program: started once, connected by its standard streams, killed with the run.

use super::{
    link::{ServerLink, ServerUnavailable},
    message::{self, NO_METHOD, RelayMessage, RelayReply},
};
use crate::process::{Process, ProcessEvent, ProcessExit, Spawn, StdStream};
use agentline_core::{LineSplitter, SplitItem, error_chain};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};
use tokio_util::sync::CancellationToken;

/// The maximum length of a line. Longer lines are ignored.
const LONGEST_LINE: usize = 64 << 20;
/// The number of bytes at the end of stderr that are kept for the error message.
const STDERR_TAIL: usize = 2 << 10;
/// How long a server may take to exit after its stdin is closed.
const EXIT_GRACE: Duration = Duration::from_millis(200);

type Waiting = HashMap<u64, oneshot::Sender<RelayReply>>;

/// The connection to a server's process.
pub(super) struct CommandLink {
    outbox: UnboundedSender<Vec<u8>>,
    /// Pending requests, or `Err` with the reason why the connection is closed.
    waiting: Mutex<Result<Waiting, String>>,
    next: AtomicU64,
}

impl CommandLink {
    pub(super) fn new() -> (Arc<Self>, UnboundedReceiver<Vec<u8>>) {
        let (outbox, frames) = unbounded_channel();
        (Arc::new(Self { outbox, waiting: Mutex::new(Ok(Waiting::new())), next: AtomicU64::new(1) }), frames)
    }

    pub(super) async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<RelayReply, ServerUnavailable> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match &mut *self.waiting() {
            Ok(waiting) => waiting.insert(id, sender),
            Err(error) => return Err(ServerUnavailable(error.clone())),
        };
        let _request = CommandRequest { link: self, id };
        self.send(message::request(id, method, params));
        receiver.await.map_err(|_| self.unavailable())
    }

    pub(super) fn notify(&self, method: &str, params: Option<&RawValue>) {
        self.send(message::notification(method, params));
    }

    fn send(&self, mut frame: Vec<u8>) {
        frame.push(b'\n');
        // Without a process, there are no pending requests either.
        let _ = self.outbox.send(frame);
    }

    fn unavailable(&self) -> ServerUnavailable {
        ServerUnavailable(self.waiting().as_ref().err().cloned().unwrap_or_else(|| "no response".into()))
    }

    fn close(&self, error: &str) {
        *self.waiting() = Err(error.to_owned());
    }

    fn waiting(&self) -> MutexGuard<'_, Result<Waiting, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles one line from the server.
    fn line(&self, text: &str, link: &ServerLink) {
        // Lines that are not messages are ignored, because servers print banners.
        let Some(message) = RelayMessage::parse(text.as_bytes()) else { return };
        if let Some((id, reply)) = message.reply() {
            let asker = self.waiting().as_mut().ok().and_then(|waiting| waiting.remove(&id));
            if let Some(asker) = asker {
                let _ = asker.send(reply);
            }
            return;
        }
        match (message.id, message.method) {
            (Some(id), Some(method)) => self.send(answer_of_ours(&method).frame(id)),
            (None, Some(_)) => link.forward_notification(text.as_bytes()),
            _ => {}
        }
    }
}

/// Returns the reply to a request from the server. The client declares no capabilities, so only `ping` is valid.
pub(super) fn answer_of_ours(method: &str) -> RelayReply {
    match method {
        "ping" => RelayReply::result(&json!({})),
        _ => RelayReply::error(NO_METHOD, "not supported by the client"),
    }
}

/// A pending request. Dropping it before the answer cancels the request on the server.
struct CommandRequest<'a> {
    link: &'a CommandLink,
    id: u64,
}

impl Drop for CommandRequest<'_> {
    fn drop(&mut self) {
        let left = self.link.waiting().as_mut().ok().and_then(|waiting| waiting.remove(&self.id));
        if left.is_some() {
            let params = message::raw(&Value::from_iter([("requestId", self.id)]));
            self.link.notify("notifications/cancelled", Some(&params));
        }
    }
}

/// Starts the program and exchanges messages until it exits or the run ends. Returns why it exited, unless the run
/// ended.
pub(super) async fn run_server(
    spawn: Spawn,
    transport: Arc<CommandLink>,
    mut frames: UnboundedReceiver<Vec<u8>>,
    link: Arc<ServerLink>,
    closed: CancellationToken,
) -> Option<String> {
    let mut process = match Process::spawn(spawn) {
        Ok(process) => process,
        Err(error) => {
            let error = format!("cannot start: {}", error_chain(&error));
            transport.close(&error);
            return Some(error);
        }
    };
    let mut lines = LineSplitter::new(LONGEST_LINE);
    let (mut bytes, mut stderr_tail) = (Vec::new(), Vec::new());
    let error = loop {
        tokio::select! {
            biased;
            () = closed.cancelled() => break None,
            Some(frame) = frames.recv() => process.write(frame),
            event = process.next(&mut bytes) => match event {
                ProcessEvent::Bytes(StdStream::Out) => lines.push(&bytes, |piece| {
                    if let SplitItem::Line(text) = piece {
                        transport.line(&text, &link);
                    }
                }),
                ProcessEvent::Bytes(StdStream::Err) => keep_last(&mut stderr_tail, &bytes),
                ProcessEvent::Message => {}
                ProcessEvent::Exit(exit) => break Some(ended(exit, &stderr_tail)),
            },
        }
        bytes.clear();
    };
    transport.close(error.as_deref().unwrap_or("the run has ended"));
    if error.is_none() {
        process.close_stdin();
        let _ = tokio::time::timeout(EXIT_GRACE, exited(&mut process)).await;
    }
    error
}

async fn exited(process: &mut Process) {
    let mut bytes = Vec::new();
    while let ProcessEvent::Bytes(_) = process.next(&mut bytes).await {
        bytes.clear();
    }
}

fn keep_last(tail: &mut Vec<u8>, bytes: &[u8]) {
    tail.extend_from_slice(&bytes[bytes.len().saturating_sub(STDERR_TAIL)..]);
    tail.drain(..tail.len().saturating_sub(STDERR_TAIL));
}

fn ended(exit: ProcessExit, stderr_tail: &[u8]) -> String {
    let exit_text = match exit {
        ProcessExit::Code(code) => format!("exited with code {code}"),
        ProcessExit::Signal(signal) => format!("killed by signal {signal}"),
        ProcessExit::Lost => "exited with an unknown status".into(),
    };
    match String::from_utf8_lossy(stderr_tail).trim() {
        "" => exit_text,
        output => format!("{exit_text}; last output: {output}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_stderr_is_kept() {
        let mut tail = Vec::new();
        for chunk in [vec![b'a'; 3000], b"bb".to_vec(), vec![b'c'; 2000]] {
            keep_last(&mut tail, &chunk);
        }
        assert_eq!(tail.len(), STDERR_TAIL);
        assert!(tail.starts_with(b"aaaa") && tail.ends_with(b"cc") && tail.contains(&b'b'));
        assert_eq!(
            ended(ProcessExit::Code(3), b" no such table \n"),
            "exited with code 3; last output: no such table"
        );
    }
}
