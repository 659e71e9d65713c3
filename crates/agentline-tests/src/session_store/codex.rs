//! Sessions in the format of Codex: model requests, responses and token counts.

use super::{Lines, Plan, count, moment, turns, words::WordSource};
use serde_json::{Value, json};
use std::io;

pub(super) fn write(plan: &Plan<'_>, words: &mut WordSource, used: &mut [u64; 3]) -> io::Result<()> {
    let start = moment(plan.start);
    let folder = plan.home.join(".codex/sessions").join(start[..10].replace('-', "/"));
    let name = format!("rollout-{}-{}.jsonl", start[..19].replace(':', "-"), plan.id);
    let mut lines = Lines::create(&folder.join(name))?;
    let mut at = plan.start;
    let record = |kind: &str, at: u64, payload: Value| json!({"timestamp": moment(at), "type": kind, "payload": payload});
    lines.line(&record(
        "session_meta",
        at,
        json!({
            "session_id": plan.id, "id": plan.id, "timestamp": start, "cwd": plan.project,
            "originator": "codex_exec", "cli_version": "0.166.0", "source": "exec", "model_provider": "openai",
            "base_instructions": {"text": words.text(400)},
        }),
    ))?;
    lines.line(&record(
        "turn_context",
        at,
        json!({"cwd": plan.project, "approval_policy": "never", "model": "gpt-5"}),
    ))?;
    let mut sums = [0; 3];
    turns(plan, &mut words.fork(), |_, turn| {
        count(used, &turn);
        count(&mut sums, &turn);
        at += 5000;
        let item = |payload| record("response_item", at, payload);
        let call = format!("call_{}", words.hex());
        let arguments = json!({"cmd": turn.command}).to_string();
        let counts = |t: [u64; 3]| {
            json!({
                "input_tokens": t[0] + t[1], "cached_input_tokens": t[1], "output_tokens": t[2],
                "reasoning_output_tokens": 0, "total_tokens": t[0] + t[1] + t[2],
            })
        };
        let one = counts([turn.input, turn.cached, turn.answer]);
        let all = [
            item(json!({
                "type": "message", "id": format!("msg_{}", words.hex()), "role": "user",
                "content": [{"type": "input_text", "text": turn.prompt}],
            })),
            item(json!({
                "type": "reasoning", "id": format!("rs_{}", words.hex()),
                "summary": [{"type": "summary_text", "text": turn.thought}], "content": null,
            })),
            item(json!({
                "type": "message", "id": format!("msg_{}", words.hex()), "role": "assistant",
                "content": [{"type": "output_text", "text": turn.text}],
            })),
            item(json!({
                "type": "function_call", "id": format!("fc_{}", words.hex()), "name": "exec_command",
                "arguments": arguments, "call_id": call,
            })),
            record(
                "event_msg",
                at,
                json!({
                    "type": "token_count",
                    "info": {"total_token_usage": counts(sums), "last_token_usage": one, "model_context_window": 258_400},
                }),
            ),
            item(json!({"type": "function_call_output", "call_id": call, "output": turn.output})),
        ];
        let mut written = 0;
        for line in &all {
            written += lines.line(line)?;
        }
        Ok(written)
    })?;
    lines.finish()
}
