//! Sends requests to the host and waits for the responses.

use super::{messages::RpcError, outbox::Outbox};
use agentline_core::rpc;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

type Reply = oneshot::Sender<Result<Value, RpcError>>;

/// The connection to the host. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct HostPeer {
    pub(super) outbox: Arc<Outbox>,
    pending: Arc<PendingRequests>,
}

#[derive(Debug, Default)]
struct PendingRequests {
    last: AtomicU64,
    open: Mutex<HashMap<u64, Reply>>,
}

/// The reason why there is no response.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The host returned an error or an invalid response.
    Refused(String),
    /// The host did not respond in time.
    Late(Duration),
    /// The host has disconnected.
    Disconnected,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(error) => f.write_str(error),
            Self::Late(time) => write!(f, "the host did not respond within {time:?}"),
            Self::Disconnected => f.write_str("the host disconnected"),
        }
    }
}

impl HostPeer {
    /// Sends a request and waits for the response. Dropping the future discards the response.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        time: Duration,
    ) -> Result<A, NoAnswer> {
        let id = self.pending.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, answer) = oneshot::channel();
        self.pending.lock().insert(id, reply);
        let _forget = Forget { pending: &self.pending, id };
        self.outbox.send_line(rpc::request(id, method, params));
        let answer = tokio::time::timeout(time, answer).await.map_err(|_| NoAnswer::Late(time))?;
        let answer = answer.map_err(|_| NoAnswer::Disconnected)?;
        let value = answer.map_err(|error| NoAnswer::Refused(error.message))?;
        serde_json::from_value(value).map_err(|error| {
            NoAnswer::Refused(format!("the host's response to `{method}` is invalid: {error}"))
        })
    }

    /// Handles a response from the host. Returns whether a request was waiting for it.
    pub(super) fn answered(&self, id: &RawValue, answer: Result<Value, RpcError>) -> bool {
        let reply = id.get().parse().ok().and_then(|id| self.pending.lock().remove(&id));
        reply.is_some_and(|reply| reply.send(answer).is_ok())
    }

    /// Fails all pending requests, because the host has disconnected.
    pub(super) fn fail_pending(&self) {
        self.pending.lock().clear();
    }
}

impl PendingRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Reply>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a pending request when it is dropped.
struct Forget<'a> {
    pending: &'a PendingRequests,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.id);
    }
}
