//! Codex's ACP behavior: it sends tool output in `_meta`, and warnings and errors as text of the answer.

use super::{
    failures::{self, CodexError, FailedRequests},
    session_file::CodexSessionFile,
};
use crate::{
    Failure, FailureKind, RunId, Sink, ToolKind, ToolUse,
    acp::{
        blocks::{ContentPiece, pieces},
        profile::{AcpProfile, Chunk, Quirks, UpdateMeaning, plain_output, plain_tool},
        tool_call::AcpToolCall,
    },
    wire::{Flag, Str, Tolerant as _, wire},
};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use std::collections::BTreeMap;

wire! { struct Meta<'a> { delta: Delta<'a> = "terminal_output_delta" } }
wire! { struct Delta<'a> { data: Option<Str<'a>> = "data" } }
wire! { struct Call<'a> { server: Str<'a> = "server", tool: Str<'a> = "tool", arguments: Option<&'a RawValue> = "arguments" } }
wire! { struct Returned<'a> { result: Content<'a> = "result" } }
wire! { struct Content<'a> { content: Option<&'a RawValue> = "content" } }

wire! { struct Update<'a> { meta: UpdateMeta<'a> = "_meta", message: Str<'a> = "messageId", content: Text<'a> = "content" } }
wire! { struct UpdateMeta<'a> { codex: CodexMeta<'a> = "codex" } }
wire! { struct CodexMeta<'a> { status: Status<'a> = "threadStatus", error: Retried<'a> = "error" } }
wire! { struct Status<'a> { kind: Str<'a> = "type" } }
wire! { struct Retried<'a> {
    message: Str<'a> = "message", info: Option<&'a RawValue> = "codexErrorInfo", details: Str<'a> = "additionalDetails",
    retries: Flag = "willRetry",
} }
wire! { struct Text<'a> { text: Str<'a> = "text" } }

/// Codex's deviations from ACP.
#[derive(Debug, Default)]
pub(super) struct CodexProfile {
    files: BTreeMap<RunId, CodexSessionFile>,
    turns: BTreeMap<RunId, TurnState>,
}

/// What Codex has reported about the turn of a run.
#[derive(Debug, Default)]
struct TurnState {
    has_text: bool,
    /// Whether the turn has failed. The reason follows as text of the answer.
    has_failed: bool,
    failure: Option<Failure>,
    failed_requests: FailedRequests,
}

impl AcpProfile for CodexProfile {
    fn quirks(&self) -> Quirks {
        Quirks {
            session_file: true,
            denial_ends_turn: true,
            needs_title: true,
            stops_after_results: true,
            ..Quirks::default()
        }
    }

    fn interpret(&mut self, run: RunId, kind: &str, raw: &str, sink: &mut Sink) -> UpdateMeaning {
        let turn = self.turns.entry(run).or_default();
        match kind {
            "session_info_update" => {
                let meta = serde_json::from_str::<Update<'_>>(raw).unwrap_or_default().meta.codex;
                turn.has_failed |= &*meta.status.kind == "systemError";
                if !meta.error.is_object() || !meta.error.retries.0 {
                    return UpdateMeaning::Standard;
                }
                let error = CodexError::new(meta.error.message, meta.error.info, meta.error.details);
                let failure = failures::of_error(&error, turn.has_text);
                if turn.failed_requests.give_up(&error.message, &failure) {
                    return UpdateMeaning::GiveUp(failure);
                }
                sink.event(run, failures::retry_warning(&error.message, &failure));
                sink.retry_of(run, failure);
                UpdateMeaning::Standard
            }
            "agent_message_chunk" => {
                turn.failed_requests = FailedRequests::default();
                let update = serde_json::from_str::<Update<'_>>(raw).unwrap_or_default();
                let text = &update.content.text;
                // A part of an answer has an id, an error has none.
                if turn.has_failed && update.message.is_empty() {
                    turn.failure = Some(failures::of_text(text.trim(), turn.has_text));
                    return UpdateMeaning::Noise;
                }
                turn.has_text |= !text.trim().is_empty();
                UpdateMeaning::Standard
            }
            "agent_thought_chunk" | "tool_call" => {
                turn.failed_requests = FailedRequests::default();
                UpdateMeaning::Standard
            }
            _ => UpdateMeaning::Standard,
        }
    }

    fn take_failure(&mut self, run: RunId) -> Option<Failure> {
        let turn = self.turns.remove(&run)?;
        let unknown = || Failure::new(FailureKind::ApiError, "Codex reported an error without a reason");
        turn.failure.or_else(|| turn.has_failed.then(unknown))
    }

    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        self.files.entry(run).or_default().line(run, text, sink);
    }

    fn forget(&mut self, run: RunId) {
        self.files.remove(&run);
        self.turns.remove(&run);
    }

    fn message_chunk(&self, text: &str) -> Chunk {
        // A warning is a separate chunk that ends with a blank line. No chunk of an answer looks like this.
        let warning = text.starts_with("Warning: ") && text.ends_with("\n\n");
        if warning { Chunk::Noise } else { Chunk::Plain }
    }

    fn streamed(&self, meta: &RawValue) -> Option<String> {
        serde_json::from_str::<Meta<'_>>(meta.get()).ok()?.delta.data.map(Str::own)
    }

    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        let mut tool = plain_tool(call);
        if call.name.is_none() {
            // Permission requests have no tool name; the title is the command.
            let native = if tool.kind == ToolKind::Shell { "exec_command" } else { "apply_patch" };
            if matches!(tool.kind, ToolKind::Shell | ToolKind::Write | ToolKind::Edit) {
                native.clone_into(&mut tool.native_name);
            }
        }
        if let ([diff], None, ToolKind::Write) = (&*call.diffs, &tool.input, tool.kind) {
            // A patch is reported by its resulting files, never by its text.
            tool.input = to_raw_value(&json!({"file_path": diff.path, "content": diff.new})).ok();
        }
        if let Some((server, name, arguments)) = of_server(call) {
            tool.name = format!("mcp__{server}__{name}");
            tool.native_name.clone_from(&call.first_title);
            tool.kind = ToolKind::Mcp;
            tool.input = arguments;
        }
        tool
    }

    fn output(&self, call: &AcpToolCall) -> Option<String> {
        plain_output(call).or_else(|| {
            let raw = call.raw_output.as_ref()?;
            let content = serde_json::from_str::<Returned<'_>>(raw.get()).ok()?.result.content?;
            let texts = pieces(content).into_iter().filter_map(|piece| match piece {
                ContentPiece::Text(text) => Some(text),
                ContentPiece::Other(_) => None,
            });
            Some(texts.collect())
        })
    }

    fn server(&self, call: &AcpToolCall) -> Option<String> {
        of_server(call).map(|(server, ..)| server)
    }
}

/// Returns the server, tool and arguments of a call to an MCP tool.
fn of_server(call: &AcpToolCall) -> Option<(String, String, Option<Box<RawValue>>)> {
    call.first_title.strip_prefix("mcp.")?;
    let input = serde_json::from_str::<Call<'_>>(call.raw_input.as_ref()?.get()).ok()?;
    let found = (input.server.own(), input.tool.own(), input.arguments.map(ToOwned::to_owned));
    (!found.0.is_empty() && !found.1.is_empty()).then_some(found)
}
