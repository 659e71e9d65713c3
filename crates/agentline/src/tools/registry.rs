//! The tools of one run, its calls in progress, and the side lines about them.

use crate::tools::{
    call::invoke,
    in_flight::InFlight,
    output::ToolOutput,
    side_sender::{SideSender, cut_text, cut_value},
    tool::{Tool, ToolCall},
};
use serde_json::{Map, Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// How long the answer of a tool that ends its run waits for the cancellation.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// The tools of one run.
pub(super) struct ToolRegistry {
    pub(super) name: String,
    pub(super) tools: Vec<Arc<Tool>>,
    /// Arguments that the agent adds for its own use.
    added: &'static [&'static str],
    side: SideSender,
    calls: AtomicU64,
    pub(super) in_flight: InFlight,
    /// Cancelled when the run ends.
    pub(super) closed: CancellationToken,
}

/// The agent cancelled the call, or the run ended.
pub(super) struct CallAbandoned;

impl ToolRegistry {
    pub(super) fn new(
        name: String,
        tools: Vec<Arc<Tool>>,
        added: &'static [&'static str],
        side: SideSender,
        closed: CancellationToken,
    ) -> Self {
        Self { name, tools, added, side, calls: AtomicU64::new(0), in_flight: InFlight::default(), closed }
    }

    /// Reports that the agent listed the tools.
    pub(super) fn listed(&self) {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        self.side.send_line(&json!({ "listed": names }));
    }

    /// Performs a call, until the agent disconnects (`left`) or cancels the request.
    pub(super) async fn call(
        &self,
        request: String,
        name: &str,
        mut args: Map<String, Value>,
        left: CancellationToken,
    ) -> Result<ToolOutput, CallAbandoned> {
        let tool = self.tools.iter().find(|tool| tool.name() == name);
        if let Some(tool) = tool {
            args.retain(|key, _| !self.added.contains(&key.as_str()) || tool.accepts(key));
        }
        let args = Value::Object(args);
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.side.send_line(&json!({"called": name, "call": number, "input": cut_value(&args)}));
        let guard = self.in_flight.begin(request, &self.closed);
        let stopped = guard.stop.child_token();
        let mut end = End { registry: self, name, number, stopped: stopped.clone(), answered: false };
        let call = ToolCall { tool: name.to_owned(), number, stopped };
        let work = async {
            match tool {
                Some(tool) => invoke(tool, args, call).await,
                None => ToolOutput::error(format!("unknown tool `{name}`")),
            }
        };
        let output = tokio::select! {
            biased;
            () = guard.stop.cancelled() => return Err(CallAbandoned),
            () = left.cancelled() => return Err(CallAbandoned),
            output = work => output,
        };
        end.answered = true;
        self.side.send_line(&json!({
            "result": name, "call": number, "is_error": output.is_error, "content": cut_text(&output.text),
        }));
        if output.stops_run {
            self.side.send_line(&json!({"stop": name, "reason": cut_text(&output.text)}));
            // With an answer, the agent would ask the model again before the cancellation reaches it.
            tokio::select! {
                () = guard.stop.cancelled() => return Err(CallAbandoned),
                () = left.cancelled() => return Err(CallAbandoned),
                () = tokio::time::sleep(STOP_WAIT) => {}
            }
        }
        Ok(output)
    }
}

/// Reports a call as cancelled on drop, unless it was answered.
struct End<'a> {
    registry: &'a ToolRegistry,
    name: &'a str,
    number: u64,
    stopped: CancellationToken,
    answered: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.stopped.cancel();
            self.registry.side.send_line(&json!({"cancelled": self.name, "call": self.number}));
        }
    }
}
