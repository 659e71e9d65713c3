//! The desk of one run: its tools, the calls that are under way, and what is told of them.

use super::{
    call::perform,
    side::{Side, cut_text, cut_value},
    tool::{Tool, ToolCall, ToolOutput},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// The tools of one run.
pub(super) struct Desk {
    pub(super) name: String,
    pub(super) tools: Vec<Arc<Tool>>,
    side: Side,
    calls: AtomicU64,
    /// By the id of the agent's request, as JSON.
    under_way: Mutex<HashMap<String, CancellationToken>>,
    /// The run is over.
    pub(super) closed: CancellationToken,
}

/// The agent gave the call up, or the run ended.
pub(super) struct GivenUp;

impl Desk {
    pub(super) fn new(name: String, tools: Vec<Arc<Tool>>, side: Side, closed: CancellationToken) -> Self {
        Self { name, tools, side, calls: AtomicU64::new(0), under_way: Mutex::default(), closed }
    }

    /// Tells that the agent knows the tools now.
    pub(super) fn listed(&self) {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        self.side.tell(&json!({ "listed": names }));
    }

    /// Performs a call, until the agent `left` or cancels the request.
    pub(super) async fn call(
        &self,
        request: String,
        name: &str,
        args: Value,
        left: CancellationToken,
    ) -> Result<ToolOutput, GivenUp> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.side.tell(&json!({"called": name, "call": number, "input": cut_value(&args)}));
        let stop = self.closed.child_token();
        let mut visit = Visit { desk: self, request, name, number, stop: stop.clone(), answered: false };
        self.under_way().insert(visit.request.clone(), stop.clone());
        let call = ToolCall { tool: name.to_owned(), number, stopped: stop.child_token() };
        let work = async {
            match self.tools.iter().find(|tool| tool.name() == name) {
                Some(tool) => perform(tool, args, call).await,
                None => ToolOutput::error(format!("there is no tool `{name}`")),
            }
        };
        let output = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(GivenUp),
            () = left.cancelled() => return Err(GivenUp),
            output = work => output,
        };
        visit.answered = true;
        self.side.tell(&json!({
            "result": name, "call": number, "is_error": output.is_error, "content": cut_text(&output.text),
        }));
        Ok(output)
    }

    /// The agent cancelled a request.
    pub(super) fn cancel(&self, request: &str) {
        if let Some(stop) = self.under_way().get(request) {
            stop.cancel();
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call, from its start to its end, whichever end it has.
struct Visit<'a> {
    desk: &'a Desk,
    request: String,
    name: &'a str,
    number: u64,
    stop: CancellationToken,
    answered: bool,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.desk.under_way().remove(&self.request);
        if !self.answered {
            self.stop.cancel();
            self.desk.side.tell(&json!({"cancelled": self.name, "call": self.number}));
        }
    }
}
