//! Sessions in the format of Claude Code: a line for each block, some forked, some with a subagent.

use super::{Lines, Plan, Turn, UNSEARCHABLE, count, moment, turns, words::WordSource};
use serde_json::{Value, json};
use std::{io, path::PathBuf};

/// After every this many sessions, the next one starts with a copy of it.
const FORKED: usize = 60;
/// One of this many sessions has a subagent.
const HELPED: usize = 80;
/// The number of lines that a fork copies.
const COPIED: usize = 12;

pub(super) fn file(plan: &Plan<'_>) -> PathBuf {
    let folder = plan.project.replace(['/', '_'], "-");
    plan.home.join(".claude/projects").join(folder).join(format!("{}.jsonl", plan.id))
}

/// Writes a session, and returns the number of its forks and subagents.
pub(super) fn write(plan: &Plan<'_>, words: &mut WordSource, used: &mut [u64; 3]) -> io::Result<[u64; 2]> {
    let path = file(plan);
    let mut lines = Lines::create(&path)?;
    let mut first = Vec::new();
    let mut author = Author { plan, parent: None, agent: None, at: plan.start };
    turns(plan, &mut words.fork(), |number, turn| {
        count(used, &turn);
        let mut written = 0;
        for line in author.turn(&turn, words) {
            written += lines.line(&line)?;
            if number < 2 && first.len() < COPIED {
                first.push(line);
            }
        }
        Ok(written)
    })?;
    lines.finish()?;
    let forked = plan.number % FORKED == 2;
    if forked {
        fork(plan, &first, words)?;
    }
    let helped = plan.number % HELPED == 3;
    if helped {
        let name = format!("agent-{}", &words.hex()[..8]);
        let path = path.with_extension("").join("subagents").join(format!("{name}.jsonl"));
        let agent = Some(name.trim_start_matches("agent-").to_owned());
        let mut author = Author { plan, parent: None, agent, at: plan.start };
        let mut lines = Lines::create(&path)?;
        let turn = a_turn(words);
        count(used, &turn);
        for line in author.turn(&turn, words) {
            lines.line(&line)?;
        }
        lines.finish()?;
    }
    Ok([u64::from(forked), u64::from(helped)])
}

fn a_turn(words: &mut WordSource) -> Turn {
    Turn {
        prompt: words.sentence(10),
        thought: words.sentence(10),
        text: words.text(20),
        command: "ls".to_owned(),
        output: words.text(30),
        input: 10,
        cached: 20,
        answer: 30,
    }
}

/// Writes a session that continues a copy of another: the same messages under another id, which are not charged again.
fn fork(plan: &Plan<'_>, first: &[Value], words: &mut WordSource) -> io::Result<()> {
    let id = words.uuid();
    let mut lines = Lines::create(&file(plan).with_file_name(format!("{id}.jsonl")))?;
    for line in first {
        let mut line = line.clone();
        line["sessionId"] = json!(id);
        lines.line(&line)?;
    }
    lines.finish()
}

struct Author<'a> {
    plan: &'a Plan<'a>,
    parent: Option<String>,
    agent: Option<String>,
    at: u64,
}

impl Author<'_> {
    fn line(&mut self, kind: &str, words: &mut WordSource, more: Value) -> Value {
        let uuid = words.uuid();
        self.at += 1500;
        let branch = if self.plan.unsearchable { UNSEARCHABLE } else { "main" };
        let mut line = json!({
            "parentUuid": self.parent.replace(uuid.clone()),
            "isSidechain": self.agent.is_some(),
            "type": kind,
            "uuid": uuid,
            "timestamp": moment(self.at),
            "userType": "external",
            "cwd": self.plan.project,
            "sessionId": self.plan.id,
            "version": "2.1.197",
            "gitBranch": branch,
        });
        if let Some(agent) = &self.agent {
            line["agentId"] = json!(agent);
        }
        let fields = more.as_object().cloned().unwrap_or_default();
        line.as_object_mut().expect("an object").extend(fields);
        line
    }

    fn turn(&mut self, turn: &Turn, words: &mut WordSource) -> Vec<Value> {
        let (message, request) = (format!("msg_{}", words.hex()), format!("req_{}", words.hex()));
        let call = format!("toolu_{}", words.hex());
        let prompt = json!({"message": {"role": "user", "content": turn.prompt}});
        let mut all = vec![self.line("user", words, prompt)];
        let blocks = [
            json!({"type": "thinking", "thinking": turn.thought, "signature": words.hex()}),
            json!({"type": "text", "text": turn.text}),
            json!({"type": "tool_use", "id": call, "name": "Bash", "input": {"command": turn.command}}),
        ];
        for block in blocks {
            let answer = json!({
                "requestId": request,
                "message": {
                    "id": message, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
                    "content": [block], "stop_reason": "tool_use", "stop_sequence": null,
                    "usage": {
                        "input_tokens": turn.input, "cache_creation_input_tokens": 0,
                        "cache_read_input_tokens": turn.cached, "output_tokens": turn.answer,
                        "service_tier": "standard",
                        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
                    },
                },
            });
            all.push(self.line("assistant", words, answer));
        }
        let result =
            json!({"type": "tool_result", "tool_use_id": call, "content": turn.output, "is_error": false});
        let result = json!({
            "message": {"role": "user", "content": [result]},
            "toolUseResult": {"stdout": turn.output, "stderr": "", "interrupted": false, "isImage": false},
        });
        all.push(self.line("user", words, result));
        all
    }
}
