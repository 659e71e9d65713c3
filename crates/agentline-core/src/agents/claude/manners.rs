//! Claude Code's ACP behavior: it reports native tool names and wraps tool output in a code fence.

use super::tools::TOOLS;
use crate::{
    Failure, Kind, ToolKind, ToolUse,
    acp::{
        manners::{Ended, Manners, message_of, plain_failure, plain_output},
        tools::ToolCall,
    },
    agents::adapter,
    rpc::RpcError,
    wire::{Str, wire},
};
use serde_json::value::RawValue;

/// The meaning of its error kinds.
const ERRORS: &[(&str, Kind)] = &[
    ("authentication_failed", Kind::NotAuthenticated),
    ("rate_limit", Kind::RateLimited),
    ("overloaded", Kind::RateLimited),
    ("model_not_found", Kind::UnknownModel),
    ("prompt_too_long", Kind::ContextOverflow),
];

wire! { struct Data<'a> { kind: Str<'a> = "errorKind" } }

wire! { struct Aim<'a> { file: Str<'a> = "file_path", notebook: Str<'a> = "notebook_path" } }

/// Claude Code's deviations from ACP.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaudeManners;

impl Manners for ClaudeManners {
    fn failure(&self, error: &RpcError<'_>) -> Failure {
        let data = error.data.map_or("null", |data| data.get());
        let told = serde_json::from_str::<Data<'_>>(data).map(|data| data.kind.own()).unwrap_or_default();
        let text = message_of(error);
        let by_kind = ERRORS.iter().find(|(name, _)| *name == told).map(|(_, kind)| *kind);
        let by_text = text.contains("Prompt is too long").then_some(Kind::ContextOverflow);
        by_kind.or(by_text).map_or_else(|| plain_failure(error), |kind| Failure::new(kind, text))
    }

    fn tool(&self, call: &ToolCall) -> ToolUse {
        adapter::tool(call, &native_name(call), &TOOLS)
    }

    fn server(&self, call: &ToolCall) -> Option<String> {
        let native = native_name(call);
        let (server, _) = native.strip_prefix("mcp__")?.split_once("__")?;
        Some(server.to_owned())
    }

    fn ended(&self, call: &ToolCall, failed: bool, output: &str) -> Ended {
        let own = TOOLS.is_own(&native_name(call));
        match failed {
            true if own && output.contains("No such tool available") => {
                Ended::Denied("not_offered".to_owned())
            }
            true => Ended::Failed,
            false => Ended::Ok,
        }
    }

    fn output(&self, call: &ToolCall) -> Option<String> {
        let raw = call.raw_output.as_ref().map(|raw| raw.get()).filter(|raw| raw.starts_with('"'));
        let whole = raw.and_then(|raw| serde_json::from_str::<Str<'_>>(raw).ok()).map(Str::own);
        whole.or_else(|| plain_output(call).map(|text| without_fence(&text)))
    }
}

/// Creates the tool use for a call in a saved session.
pub(super) fn tool_use(id: &str, native: &str, input: Option<&RawValue>) -> ToolUse {
    let mut tool = TOOLS.tool_use(id, native, input);
    if tool.kind == ToolKind::Edit && tool.path.is_none() {
        let aim: Aim<'_> = input.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        tool.path = Some(aim.notebook.own()).filter(|path| !path.is_empty());
    }
    tool
}

fn native_name(call: &ToolCall) -> String {
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
