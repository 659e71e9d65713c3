//! Serves the tools of a run or session, and passes the lines about them to the run.

use crate::tools::RunningTools;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::{
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinHandle,
};

/// The tools and relayed servers of a run or session, and the channel of their lines. They are served while this value
/// exists.
#[derive(Debug, Clone)]
pub(crate) struct ToolServer {
    inner: Arc<ToolServerInner>,
}

#[derive(Debug)]
struct ToolServerInner {
    to: Arc<Mutex<To>>,
    secret: String,
    cancel_calls: Arc<Notify>,
    close: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The receiver of the lines: a run, or a buffer until there is one.
#[derive(Debug, Default)]
struct To {
    run: Option<UnboundedSender<String>>,
    buffered: Vec<String>,
}

impl To {
    fn take(&mut self, line: String) {
        let unsent = match &self.run {
            Some(run) => run.send(line).err().map(|unsent| unsent.0),
            None => Some(line),
        };
        self.buffered.extend(unsent);
    }
}

impl ToolServer {
    /// Starts to collect the lines of running tools.
    pub(crate) fn new(mut serving: RunningTools) -> Self {
        let to = Arc::<Mutex<To>>::default();
        let (cancel_calls, close) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let secret = serving.token().to_owned();
        let (from, cancel_requested, closed) =
            (Arc::clone(&to), Arc::clone(&cancel_calls), Arc::clone(&close));
        let task = tokio::spawn(async move {
            loop {
                let lines = tokio::select! {
                    lines = serving.next() => lines,
                    () = cancel_requested.notified() => {
                        serving.cancel_calls();
                        continue;
                    }
                    () = closed.notified() => return serving.close().await,
                };
                let mut to = from.lock().unwrap_or_else(PoisonError::into_inner);
                lines.into_iter().for_each(|line| to.take(line));
            }
        });
        let task = Mutex::new(Some(task));
        Self { inner: Arc::new(ToolServerInner { to, secret, cancel_calls, close, task }) }
    }

    /// Returns all undelivered and future lines for one run.
    pub(crate) fn listen(&self) -> UnboundedReceiver<String> {
        let (send, receive) = unbounded_channel();
        let mut to = self.inner.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.run = Some(send);
        for line in std::mem::take(&mut to.buffered) {
            to.take(line);
        }
        receive
    }

    /// Returns the token, which must be redacted.
    pub(crate) fn secret(&self) -> &str {
        &self.inner.secret
    }

    /// Stops serving and waits until the processes of relayed servers have exited.
    pub(crate) async fn close(&self) {
        self.inner.close.notify_one();
        let task = self.inner.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A task that panicked has already dropped its servers.
            let _ = task.await;
        }
    }

    /// Returns a guard that cancels pending tool calls when it is dropped. An agent whose run is cancelled abandons
    /// them without notice.
    pub(crate) fn calls(&self) -> RunToolCalls {
        RunToolCalls(self.clone())
    }
}

impl Drop for ToolServerInner {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

/// A guard for the tool calls of one run.
pub(crate) struct RunToolCalls(ToolServer);

impl Drop for RunToolCalls {
    fn drop(&mut self) {
        self.0.inner.cancel_calls.notify_one();
    }
}
