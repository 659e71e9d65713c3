//! Codex's ACP behavior: it sends tool output in `_meta`, and warnings as text of the answer.

use super::session_file::CodexSessionFile;
use crate::{
    RunId, Sink, ToolKind, ToolUse,
    acp::{
        blocks::{ContentPiece, pieces},
        profile::{AcpProfile, Chunk, Quirks, plain_output, plain_tool},
        tool_call::AcpToolCall,
    },
    wire::{Str, wire},
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

/// Codex's deviations from ACP.
#[derive(Debug, Default)]
pub(super) struct CodexProfile {
    files: BTreeMap<RunId, CodexSessionFile>,
}

impl AcpProfile for CodexProfile {
    fn quirks(&self) -> Quirks {
        Quirks { session_file: true, ..Quirks::default() }
    }

    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        self.files.entry(run).or_default().line(run, text, sink);
    }

    fn forget(&mut self, run: RunId) {
        self.files.remove(&run);
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
