//! Writes to the agent's stdin in a separate task, so that an agent that does not read blocks no caller.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The queue of bytes for an agent's stdin.
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

    /// Queues bytes. They are discarded after a close, or if the agent has closed its end.
    pub(super) fn write(&self, frame: Vec<u8>) {
        let _ = self.queue.send(Some(frame));
    }

    /// Closes stdin after all queued bytes have been written.
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
        // An agent may close its stdin at any time; bytes that it does not read are discarded.
        if pipe.write_all(&frame).await.is_err() || pipe.flush().await.is_err() {
            return;
        }
    }
}
