//! Maintains a pool in the background: retires agents that have exited, are idle or have reached a limit.

use crate::pool::state::PoolState;
use std::{sync::Arc, time::Duration};

/// The interval of the checks.
const PACE: Duration = Duration::from_secs(1);

/// Maintains the pool until it is dropped.
pub(super) fn begin(pool: &Arc<PoolState>) {
    let pool = Arc::downgrade(pool);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PACE).await;
            match pool.upgrade() {
                // Measuring the memory of agents reads many small files.
                Some(pool) => _ = tokio::task::spawn_blocking(move || pool.tidy()).await,
                None => return,
            }
        }
    });
}
