//! Renders a run as the lines that Claude Code prints with `--output-format stream-json --verbose`.

use crate::{
    Block, Blocks, Denial, Event, FailureKind, Outcome, PermissionMode, PriceTable, Record, Role, RunError,
    Started, Tokens,
    message::{ClaudeCounts, ModelBlock, UNKNOWN_MODEL},
};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use std::collections::BTreeMap;

/// The version of Claude Code whose format is used, for programs that check it.
const CLAUDE_CODE: &str = "2.1.325";

/// Converts events to Claude Code's lines: `system`/`init`, `assistant`, `user`, `result`.
///
/// As in Claude Code, an assistant line is printed when its block is complete. Ids are derived from the run's id, so
/// the same run always gives the same lines. Most numbers in Claude's types cannot be null, so unknown values are 0,
/// and `not_known` in the `result` lists them. Token counts of individual messages are always 0, because no agent but
/// Claude reports them while a message is written.
#[derive(Debug)]
pub struct ClaudeLines {
    mode: PermissionMode,
    blocks: Blocks,
    run_id: String,
    session: String,
    model: Option<String>,
    /// The number of lines so far, used for their ids.
    count: u64,
    /// The number of turns so far. All lines of a turn share one message id.
    turn: u32,
    last_role: Option<Role>,
    /// The arguments of tool calls, used to report denials.
    inputs: BTreeMap<String, Box<RawValue>>,
    web_searches: u64,
}

#[derive(Serialize)]
struct Line<'a, 'b> {
    r#type: Role,
    message: Body<'a, 'b>,
    parent_tool_use_id: Option<&'a str>,
    session_id: &'a str,
    uuid: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a, 'b> {
    Assistant {
        id: String,
        r#type: &'static str,
        role: Role,
        model: &'a str,
        content: ModelBlock<'a, 'b>,
        stop_reason: Option<&'a str>,
        stop_sequence: Option<&'a str>,
        stop_details: Option<&'a str>,
        usage: &'a ClaudeCounts,
        container: Option<&'a str>,
        context_management: Option<&'a str>,
        diagnostics: Option<&'a str>,
    },
    User {
        role: Role,
        content: &'a [Block<'b>],
    },
}

/// A `system` or `result` line, which begins with its type and subtype.
#[derive(Serialize)]
struct TypedLine {
    r#type: &'static str,
    subtype: &'static str,
    #[serde(flatten)]
    rest: Value,
}

impl TypedLine {
    fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl ClaudeLines {
    /// Creates a converter for a run in this permission mode.
    #[must_use]
    pub fn new(mode: PermissionMode) -> Self {
        Self {
            mode,
            blocks: Blocks::default(),
            run_id: String::new(),
            session: String::new(),
            model: None,
            count: 0,
            turn: 0,
            last_role: None,
            inputs: BTreeMap::new(),
            web_searches: 0,
        }
    }

    /// Processes one event and passes each completed line, without its line break, to `each`.
    pub fn take(&mut self, record: &Record, mut each: impl FnMut(String)) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.take(record, |block, _, _| each(self.block(&block)));
        self.blocks = blocks;
        match &record.event {
            Event::Started(started) => each(self.init(started)),
            Event::Outcome { outcome } => each(self.result(outcome)),
            _ => {}
        }
    }

    fn init(&mut self, started: &Started) -> String {
        self.run_id.clone_from(&started.run_id);
        self.session = started.session_id.clone().unwrap_or_default();
        self.model.clone_from(&started.model);
        let mode = match self.mode {
            PermissionMode::Default | PermissionMode::Deny | PermissionMode::Prompt => "default",
            PermissionMode::AcceptEdits => "acceptEdits",
            PermissionMode::Bypass | PermissionMode::Auto => "bypassPermissions",
            PermissionMode::Plan => "plan",
        };
        let rest = json!({
            "cwd": started.cwd, "session_id": self.session,
            "tools": [], "mcp_servers": [], "model": self.model(), "permissionMode": mode,
            "slash_commands": [], "apiKeySource": "none", "claude_code_version": CLAUDE_CODE,
            "output_style": "default", "agents": [], "skills": [], "plugins": [],
            "agent": started.agent, "agent_version": started.agent_version, "uuid": self.uuid(),
        });
        TypedLine { r#type: "system", subtype: "init", rest }.line()
    }

    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(UNKNOWN_MODEL)
    }

