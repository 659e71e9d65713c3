//! Writes to the agent's stdin in a task of its own, so that an agent that does not read holds nobody up.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The queue to an agent's stdin.
#[derive(Debug)]
pub(super) struct Stdin {
    queue: UnboundedSender<Option<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Stdin {
    /// Starts the task that writes to `pipe`.
    pub(super) fn start(pipe: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (queue, frames) = unbounded_channel();
        Self { queue, task: tokio::spawn(write_all(pipe, frames)) }
    }

    /// Queues bytes. After the close, or when the agent has closed its end, they go nowhere.
    pub(super) fn write(&self, frame: Vec<u8>) {
        let _ = self.queue.send(Some(frame));
    }

    /// Closes stdin once all that was queued before is written.
    pub(super) fn close(&self) {
        let _ = self.queue.send(None);
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_all(mut pipe: impl AsyncWrite + Unpin, mut frames: UnboundedReceiver<Option<Vec<u8>>>) {
    while let Some(Some(frame)) = frames.recv().await {
        // An agent may close its stdin whenever it likes; what it does not read was not for it.
        if pipe.write_all(&frame).await.is_err() || pipe.flush().await.is_err() {
            return;
        }
    }
}
