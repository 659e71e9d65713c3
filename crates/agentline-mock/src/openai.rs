//! OpenAI's chat completions API, as OpenCode uses it.
//!
//! The address for the agent is `URL/v1`, with [`ScriptedModel::url`] as URL.

use std::io;

use serde_json::{Value, json};

use crate::scripted::{
    ModelPart, ModelRequest, ModelStep, ScriptedModel, Wire, items, openai_error, pieces, texts,
};

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

/// Phrases in prompts of agents for their own purposes. These requests offer tools, like turns.
const OWN_PURPOSES: &[&str] = &[
    // Qwen Code suggests the user's next prompt, and collects what to remember.
    "Reply with ONLY the suggestion",
    "## Existing memory files",
    // Grok summarizes the turn.
    "Call tools or invent content not in the agent's reply",
];

static WIRE: Wire = Wire {
    path: "/chat/completions",
    events,
    helped: |body| {
        let last = items(&body["messages"]).last().map(|message| texts(&message["content"]).concat());
        let is_own = last.is_some_and(|text| OWN_PURPOSES.iter().any(|phrase| text.contains(phrase)));
        is_own.then_some("")
    },
    error: openai_error,
    offered_tools: |body| {
        let names = items(&body["tools"]).filter_map(|tool| tool["function"]["name"].as_str());
        names.map(str::to_owned).collect()
    },
    user_texts: |body| messages(body, "user").flat_map(|message| texts(&message["content"])).collect(),
    tool_results: |body| messages(body, "tool").map(|message| texts(&message["content"]).concat()).collect(),
    turn: |body| messages(body, "assistant").count(),
};

fn messages<'a>(body: &'a Value, role: &'a str) -> impl Iterator<Item = &'a Value> {
    items(&body["messages"]).filter(move |message| message["role"] == role)
}

fn events(step: &ModelStep, model: &str, number: u64) -> String {
    let frame = |choices: Value| {
        json!({
            "id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": model, "choices": choices,
        })
    };
    let delta =
        |delta: Value, finish: Value| frame(json!([{"index": 0, "delta": delta, "finish_reason": finish}]));
    let mut calls = 0;
    let mut frames = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    for part in &step.parts {
        let piece = match part {
            ModelPart::Text(text) => {
                let pieces = pieces(text).into_iter().map(|piece| json!({"content": piece}));
                frames.extend(pieces.map(|piece| delta(piece, Value::Null)));
                continue;
            }
            ModelPart::Thought(text) => json!({"reasoning_content": text}),
            ModelPart::Call { name, args, .. } => call(&mut calls, number, name, &args.to_string()),
            ModelPart::Plain { name, input } => call(&mut calls, number, name, input),
        };
        frames.push(delta(piece, Value::Null));
    }
    let finish = match () {
        () if step.calls() => "tool_calls",
        () if step.cut => "length",
        () => "stop",
    };
    frames.push(delta(json!({}), json!(finish)));
    let mut last = frame(json!([]));
    let tokens = step.usage;
    last["usage"] = json!({
        "prompt_tokens": tokens.input, "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    });
    frames.push(last);
    let events: String = frames.iter().map(|frame| format!("data: {frame}\n\n")).collect();
    events + "data: [DONE]\n\n"
}

fn call(calls: &mut u64, number: u64, name: &str, arguments: &str) -> Value {
    let index = *calls;
    *calls += 1;
    let id = format!("call_{number}_{index}");
    let function = json!({"name": name, "arguments": arguments});
    json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
}