    fn block(&mut self, block: &Block<'_>) -> String {
        let role = block.role();
        if role == Role::Assistant && self.last_role != Some(Role::Assistant) {
            self.turn += 1;
        }
        self.last_role = Some(role);
        if let Block::ToolUse { id, name, input, .. } = block {
            self.inputs.insert(id.to_string(), input.clone().into_owned());
            self.web_searches += u64::from(name == "WebSearch");
        }
        let uuid = self.uuid();
        let (content, usage) = (std::slice::from_ref(block), ClaudeCounts::of(&Tokens::default()));
        let message = match role {
            Role::Assistant => Body::Assistant {
                id: format!("msg_{}_{}", self.run_id, self.turn),
                r#type: "message",
                role,
                model: self.model(),
                content: ModelBlock(content),
                stop_reason: None,
                stop_sequence: None,
                stop_details: None,
                usage: &usage,
                container: None,
                context_management: None,
                diagnostics: None,
            },
            Role::User | Role::System => Body::User { role, content },
        };
        let line = Line { r#type: role, message, parent_tool_use_id: None, session_id: &self.session, uuid };
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn result(&mut self, outcome: &Outcome) -> String {
        if let Some(session) = &outcome.session_id {
            self.session.clone_from(session);
        }
        self.run_id.clone_from(&outcome.run_id);
        let subtype = outcome.error.as_ref().map_or("success", subtype);
        let denials: Vec<Value> = outcome.denied.iter().map(|denial| self.denial(denial)).collect();
        let tokens = &outcome.usage.tokens;
        let unknown = [
            ("duration_api_ms", true),
            ("total_cost_usd", outcome.cost_usd.is_none()),
            ("usage", *tokens == Tokens::default()),
        ];
        let unknown: Vec<&str> = unknown.into_iter().filter_map(|(name, is)| is.then_some(name)).collect();
        let mut rest = json!({
            "is_error": outcome.error.is_some(),
            "duration_ms": outcome.duration_ms, "duration_api_ms": 0, "num_turns": outcome.turns,
            "stop_reason": outcome.stop_reason, "session_id": self.session,
            "total_cost_usd": outcome.cost_usd.unwrap_or(0.0), "usage": ClaudeCounts::of(tokens),
            "modelUsage": self.model_usage(outcome), "permission_denials": denials,
            "uuid": self.uuid(), "verdict": outcome.verdict, "not_known": unknown,
        });
        match &outcome.error {
            None => rest["result"] = outcome.text.as_str().into(),
            Some(error) => rest["errors"] = json!([error.message]),
        }
        if let Some(value) = &outcome.output {
            rest["structured_output"] = serde_json::from_str(value.get()).unwrap_or_default();
        }
        TypedLine { r#type: "result", subtype, rest }.line()
    }

    fn denial(&self, denial: &Denial) -> Value {
        let input = self.inputs.get(&denial.tool_use_id);
        let input: Value = input.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(json!({}));
        json!({"tool_name": denial.tool, "tool_use_id": denial.tool_use_id, "tool_input": input})
    }

    fn model_usage(&self, outcome: &Outcome) -> Map<String, Value> {
        let models = &outcome.usage.by_model;
        let only_one = models.len() == 1;
        let table = PriceTable::built_in();
        let of_one = |(model, tokens): (&String, &Tokens)| {
            let counts = ClaudeCounts::of(tokens);
            let cost = match outcome.cost_usd {
                Some(all) if only_one => Some(all),
                _ => table.cost(&BTreeMap::from([(model.clone(), *tokens)])),
            };
            // Searches are not reported by model, so they are assigned only if there is exactly one model.
            let searches = if only_one { self.web_searches } else { 0 };
            let usage = json!({
                "inputTokens": counts.input_tokens, "outputTokens": counts.output_tokens,
                "thinkingTokens": tokens.thoughts.unwrap_or(0),
                "cacheReadInputTokens": counts.cache_read_input_tokens,
                "cacheCreationInputTokens": counts.cache_creation_input_tokens,
                "webSearchRequests": searches, "costUSD": cost.unwrap_or(0.0),
                "costBasis": if cost.is_some() { "list" } else { "unknown" },
                "contextWindow": 0, "maxOutputTokens": 0,
            });
            (model.clone(), usage)
        };
        models.iter().map(of_one).collect()
    }

    /// Returns the run's id with the line number as its last part.
    fn uuid(&mut self) -> String {
        self.count += 1;
        let head = self.run_id.rsplit_once('-').map_or("00000000-0000-4000-8000", |(head, _)| head);
        format!("{head}-{:012x}", self.count)
    }
}

fn subtype(error: &RunError) -> &'static str {
    match error.kind {
        FailureKind::MaxTurns | FailureKind::AgentTurns => "error_max_turns",
        FailureKind::MaxCost => "error_max_budget_usd",
        _ => "error_during_execution",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, Origin, RunInfo, ToolKind, ToolResult, ToolStatus, ToolUse, Usage, Verdict};

    fn lines(events: Vec<Event>) -> Vec<Value> {
        let mut fold = ClaudeLines::new(PermissionMode::AcceptEdits);
        let mut lines = Vec::new();
        for (seq, event) in (1..).zip(events) {
            let record = Record::new(seq, 0, Origin::Stdout, None, event);
            fold.take(&record, |line| lines.push(serde_json::from_str(&line).unwrap()));
        }
        lines
    }

    fn outcome() -> Outcome {
        let info = RunInfo { run_id: "11111111-2222-4333-8444-555555555555".into(), ..RunInfo::default() };
        let mut outcome = Outcome::not_started(
            &info,
            Verdict::Failed,
            Failure::new(FailureKind::MaxTurns, "turn 3 is over"),
        );
        outcome.session_id = Some("s1".into());
        outcome
    }

    #[test]
    fn run_is_printed_in_claude_code_format() {
        let started = Started {
            run_id: "11111111-2222-4333-8444-555555555555".into(),
            session_id: Some("s1".into()),
            model: Some("m".into()),
            ..Started::default()
        };
        let mut done = outcome();
        (done.verdict, done.error, done.text) = (Verdict::DoneWithDenials, None, "No.".into());
        let tokens = Tokens {
            input: Some(100),
            cached: Some(40),
            output: Some(7),
            thoughts: Some(3),
            ..Tokens::default()
        };
        done.usage = Usage { tokens, ..Usage::default() };
        done.denied = vec![Denial {
            tool: "Write".into(),
            native_tool: "write_file".into(),
            tool_use_id: "t1".into(),
            reason: String::new(),
            rule: None,
        }];
        let mut write = ToolUse::new("t1", "Write", "write_file", ToolKind::Write);
        write.input = serde_json::value::to_raw_value(&json!({"file_path": "a"})).ok();
        let lines = lines(vec![
            Event::from(started),
            Event::Text { text: "I ".into() },
            Event::Text { text: "try.".into() },
            Event::from(write),
            Event::from(ToolResult::new("t1", ToolStatus::Denied, Some("not allowed".into()))),
            Event::Text { text: "No.".into() },
            Event::Outcome { outcome: Box::new(done) },
        ]);
        let types: Vec<&str> = lines.iter().map(|l| l["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["system", "assistant", "assistant", "user", "assistant", "result"]);
        assert_eq!(lines[0]["permissionMode"], "acceptEdits");
        assert_eq!(
            lines[1]["message"]["content"],
            json!([{"type": "text", "text": "I try.", "citations": null}])
        );
        assert_eq!(lines[1]["message"]["id"], lines[2]["message"]["id"]);
        assert_ne!(lines[1]["message"]["id"], lines[4]["message"]["id"]);
        assert_eq!(
            lines[3]["message"],
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "not allowed", "is_error": true,
                 "status": "denied"}]})
        );
        let result = &lines[5];
        assert_eq!((&result["subtype"], &result["is_error"]), (&json!("success"), &json!(false)));
        assert_eq!(result["result"], "No.");
        let counts =
            ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"];
        assert_eq!(
            counts.map(|name| result["usage"][name].as_u64()),
            [Some(60), Some(0), Some(40), Some(10)]
        );
        assert_eq!(result["not_known"], json!(["duration_api_ms", "total_cost_usd"]));
        assert_eq!(
            result["permission_denials"],
            json!([{"tool_name": "Write", "tool_use_id": "t1", "tool_input": {"file_path": "a"}}])
        );
        assert!(lines.iter().all(|l| l["session_id"] == "s1"));
        let mut ids: Vec<&str> = lines.iter().map(|l| l["uuid"].as_str().unwrap()).collect();
        ids.dedup();
        assert_eq!(ids.len(), lines.len());
    }

    #[test]
    fn failed_run_reports_its_error_in_claude_code_format() {
        let lines = lines(vec![Event::Outcome { outcome: Box::new(outcome()) }]);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["subtype"], "error_max_turns");
        assert_eq!(lines[0]["errors"], json!(["turn 3 is over"]));
        assert_eq!(lines[0].get("result"), None);
    }
}
