//! The outcome of a prompt as a part of its response.

use agentline::{FailureKind, Outcome};
use serde_json::{Value, json};

/// Returns whether the prompt ended with an error of this kind.
pub(crate) fn is_kind(outcome: &Outcome, kind: FailureKind) -> bool {
    outcome.error.as_ref().is_some_and(|error| error.kind == kind)
}

/// Returns whether the prompt ended at a limit on turns.
pub(crate) fn has_too_many_turns(outcome: &Outcome) -> bool {
    is_kind(outcome, FailureKind::MaxTurns) || is_kind(outcome, FailureKind::AgentTurns)
}

/// Returns the entries of `_meta` in the response to a prompt.
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
