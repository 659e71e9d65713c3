//! OpenAI's responses API, as Codex uses it.
//!
//! The address for the agent is `URL/v1`, with [`ScriptedModel::url`] as URL.

use std::io;

use serde_json::{Value, json};

use crate::scripted::{
    ModelPart, ModelRequest, ModelStep, ScriptedModel, Wire, event, items, openai_error, pieces, texts,
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

/// Returns the text of a patch that adds a file, for Codex's tool `apply_patch`.
#[must_use]
pub fn add_file(path: &str, content: &str) -> String {
    let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
    format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n")
}

static WIRE: Wire = Wire {
    path: "/responses",
    events,
    helped,
    error: openai_error,
    offered_tools: |body| items(&body["tools"]).flat_map(names).collect(),
    user_texts: |body| {
        let messages = items(&body["input"]).filter(|item| item["role"] == "user");
        messages.flat_map(|message| texts(&message["content"])).collect()
    },
    tool_results: |body| {
        let is_result =
            |item: &&Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"));
        items(&body["input"]).filter(is_result).map(|item| texts(&item["output"]).concat()).collect()
    },
    turn,
};

/// Returns the answer to a risk assessment, which Codex requests as JSON in its mode `agent`.
fn helped(body: &Value) -> Option<&'static str> {
    let verdicts = &body["text"]["format"]["schema"]["properties"]["outcome"]["enum"];
    let judges = items(verdicts).any(|verdict| verdict == "allow");
    judges.then_some(r#"{"outcome":"allow","risk_level":"low","rationale":"as scripted"}"#)
}

/// Returns the name of a tool, or for a namespace, the name of each of its tools with the namespace as a prefix.
fn names(tool: &Value) -> Vec<String> {
    let own = tool["name"].as_str().or(tool["type"].as_str()).unwrap_or_default();
    if tool["type"] != "namespace" {
        return vec![own.to_owned()];
    }
    let inner = items(&tool["tools"]).filter_map(|inner| inner["name"].as_str());
    inner.map(|name| format!("{own}/{name}")).collect()
}

/// Counts the answers: each sequence of the model's items is one answer.
fn turn(body: &Value) -> usize {
    let ours = |item: &Value| {
        item["role"] == "assistant"
            || matches!(item["type"].as_str(), Some("reasoning" | "function_call" | "custom_tool_call"))
    };
    let is_model: Vec<bool> = items(&body["input"]).map(ours).collect();
    let begins = is_model
        .iter()
        .zip(std::iter::once(&false).chain(&is_model))
        .filter(|(now, before)| **now && !**before);
    begins.count()
}

fn events(step: &ModelStep, model: &str, number: u64) -> String {
    let id = format!("resp_{number}");
    let created =
        json!({"id": id, "object": "response", "model": model, "status": "in_progress", "output": []});
    let mut events = event(&json!({"type": "response.created", "response": created}));
    let mut output = Vec::new();
    for (index, part) in step.parts.iter().enumerate() {
        let own = format!("{number}_{index}");
        let (begin, deltas, done) = item(part, &own);
        events +=
            &event(&json!({"type": "response.output_item.added", "output_index": index, "item": begin}));
        for mut delta in deltas {
            delta["output_index"] = json!(index);
            events += &event(&delta);
        }
        events += &event(&json!({"type": "response.output_item.done", "output_index": index, "item": done}));
        output.push(done);
    }
    let tokens = step.usage;
    let usage = json!({
        "input_tokens": tokens.input, "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    });
    let (kind, status) =
        if step.cut { ("response.incomplete", "incomplete") } else { ("response.completed", "completed") };
    let mut response = json!({
        "id": id, "object": "response", "model": model, "status": status, "output": output, "usage": usage,
    });
    if step.cut {
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    events + &event(&json!({"type": kind, "response": response}))
}

/// Returns an item at its start, its deltas, and the complete item.
fn item(part: &ModelPart, own: &str) -> (Value, Vec<Value>, Value) {
    match part {
        ModelPart::Text(text) => {
            let id = format!("msg_{own}");
            let whole = |content: Value| json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content});
            let delta = |piece: &str| {
                json!({
                    "type": "response.output_text.delta", "item_id": id, "content_index": 0, "delta": piece,
                })
            };
            let deltas = pieces(text).into_iter().map(delta).collect();
            let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
            (whole(json!([])), deltas, whole(content))
        }
        ModelPart::Thought(text) => {
            let id = format!("rs_{own}");
            let whole = |summary: Value| json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": "eA=="});
            let part = json!({"type": "summary_text", "text": ""});
            let begins = json!({
                "type": "response.reasoning_summary_part.added", "item_id": id, "summary_index": 0, "part": part,
            });
            let delta = json!({
                "type": "response.reasoning_summary_text.delta", "item_id": id, "summary_index": 0, "delta": text,
            });
            (whole(json!([])), vec![begins, delta], whole(json!([{"type": "summary_text", "text": text}])))
        }
        ModelPart::Call { namespace, name, args } => {
            let mut call = json!({
                "type": "function_call", "id": format!("fc_{own}"), "call_id": format!("call_{own}"), "name": name,
                "arguments": args.to_string(), "status": "completed",
            });
            if let Some(namespace) = namespace {
                call["namespace"] = json!(namespace);
            }
            (call.clone(), Vec::new(), call)
        }
        ModelPart::Plain { name, input } => {
            let call = json!({
                "type": "custom_tool_call", "id": format!("ctc_{own}"), "call_id": format!("call_{own}"),
                "name": name, "input": input, "status": "completed",
            });
            (call.clone(), Vec::new(), call)
        }
    }
}
