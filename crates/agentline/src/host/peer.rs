//! Asks the host: a request of ours, and the wait for its answer.

use super::{messages::RpcError, outbox::Outbox};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
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

/// The other side of the wire. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) outbox: Arc<Outbox>,
    asked: Arc<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    last: AtomicU64,
    open: Mutex<HashMap<u64, Reply>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The host said that it cannot.
    Refused(String),
    /// It did not say anything in time.
    Late(Duration),
    /// It is gone.
    Gone,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Late(time) => write!(f, "the host did not answer within {time:?}"),
            Self::Gone => f.write_str("the host is gone"),
        }
    }
}

impl Peer {
    /// Asks and waits. Whoever drops the future no longer wants the answer.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        time: Duration,
    ) -> Result<A, NoAnswer> {
        let id = self.asked.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, answer) = oneshot::channel();
        self.asked.lock().insert(id, reply);
        let _forget = Forget { asked: &self.asked, id };
        self.outbox.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        match tokio::time::timeout(time, answer).await {
            Ok(Ok(Ok(value))) => serde_json::from_value(value).map_err(|why| {
                NoAnswer::Refused(format!("the host's answer to `{method}` does not fit: {why}"))
            }),
            Ok(Ok(Err(error))) => Err(NoAnswer::Refused(error.message)),
            Ok(Err(_)) => Err(NoAnswer::Gone),
            Err(_) => Err(NoAnswer::Late(time)),
        }
    }

    /// Takes an answer of the host. Says whether anybody waited for it.
    pub(super) fn answered(&self, id: &Value, answer: Result<Value, RpcError>) -> bool {
        let reply = id.as_u64().and_then(|id| self.asked.lock().remove(&id));
        reply.is_some_and(|reply| reply.send(answer).is_ok())
    }

    /// Nobody answers any more.
    pub(super) fn gone(&self) {
        self.asked.lock().clear();
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Reply>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is no longer waited for is forgotten.
struct Forget<'a> {
    asked: &'a Asked,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.asked.lock().remove(&self.id);
    }
}
