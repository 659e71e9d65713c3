//! The stream of a run's events for one client, which reads from the shared log at its own pace.

use crate::{
    messages::Resync,
    ongoing_run::AttachedClient,
    store::{Position, RunLog, Store, frame},
};
use axum::body::{Body, Bytes};
use futures_util::{StreamExt as _, stream};
use std::{convert::Infallible, sync::Arc, time::Duration};

/// How much a client reads from the database at once in bytes. One event may be larger.
const PAGE: usize = 8 << 10;
/// How many events a client reads from the database at once.
const PAGE_EVENTS: usize = 64;

/// A client of a run's events.
pub(crate) struct EventClient {
    pub(crate) store: Arc<Store>,
    pub(crate) log: Arc<RunLog>,
    pub(crate) run: String,
    /// The number of the last event that the client has.
    pub(crate) after: u64,
    pub(crate) heartbeat: Duration,
    /// Counts the client while the run is in progress.
    pub(crate) attached: Option<AttachedClient>,
}

impl EventClient {
    /// Returns the body of the response, which ends early when the client is signed out.
    pub(crate) fn into_body(self, signed_out: impl Future<Output = ()> + Send + 'static) -> Body {
        let start = Bytes::from_static(b"retry: 1000\n\n");
        let events = stream::unfold((self, Some(start)), |(mut client, start)| async move {
            let next = match start {
                Some(start) => Some(start),
                None => client.next().await,
            };
            next.map(|bytes| (Ok::<_, Infallible>(bytes), (client, None)))
        });
        Body::from_stream(events.take_until(Box::pin(signed_out)))
    }

    /// Waits for what the client gets next. `None` after the outcome, or if the store fails.
    async fn next(&mut self) -> Option<Bytes> {
        let mut head = self.log.head();
        loop {
            match self.log.next(self.after) {
                Position::Frame(id, frame) => {
                    self.after = id;
                    return Some(frame);
                }
                Position::Stored => {
                    if let Some(page) = self.page().await? {
                        return Some(page);
                    }
                }
                Position::Lost(resync) => {
                    self.after = resync.first.saturating_sub(1);
                    return Some(resync_frame(resync));
                }
                Position::End => {
                    self.attached.take();
                    return None;
                }
                Position::Wait => {
                    let changed = tokio::time::timeout(self.heartbeat, head.changed()).await;
                    match changed {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return None,
                        Err(_) => return Some(Bytes::from_static(b": heartbeat\n\n")),
                    }
                }
            }
        }
    }

    /// Reads the next events from the database. `Some(None)` if they were removed meanwhile.
    async fn page(&mut self) -> Option<Option<Bytes>> {
        let rows = self.store.events(&self.run, self.after, PAGE_EVENTS, PAGE).await.ok()?;
        if rows.is_empty() {
            // The whole run was removed.
            self.log.all_pruned();
        }
        let mut bytes = Vec::new();
        for (id, kind, data) in rows {
            if id != self.after + 1 {
                // The log knows that events were removed, or will when the writer is done.
                self.log.pruned(id);
                break;
            }
            bytes.extend_from_slice(&frame(id, &kind, &data));
            self.after = id;
        }
        Some((!bytes.is_empty()).then(|| bytes.into()))
    }
}

/// Reports that events are no longer stored. It has no number, so that a client that reconnects asks for the same ones.
fn resync_frame(Resync { requested, first, last }: Resync) -> Bytes {
    let data = serde_json::json!({"type": "resync", "requested": requested, "first": first, "last": last});
    format!("event: resync\ndata: {data}\n\n").into()
}
