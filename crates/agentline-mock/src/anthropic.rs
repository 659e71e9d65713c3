//! Anthropic's messages API, as Claude Code uses it.
//!
//! The address for the agent (`ANTHROPIC_BASE_URL`) is [`ScriptedModel::url`] itself.

use std::io;

use serde_json::{Value, json};

use crate::scripted::{ModelPart, ModelRequest, ModelStep, ScriptedModel, Wire, event, items, pieces, texts};

/// Starts a model that answers with these steps in order.
///
/// # Errors
/// Returns an error if there is no free port on loopback.
pub fn model(steps: impl IntoIterator<Item = ModelStep>) -> io::Result<ScriptedModel> {
    ScriptedModel::in_order(&WIRE, steps.into_iter().collect())
}

/// Starts a model that answers each request by its content.
///
/// # Errors
/// Returns an error if there is no free port on loopback.
pub fn model_by(
    respond: impl Fn(&ModelRequest) -> ModelStep + Send + Sync + 'static,
) -> io::Result<ScriptedModel> {
    ScriptedModel::by_prompt(&WIRE, respond)
}

static WIRE: Wire = Wire {
    path: "/v1/messages",
    events,
    helped,
    error,
    offered_tools: |body| {
        items(&body["tools"]).filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
    },
    user_texts: |body| messages(body, "user").flat_map(|message| texts(&message["content"])).collect(),
    tool_results: |body| {
        let blocks = messages(body, "user").flat_map(|message| items(&message["content"]));
        let results = blocks.filter(|block| block["type"] == "tool_result");
        results.map(|result| texts(&result["content"]).concat()).collect()
    },
    turn: |body| messages(body, "assistant").count(),
};

fn messages<'a>(body: &'a Value, role: &'a str) -> impl Iterator<Item = &'a Value> {
    items(&body["messages"]).filter(move |message| message["role"] == role)
}

/// Returns the answer to a request for a prompt suggestion, which Claude Code sends after a turn in the same
/// conversation and with the same tools.
fn helped(body: &Value) -> Option<&'static str> {
    let last = messages(body, "user").last().map(|message| texts(&message["content"]));
    let suggests = last.into_iter().flatten().any(|text| text.starts_with("[SUGGESTION MODE"));
    suggests.then_some("go on")
}

fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn events(step: &ModelStep, model: &str, number: u64) -> String {
    let tokens = step.usage;
    let input = json!({
        "input_tokens": tokens.input - tokens.cached.min(tokens.input), "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": 0, "output_tokens": 1,
    });
    let message = json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": input,
    });
    let mut events = event(&json!({"type": "message_start", "message": message}));
    for (index, part) in step.parts.iter().enumerate() {
        let id = format!("toolu_{number}_{index}");
        let (block, deltas) = block(part, &id);
        events += &event(&json!({"type": "content_block_start", "index": index, "content_block": block}));
        for delta in deltas {
            events += &event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events += &event(&json!({"type": "content_block_stop", "index": index}));
    }
    let reason = match () {
        () if step.calls() => "tool_use",
        () if step.cut => "max_tokens",
        () => "end_turn",
    };
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    let usage = json!({"output_tokens": tokens.output});
    events += &event(&json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events + &event(&json!({"type": "message_stop"}))
}

/// Returns the start of a block and its delta.
fn block(part: &ModelPart, id: &str) -> (Value, Vec<Value>) {
    match part {
        ModelPart::Text(text) => {
            let deltas = pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            (json!({"type": "text", "text": ""}), deltas.collect())
        }
        ModelPart::Thought(text) => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": text}),
                json!({"type": "signature_delta", "signature": "c2lnbmVk"}),
            ],
        ),
        ModelPart::Call { name, args, .. } => tool(id, name, &args.to_string()),
        ModelPart::Plain { name, input } => tool(id, name, input),
    }
}

fn tool(id: &str, name: &str, input: &str) -> (Value, Vec<Value>) {
    let begin = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    (begin, vec![json!({"type": "input_json_delta", "partial_json": input})])
}
