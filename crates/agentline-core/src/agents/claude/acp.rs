//! Claude Code's ACP behavior: it reports native tool names and wraps tool output in a code fence.

use super::{
    failures::{MAX_OUTPUT_TOKENS, ReportedError, is_notice},
    session_file::ClaudeSessionFile,
    tools::TOOLS,
};
use crate::{
    Failure, RunId, Sink, ToolUse,
    acp::{
        profile::{AcpProfile, Quirks, ToolEnd, UpdateMeaning, message_of, plain_failure, plain_output},
        tool_call::AcpToolCall,
    },
    agents::adapter,
    rpc::JsonRpcError,
    wire::{Str, wire},
};
use std::collections::BTreeMap;

wire! { struct Data<'a> { kind: Str<'a> = "errorKind" } }

wire! { struct MessageChunk<'a> { content: ChunkContent<'a> = "content", message: Str<'a> = "messageId" } }

wire! { struct ChunkContent<'a> { text: Str<'a> = "text" } }

wire! { struct Meta<'a> { own: OwnMeta<'a> = "claudeCode" } }

wire! { struct OwnMeta<'a> { parent: Str<'a> = "parentToolUseId" } }

/// Claude Code's deviations from ACP.
#[derive(Debug, Default)]
pub(super) struct ClaudeProfile {
    files: BTreeMap<RunId, ClaudeSessionFile>,
}

impl AcpProfile for ClaudeProfile {
    fn quirks(&self) -> Quirks {
        Quirks {
            session_file: true,
            thoughts_in_output: true,
            stops_after_results: true,
            ..Quirks::default()
        }
    }

    fn interpret(&mut self, _: RunId, kind: &str, raw: &str, _: &mut Sink) -> UpdateMeaning {
        if kind != "agent_message_chunk" {
            return UpdateMeaning::Standard;
        }
        let chunk = serde_json::from_str::<MessageChunk<'_>>(raw).unwrap_or_default();
        // An error of the turn also arrives as a message. It has no id of the model's service.
        let is_notice = !chunk.message.starts_with("msg_") && is_notice(&chunk.content.text);
        if is_notice { UpdateMeaning::Noise } else { UpdateMeaning::Standard }
    }

    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        self.files.entry(run).or_default().line(run, text, sink);
    }

    fn forget(&mut self, run: RunId) {
        self.files.remove(&run);
    }

    fn is_cut_off(&self, error: &JsonRpcError<'_>) -> bool {
        kind_name(error) == MAX_OUTPUT_TOKENS
    }

    fn failure(&self, error: &JsonRpcError<'_>) -> Failure {
        let text = message_of(error);
        let message = text.strip_prefix("Internal error: ").unwrap_or(&text).to_owned();
        let reported = ReportedError { names: vec![kind_name(error)], status: None, message };
        if reported.kind().is_some() { reported.failure() } else { plain_failure(error) }
    }

    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        let meta = call.meta.as_ref().and_then(|meta| serde_json::from_str::<Meta<'_>>(meta.get()).ok());
        let parent = meta.map(|meta| meta.own.parent.own()).filter(|parent| !parent.is_empty());
        ToolUse { parent_tool_use_id: parent, ..adapter::tool(call, &native_name(call), &TOOLS) }
    }

    fn server(&self, call: &AcpToolCall) -> Option<String> {
        let native = native_name(call);
        let (server, _) = native.strip_prefix("mcp__")?.split_once("__")?;
        Some(server.to_owned())
    }

    fn ended(&self, call: &AcpToolCall, failed: bool, output: &str) -> ToolEnd {
        let own = TOOLS.is_own(&native_name(call));
        match failed {
            true if own && output.contains("No such tool available") => {
                ToolEnd::Denied("not_offered".to_owned())
            }
            true => ToolEnd::Failed,
            false => ToolEnd::Ok,
        }
    }

    fn output(&self, call: &AcpToolCall) -> Option<String> {
        let raw = call.raw_output.as_ref().map(|raw| raw.get()).filter(|raw| raw.starts_with('"'));
        let whole = raw.and_then(|raw| serde_json::from_str::<Str<'_>>(raw).ok()).map(Str::own);
        whole.or_else(|| plain_output(call).map(|text| without_fence(&text)))
    }
}

/// Returns Claude Code's own name for an error.
fn kind_name(error: &JsonRpcError<'_>) -> String {
    let data = error.data.map_or("null", |data| data.get());
    serde_json::from_str::<Data<'_>>(data).map(|data| data.kind.own()).unwrap_or_default()
}

fn native_name(call: &AcpToolCall) -> String {
    call.name.clone().unwrap_or_else(|| call.first_title.clone())
}

/// Removes a code fence that encloses the whole text.
fn without_fence(text: &str) -> String {
    let inner = text.strip_prefix("```").and_then(|rest| rest.split_once('\n')).map(|(_, rest)| rest);
    inner
        .and_then(|inner| inner.trim_end().strip_suffix("```"))
        .map_or(text, |inner| inner.strip_suffix('\n').unwrap_or(inner))
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn error_that_arrives_as_a_message_is_not_part_of_the_answer() {
        let meaning = |kind: &str, id: &str, text: &str| {
            let raw = format!(r#"{{"content":{{"type":"text","text":"{text}"}},"messageId":"{id}"}}"#);
            ClaudeProfile::default().interpret(RunId(1), kind, &raw, &mut Sink::default())
        };
        let (chunk, own) = ("agent_message_chunk", "5160e54c-c3d7-45bb-9179-b7e68058e678");
        assert_eq!(meaning(chunk, own, "API Error: Request rejected (429)"), UpdateMeaning::Noise);
        assert_eq!(meaning(chunk, own, "Context: 12 tokens"), UpdateMeaning::Standard);
        assert_eq!(meaning(chunk, "msg_1", "API Error: 429 means"), UpdateMeaning::Standard);
        assert_eq!(meaning("agent_thought_chunk", own, "API Error: 429"), UpdateMeaning::Standard);
    }

    #[test]
    fn call_of_a_sub_agent_names_the_call_that_started_it() {
        let tool = |meta: &str| {
            let meta = RawValue::from_string(meta.to_owned()).unwrap();
            let mut call = AcpToolCall::default();
            (call.name, call.meta) = (Some("Read".into()), Some(meta));
            ClaudeProfile::default().tool(&call).parent_tool_use_id
        };
        assert_eq!(
            tool(r#"{"claudeCode":{"toolName":"Read","parentToolUseId":"toolu_1"}}"#).as_deref(),
            Some("toolu_1")
        );
        assert_eq!(tool(r#"{"claudeCode":{"toolName":"Read"}}"#), None);
        assert_eq!(tool("7"), None);
    }
}
