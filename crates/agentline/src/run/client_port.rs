//! The messages between a client and an agent that speaks ACP, on their way through the loop of the agent's process.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How many bytes may wait for a slow client before the agent's output is no longer read.
const MOST_WAITING: usize = 8 << 20;

/// How many bytes may wait for the loop before the client must wait.
const MOST_UNREAD: usize = 8 << 20;

/// The side of the loop.
pub(crate) struct ClientPort {
    /// The client's messages, until the loop takes them.
    pub(crate) from_client: Option<FromClient>,
    to_client: UnboundedSender<String>,
    waiting: Arc<AtomicUsize>,
}

/// The messages of the client.
pub(crate) struct FromClient {
    messages: UnboundedReceiver<String>,
    unread: Arc<AtomicUsize>,
}

/// The side of the client.
#[derive(Debug)]
pub(crate) struct ClientMessages {
    to_agent: UnboundedSender<String>,
    from_agent: UnboundedReceiver<String>,
    waiting: Arc<AtomicUsize>,
    unread: Arc<AtomicUsize>,
}

/// Creates both sides.
pub(crate) fn client_port() -> (ClientPort, ClientMessages) {
    let ((to_agent, messages), (to_client, from_agent)) = (unbounded_channel(), unbounded_channel());
    let (waiting, unread) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let from_client = FromClient { messages, unread: Arc::clone(&unread) };
    let port = ClientPort { from_client: Some(from_client), to_client, waiting: Arc::clone(&waiting) };
    (port, ClientMessages { to_agent, from_agent, waiting, unread })
}

impl ClientPort {
    /// Queues a message for the client.
    pub(crate) fn send(&self, message: String) {
        self.waiting.fetch_add(message.len(), Ordering::Relaxed);
        // A client that is gone needs no messages.
        let _ = self.to_client.send(message);
    }

    /// Returns whether the client is slow.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > MOST_WAITING && !self.to_client.is_closed()
    }
}

impl ClientMessages {
    pub(crate) fn send(&self, message: String) {
        self.unread.fetch_add(message.len(), Ordering::Relaxed);
        // An agent that has exited reports that by the end of its messages.
        let _ = self.to_agent.send(message);
    }

    /// Returns whether the agent reads so little that the client should send no more.
    pub(crate) fn is_full(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > MOST_UNREAD && !self.to_agent.is_closed()
    }

    /// Returns the next message for the client, or `None` after the agent has exited. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let message = self.from_agent.recv().await?;
        self.waiting.fetch_sub(message.len(), Ordering::Relaxed);
        Some(message)
    }

    /// Returns the next message if there already is one.
    pub(crate) fn waiting(&mut self) -> Option<String> {
        let message = self.from_agent.try_recv().ok()?;
        self.waiting.fetch_sub(message.len(), Ordering::Relaxed);
        Some(message)
    }
}

/// Waits for the next message of a client. Without one, it never completes.
pub(crate) async fn next_message(from_client: &mut Option<FromClient>) -> String {
    if let Some(FromClient { messages, unread }) = from_client
        && let Some(message) = messages.recv().await
    {
        unread.fetch_sub(message.len(), Ordering::Relaxed);
        return message;
    }
    std::future::pending().await
}
