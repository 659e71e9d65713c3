//! Converts an outcome to the result of a promptfoo provider.

use crate::{FailureKind, Outcome, Verdict, agents};
use serde_json::{Value, json};

/// Returns the result of a promptfoo provider: the answer or an error, with usage, cost and metadata.
#[must_use]
pub fn promptfoo_view(outcome: &Outcome) -> Value {
    let tokens = &outcome.usage.tokens;
    let usage = json!({
        "prompt": tokens.input, "completion": tokens.output, "cached": tokens.cached, "total": tokens.total,
    });
    let raw = serde_json::to_string(outcome).unwrap_or_default();
    let mut view = match &outcome.error {
        Some(_) => json!({"error": promptfoo_error(outcome)}),
        None => json!({"output": answer(outcome)}),
    };
    view["tokenUsage"] = usage;
    view["cost"] = json!(outcome.cost_usd);
    view["sessionId"] = json!(outcome.session_id);
    view["raw"] = raw.into();
    view["metadata"] = json!({
        "agent": outcome.agent, "agentVersion": outcome.agent_version, "surface": outcome.surface,
        "model": outcome.model, "cwd": outcome.cwd, "verdict": outcome.verdict, "turns": outcome.turns,
        "toolCallCount": outcome.tool_calls, "files": outcome.files, "denied": outcome.denied,
        "thoughtTokens": tokens.thoughts, "durationMs": outcome.duration_ms, "error": outcome.error,
        "warnings": outcome.warnings,
    });
    view
}

fn answer(outcome: &Outcome) -> Value {
    match &outcome.output {
        Some(value) => serde_json::from_str(value.get()).unwrap_or_default(),
        None => outcome.text.as_str().into(),
    }
}

/// Types of agents that say less than the kind of the error.
const VAGUE_TYPES: &[&str] = &["Error", "unknown"];

/// Formats the error of an outcome.
///
/// - `<type>: <message>` for an error that the agent reported
/// - `<agent> error: Exit code N: …` if only the exit code is known
/// - `<agent> error: …` if the agent did not start, has no exit code, or was stopped by agentline
fn promptfoo_error(outcome: &Outcome) -> String {
    let Some(error) = &outcome.error else { return String::new() };
    let agent = agents::find(&outcome.agent);
    let title = agent.as_ref().map_or("agent", |agent| agent.info().title);
    let word = serde_json::to_value(error.kind).unwrap_or_default();
    let named = error.agent_type.as_deref().filter(|name| !VAGUE_TYPES.contains(name));
    let word = named.or(word.as_str()).unwrap_or("error");
    match (error.kind, outcome.agent_exit_code) {
        (FailureKind::NoResult | FailureKind::Crashed, Some(code)) => {
            let detail = [&outcome.stderr_tail, &error.stdout_tail, &outcome.text, &error.message];
            let detail =
                detail.into_iter().map(|text| text.trim()).find(|text| !text.is_empty()).unwrap_or_default();
            format!("{title} error: Exit code {code}: {detail}")
        }
        (
            FailureKind::NoResult | FailureKind::Crashed | FailureKind::NotInstalled | FailureKind::Spawn,
            _,
        ) => {
            format!("{title} error: {}", error.message)
        }
        _ if matches!(
            outcome.verdict,
            Verdict::TimedOut | Verdict::Cancelled | Verdict::LimitReached | Verdict::InvalidOutput
        ) =>
        {
            format!("{title} error: {}", error.message)
        }
        _ => format!("{word}: {}", error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, RunInfo, Tokens, Usage};

    fn failed(kind: FailureKind, verdict: Verdict, message: &str) -> Outcome {
        let info = RunInfo { agent: "gemini".into(), ..RunInfo::default() };
        Outcome::not_started(&info, verdict, Failure::new(kind, message))
    }

    fn done() -> Outcome {
        let mut outcome = failed(FailureKind::Empty, Verdict::Done, "");
        outcome.error = None;
        outcome.text = "All done. 4".into();
        outcome
    }

    #[test]
    fn promptfoo_output_has_answer_and_cost() {
        let mut outcome = done();
        let tokens = Tokens { input: Some(400), output: Some(80), total: Some(500), ..Tokens::default() };
        outcome.usage = Usage { tokens, ..Usage::default() };
        (outcome.cost_usd, outcome.session_id) = (Some(0.0011), Some("s1".into()));
        let view = promptfoo_view(&outcome);
        assert_eq!(view["output"], "All done. 4");
        assert_eq!(
            view["tokenUsage"],
            json!({"prompt": 400, "completion": 80, "cached": null, "total": 500})
        );
        assert_eq!((&view["cost"], &view["sessionId"]), (&json!(0.0011), &json!("s1")));
        assert_eq!(view.get("error"), None);
        let raw: Value = serde_json::from_str(view["raw"].as_str().unwrap()).unwrap();
        assert_eq!(raw["schema"], "agentline.outcome/1");
    }

    #[test]
    fn promptfoo_error_names_its_source() {
        let error = |outcome: &Outcome| promptfoo_view(outcome)["error"].as_str().unwrap().to_owned();
        let reported = failed(FailureKind::UnknownModel, Verdict::Failed, "no such model");
        assert_eq!(error(&reported), "unknown_model: no such model");
        let mut typed = reported.clone();
        for (name, shown) in [("ModelNotFoundError", "ModelNotFoundError"), ("unknown", "unknown_model")] {
            typed.error.as_mut().unwrap().agent_type = Some(name.into());
            assert_eq!(error(&typed), format!("{shown}: no such model"));
        }
        let mut crashed = failed(FailureKind::NoResult, Verdict::Failed, "the agent exited without a result");
        crashed.agent_exit_code = Some(3);
        crashed.stderr_tail = "boom".into();
        assert_eq!(error(&crashed), "Gemini CLI error: Exit code 3: boom");
        crashed.stderr_tail.clear();
        crashed.error.as_mut().unwrap().stdout_tail = "usage: wrapper".into();
        assert_eq!(error(&crashed), "Gemini CLI error: Exit code 3: usage: wrapper");
        crashed.error.as_mut().unwrap().stdout_tail.clear();
        crashed.text = "half an answer".into();
        assert_eq!(error(&crashed), "Gemini CLI error: Exit code 3: half an answer");
        let late = failed(FailureKind::TimeoutRun, Verdict::TimedOut, "no end after 5 s");
        assert_eq!(error(&late), "Gemini CLI error: no end after 5 s");
        assert_eq!(promptfoo_view(&late).get("output"), None);
    }
}
