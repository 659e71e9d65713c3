//! The response to a prompt: why it ended, and what really happened.

use crate::failure::ErrorResponse;
use agentline::{FailureKind, Outcome, Verdict};
use serde_json::{Value, json};

/// Returns the response to `session/prompt` for an agent whose surface is translated.
pub(crate) fn prompt_result(outcome: &Outcome) -> Result<Value, ErrorResponse> {
    let stop = match outcome.verdict {
        Verdict::Done | Verdict::DoneWithDenials | Verdict::InvalidOutput => "end_turn",
        Verdict::Empty if is_kind(outcome, FailureKind::Blocked) => "refusal",
        Verdict::Empty => "end_turn",
        Verdict::Cancelled => "cancelled",
        Verdict::LimitReached if has_too_many_turns(outcome) => "max_turn_requests",
        _ => return Err(ErrorResponse::of_outcome(outcome)),
    };
    Ok(json!({"stopReason": stop, "_meta": meta(outcome)}))
}

fn is_kind(outcome: &Outcome, kind: FailureKind) -> bool {
    outcome.error.as_ref().is_some_and(|error| error.kind == kind)
}

/// Returns whether the prompt ended at a limit on turns.
pub(crate) fn has_too_many_turns(outcome: &Outcome) -> bool {
    is_kind(outcome, FailureKind::MaxTurns) || is_kind(outcome, FailureKind::AgentTurns)
}

/// Returns what `_meta` of the response to a prompt has.
pub(crate) fn meta(outcome: &Outcome) -> Value {
    json!({"agentline": {
        "run_id": outcome.run_id,
        "verdict": outcome.verdict,
        "files": outcome.files,
        "denied": outcome.denied,
        "usage": outcome.usage,
        "cost_usd": outcome.cost_usd,
        "warnings": outcome.warnings,
    }})
}
