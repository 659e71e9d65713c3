//! Gemini CLI: its tools, its home, and answers in the format of the Gemini API.

use serde_json::{Value, json};

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;
use crate::gemini::{FAKE_KEY, GeminiPart, GeminiStep, GeminiTokens, SETTINGS};
use crate::scripted::{HttpError, ModelPart, ModelStep};
use crate::step::ModelFault;

/// A model that needs no router request, unlike the default.
const MODEL: &str = "gemini-2.5-flash";

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "gemini",
    model: Some(MODEL),
    other_model: "gemini-2.5-pro",
    unknown_model: "gemini-0-nope",
    api: ModelApi::Gemini,
    counts_reasoning: true,
    prepare: |home, url| {
        write_file(home, ".gemini/settings.json", SETTINGS)?;
        Ok(vec![
            ("GOOGLE_GEMINI_BASE_URL", url.to_owned()),
            ("GEMINI_API_KEY", FAKE_KEY.to_owned()),
            ("GEMINI_MODEL", MODEL.to_owned()),
        ])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("write_file", json!({"file_path": path, "content": content})),
        Action::Edit { path, old, new } => {
            let instruction = "Change one line.";
            let args =
                json!({"file_path": path, "instruction": instruction, "old_string": old, "new_string": new});
            call("replace", args)
        }
        // Earlier versions have another name for the path.
        Action::Read { path } => call("read_file", json!({"file_path": path, "absolute_path": path})),
        Action::Shell { command } => {
            call("run_shell_command", json!({"command": command, "description": "A command."}))
        }
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("mcp_{server}_{tool}")), args.clone())
        }
    },
};

/// Returns a step in the format of the Gemini API.
pub(super) fn step(step: &ModelStep) -> GeminiStep {
    let tokens = step.usage;
    let reported = GeminiTokens {
        prompt: tokens.input,
        candidates: tokens.output.saturating_sub(tokens.reasoning),
        cached: tokens.cached,
        thoughts: tokens.reasoning,
        total: None,
    };
    let parts: Vec<GeminiPart> = step.parts.iter().map(part).collect();
    let answer = if parts.is_empty() { GeminiStep::empty() } else { GeminiStep::chunks(parts) };
    let answer = answer.usage(reported).finish(if step.cut { "MAX_TOKENS" } else { "STOP" });
    let answer = answer.delay(step.delay_ms);
    match &step.fault {
        None => answer,
        Some(ModelFault::Error(HttpError { status: 404, .. })) => GeminiStep::unknown_model(),
        Some(ModelFault::Error(HttpError { status, message })) => {
            GeminiStep::api_error(*status, error_name(*status), message, Value::Null)
        }
        Some(ModelFault::Drop) => GeminiStep::drop_connection(),
        Some(ModelFault::DropMidway) => answer.drop_midway(),
        Some(ModelFault::HangMidway) => answer.hang_midway(),
        Some(ModelFault::Hang) => GeminiStep::hang(),
    }
}

fn part(part: &ModelPart) -> GeminiPart {
    match part {
        ModelPart::Text(text) => GeminiPart::Text(text.clone()),
        ModelPart::Thought(text) => GeminiPart::Thought(text.clone()),
        ModelPart::Call { name, args, .. } => GeminiPart::Call { name: name.clone(), args: args.clone() },
        ModelPart::Plain { name, input } => {
            GeminiPart::Call { name: name.clone(), args: json!({"input": input}) }
        }
    }
}

/// Returns the name of a status in Google's APIs.
fn error_name(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        _ => "UNAVAILABLE",
    }
}
