//! Publishes committed events. This is a task of the runtime, which wakes many clients with less effort than a thread of
//! its own would.

use super::log::RunLog;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// What the writer has done.
pub(super) enum Committed {
    Events(PublishedEvents),
    /// The events of a run before this one were removed.
    Pruned(Arc<RunLog>, u64),
    /// The list of runs has changed.
    List,
    Flushed(oneshot::Sender<()>),
}

/// Committed events of one run.
pub(super) struct PublishedEvents {
    pub(super) log: Arc<RunLog>,
    pub(super) frames: Vec<Bytes>,
    pub(super) ended: bool,
}

/// Publishes what is committed, in its order, until the writer ends.
pub(super) async fn publish(
    mut committed: mpsc::UnboundedReceiver<Committed>,
    version: Arc<watch::Sender<u64>>,
) {
    while let Some(committed) = committed.recv().await {
        match committed {
            Committed::Events(PublishedEvents { log, frames, ended }) => log.publish(frames, ended),
            Committed::Pruned(log, first) => log.pruned(first),
            Committed::List => version.send_modify(|version| *version += 1),
            // The caller may have stopped waiting.
            Committed::Flushed(done) => drop(done.send(())),
        }
    }
}
