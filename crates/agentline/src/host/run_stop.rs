//! Stops a run of a host, with the signal that its outcome reports.

use agentline_core::Signal;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Stops one run. Clones stop the same run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunStop {
    token: CancellationToken,
    signal: Arc<OnceLock<Signal>>,
}

impl RunStop {
    /// Stops the run. Only the signal of the first call counts.
    pub(super) fn cancel(&self, signal: Signal) {
        // A later signal is ignored.
        let _ = self.signal.set(signal);
        self.token.cancel();
    }

    /// Waits until the run is stopped, and returns the signal.
    pub(super) async fn cancelled(&self) -> Signal {
        self.token.cancelled().await;
        self.signal.get().copied().unwrap_or(Signal::Interrupt)
    }
}
