//! Looks after a pool while nobody does: agents that are gone, idle or worn are let go.

use super::lanes::Lanes;
use std::{sync::Arc, time::Duration};

/// How often it looks.
const PACE: Duration = Duration::from_secs(1);

/// Looks after the pool for as long as somebody holds it.
pub(super) fn begin(lanes: &Arc<Lanes>) {
    let lanes = Arc::downgrade(lanes);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PACE).await;
            match lanes.upgrade() {
                // A look at the memory of agents is a walk over many small files.
                Some(lanes) => _ = tokio::task::spawn_blocking(move || lanes.tidy()).await,
                None => return,
            }
        }
    });
}
