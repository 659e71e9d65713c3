//! Writes to the agent's stdin in a separate task, so that an agent that does not read blocks no caller.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// How many bytes may be queued before the caller should wait.
const MOST_QUEUED: usize = 8 << 20;

/// The queue of bytes for an agent's stdin.
#[derive(Debug)]
pub(super) struct Stdin {
    queue: UnboundedSender<Option<Vec<u8>>>,
    queued: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Stdin {
    /// Starts the task that writes to `pipe`.
    pub(super) fn start(pipe: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (queue, frames) = unbounded_channel();
        let queued = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(write_all(pipe, frames, Arc::clone(&queued)));
        Self { queue, queued, task }
    }

    /// Queues bytes. They are discarded after a close, or if the agent has closed its end.
    pub(super) fn write(&self, frame: Vec<u8>) {
        self.queued.fetch_add(frame.len(), Ordering::Relaxed);
        let _ = self.queue.send(Some(frame));
    }

    /// Returns whether the agent reads so little that the caller should wait.
    pub(super) fn is_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > MOST_QUEUED && !self.queue.is_closed()
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

async fn write_all(
    mut pipe: impl AsyncWrite + Unpin,
    mut frames: UnboundedReceiver<Option<Vec<u8>>>,
    queued: Arc<AtomicUsize>,
) {
    while let Some(Some(frame)) = frames.recv().await {
        // An agent may close its stdin at any time; bytes that it does not read are discarded.
        if pipe.write_all(&frame).await.is_err() || pipe.flush().await.is_err() {
            return;
        }
        queued.fetch_sub(frame.len(), Ordering::Relaxed);
    }
}
