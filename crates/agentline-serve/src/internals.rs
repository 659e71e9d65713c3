//! Parts of the server that the benchmark of this workspace uses.

use crate::{
    clock::now_ms,
    messages::ServedRun,
    server::Server,
    store::{RunEnd, RunLog, StoredEvent},
};
use std::sync::Arc;

/// A run without an agent, whose events come from the caller.
#[derive(Debug)]
pub struct PublishedRun {
    log: Arc<RunLog>,
    run: ServedRun,
}

impl PublishedRun {
    /// Stores a run.
    pub async fn new(server: &Server, id: &str) -> Self {
        let run = ServedRun {
            run: id.to_owned(),
            started_at_ms: now_ms(),
            started_by: "owner".to_owned(),
            ..ServedRun::default()
        };
        let log = server.app().engine.store.create(run.clone()).await;
        server.app().engine.store.flush().await;
        Self { log, run }
    }

    /// Appends an event with this JSON, which clients receive when it is committed. The last one ends the run.
    pub async fn publish(&self, server: &Server, data: String, is_last: bool) {
        let end = is_last.then(|| Box::new(RunEnd { outcome: data.clone(), run: self.run.clone() }));
        let event = StoredEvent { kind: "text".to_owned(), data, end };
        server.app().engine.store.append(&self.log, &self.run.run, event).await;
    }
}
