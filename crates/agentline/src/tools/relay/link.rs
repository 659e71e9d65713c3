//! The state of a relayed server, shared by all kinds of connections: its health, and the listeners of its messages.

use crate::tools::side_sender::SideSender;
use hyper::body::Bytes;
use serde_json::{json, value::RawValue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    watch,
};

/// The reason why a server does not answer, worded to follow "MCP server `NAME` failed: ".
pub(super) struct ServerUnavailable(pub(super) String);

/// The health of a server: its `initialize` result, or the reason why it is dead.
type Health = Result<Arc<RawValue>, String>;

/// The state of one server.
pub(super) struct ServerLink {
    pub(super) name: String,
    side: SideSender,
    /// `None` while the server starts.
    health: watch::Sender<Option<Health>>,
    listeners: Mutex<Vec<UnboundedSender<Bytes>>>,
    last_error: Mutex<Option<String>>,
}

impl ServerLink {
    pub(super) fn new(name: String, side: SideSender) -> Arc<Self> {
        let health = watch::Sender::new(None);
        Arc::new(Self { name, side, health, listeners: Mutex::default(), last_error: Mutex::default() })
    }

    /// Waits until the server has started or failed.
    pub(super) async fn health(&self) -> Health {
        let mut health = self.health.subscribe();
        let known = health.wait_for(Option::is_some).await;
        known.ok().and_then(|known| known.clone()).unwrap_or_else(|| Err("the run has ended".into()))
    }

    pub(super) fn mark_ready(&self, introduction: Box<RawValue>) {
        self.health.send_replace(Some(Ok(introduction.into())));
    }

    /// Marks the server as dead, permanently.
    pub(super) fn mark_dead(&self, error: &str) {
        let dies = self.health.send_if_modified(|health| {
            let lived = !matches!(health, Some(Err(_)));
            if lived {
                *health = Some(Err(error.to_owned()));
            }
            lived
        });
        if dies {
            self.report_error(error);
        }
    }

    /// Reports an error. The same error is reported only once in a row.
    pub(super) fn report_error(&self, error: &str) {
        let mut last_error = locked(&self.last_error);
        if last_error.as_deref() != Some(error) {
            *last_error = Some(error.to_owned());
            self.side.send_line(&json!({"server": self.name, "error": error}));
        }
    }

    /// Reports that the agent listed these tools.
    pub(super) fn listed(&self, tools: &[String]) {
        self.side.send_line(&json!({"server": self.name, "tools": tools}));
    }

    /// Sends a notification from the server, such as a changed tool list, to all listeners as an event.
    pub(super) fn forward_notification(&self, message: &[u8]) {
        let mut event = b"event: message\ndata: ".to_vec();
        // A line break between JSON tokens is whitespace, but would end the event's data.
        event.extend(message.trim_ascii().iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
        event.extend_from_slice(b"\n\n");
        let event = Bytes::from(event);
        locked(&self.listeners).retain(|listener| listener.send(event.clone()).is_ok());
    }

    pub(super) fn listen(&self) -> UnboundedReceiver<Bytes> {
        let (sender, receiver) = unbounded_channel();
        locked(&self.listeners).push(sender);
        receiver
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
