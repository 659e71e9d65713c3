//! The agent's requests in progress, which the agent can cancel by id.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// Requests by their ids as JSON. If two parts of an agent use the same id, it refers to the later request.
#[derive(Default)]
pub(super) struct InFlight {
    next_number: AtomicU64,
    requests: Mutex<HashMap<String, (u64, CancellationToken)>>,
}

impl InFlight {
    /// Registers a request until the returned value is dropped. Cancelling `closed` also stops it.
    pub(super) fn begin(&self, id: impl Into<String>, closed: &CancellationToken) -> InFlightRequest<'_> {
        let (id, stop) = (id.into(), closed.child_token());
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.requests().insert(id.clone(), (number, stop.clone()));
        InFlightRequest { all: self, id, number, stop }
    }

    /// Cancels a request.
    pub(super) fn cancel(&self, id: &str) {
        if let Some((_, stop)) = self.requests().get(id) {
            stop.cancel();
        }
    }

    /// Cancels all requests in progress.
    pub(super) fn cancel_all(&self) {
        for (_, stop) in self.requests().values() {
            stop.cancel();
        }
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, (u64, CancellationToken)>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered request.
pub(super) struct InFlightRequest<'a> {
    all: &'a InFlight,
    id: String,
    number: u64,
    /// Cancelled when the answer is no longer needed.
    pub(super) stop: CancellationToken,
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        let mut requests = self.all.requests();
        if requests.get(&self.id).is_some_and(|(number, _)| *number == self.number) {
            requests.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_request_with_the_same_id_owns_it() {
        let (all, closed) = (InFlight::default(), CancellationToken::new());
        let (first, second) = (all.begin("1", &closed), all.begin("1", &closed));
        let stopped = first.stop.clone();
        drop(first);
        all.cancel("1");
        assert!(second.stop.is_cancelled() && !stopped.is_cancelled());
        drop(second);
        assert!(all.requests().is_empty());
        closed.cancel();
        assert!(stopped.is_cancelled());
    }
}
