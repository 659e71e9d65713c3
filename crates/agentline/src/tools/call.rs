//! Performs one tool call: the policy, the tool with its timeout, and the hook. A call always has an output.

use crate::tools::{
    output::ToolOutput,
    tool::{CallDecision, Tool, ToolCall},
};
use futures_util::FutureExt;
use serde_json::Value;
use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Performs the call. Dropping the future aborts the tool.
pub(super) async fn invoke(tool: &Arc<Tool>, args: Value, call: ToolCall) -> ToolOutput {
    if let CallDecision::Deny(reason) = permitted(tool, &args, &call).await {
        return ToolOutput::error(reason);
    }
    let original = tool.has_after().then(|| args.clone());
    let mut output = run(tool, args, &call).await;
    if let Some(args) = original
        && let Some(note) = note(tool, args, &call, &output).await
    {
        output.append(&note);
    }
    output
}

async fn permitted(tool: &Tool, args: &Value, call: &ToolCall) -> CallDecision {
    let decision_future = async {
        match tool.decision(args, call) {
            Some(decision) => decision.await,
            None => CallDecision::Allow,
        }
    };
    AssertUnwindSafe(decision_future).catch_unwind().await.unwrap_or_else(|panic| {
        // A panic in the policy denies the call.
        CallDecision::deny(format!("the policy of the tool panicked: {}", panic_message(&*panic)))
    })
}

async fn run(tool: &Arc<Tool>, args: Value, call: &ToolCall) -> ToolOutput {
    // In a task of its own, so that a tool that blocks its thread can still time out.
    let task = AbortOnDropHandle::new(tokio::spawn({
        let (tool, call) = (Arc::clone(tool), call.clone());
        async move { tool.start(args, call).await }
    }));
    match timeout(tool.limit(), task).await {
        Ok(Ok(output)) => output,
        Ok(Err(end)) => match end.try_into_panic() {
            Ok(panic) => ToolOutput::error(format!("the tool panicked: {}", panic_message(&*panic))),
            Err(_) => ToolOutput::error("the tool was cancelled"),
        },
        Err(_) => {
            call.stopped.cancel();
            ToolOutput::error(format!("the tool timed out after {}", display_duration(tool.limit())))
        }
    }
}

/// Returns the note of the `after` hook. A failing hook has no note and does not affect the result.
async fn note(tool: &Tool, args: Value, call: &ToolCall, output: &ToolOutput) -> Option<String> {
    let hook = async {
        match tool.note(call, args, output) {
            Some(note) => note.await,
            None => None,
        }
    };
    let hook = AssertUnwindSafe(hook).catch_unwind();
    timeout(tool.limit(), hook).await.ok()?.ok()?.filter(|note| !note.is_empty())
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

fn display_duration(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{} s", time.as_secs())
    }
}
